#!/bin/bash
# hostkeys.sh RUNNER SEED SHARE: ssh and runner with the same configuration, on n0 of the cluster
# that hostkeys.bash makes; prints TAP.
#
# A case is a state of ~/.ssh and /etc/ssh.  From that state `ssh -o BatchMode=yes` logs in or is
# refused; from the same state runner must do the same, and leave the same known_hosts files.  The
# case also says whether a log-in is right, and which transport of runner's makes it, so that
# neither "all are refused" nor "all go through the ssh program" passes.
#
# n1 has an Ed25519 key, on the ports 22 and 2222.  n2 has an Ed25519, an ECDSA and an RSA key.
# n3 has an Ed25519 key with a certificate of /vc/ca.  SHARE: the case runs in one of so many
# runs, by SEED; 1: each case runs.
# shellcheck disable=SC2016,SC2034,SC2317 # cases are in single quotes, and use these variables
set -u
runner=$1 seed=$2 share=$3
D=~/.ssh G=/etc/ssh/ssh_known_hosts
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0 failed=0 run=0

key_of() { cut -d ' ' -f 1,2 "$1"; }
n1=$(key_of /vc/keys/n1.pub) n2=$(key_of /vc/keys/n2.pub) n3=$(key_of /vc/keys/n3.pub)
n2ecdsa=$(key_of /vc/n2_ecdsa.pub) n2rsa=$(key_of /vc/n2_rsa.pub) ca=$(key_of /vc/ca.pub)
other=$(key_of /vc/other.pub) other_rsa=$(key_of /vc/other_rsa.pub)
other_ecdsa=$(key_of /vc/other_ecdsa.pub)
a1=$(awk '$2 == "n1" { print $1 }' /etc/hosts)

# Words of a case.
user() { printf '%s\n' "$@" >> $D/known_hosts; }
user2() { printf '%s\n' "$@" >> $D/known_hosts2; }
site() { printf '%s\n' "$@" >> $G; }
site2() { printf '%s\n' "$@" >> ${G}2; }
file() { local f=$1; shift; printf '%s\n' "$@" >> "$D/$f"; }
config() { printf '%s\n' "$@" >> $D/config; chmod 600 $D/config; }
hashed() { # NAME KEY: the line with a hashed name
	printf '%s %s\n' "$1" "$2" > "$work/line"
	ssh-keygen -q -H -f "$work/line" > /dev/null 2>&1
	cat "$work/line"
}

reset() {
	rm -rf $D $G ${G}2 /etc/ssh/ssh_config
	mkdir -m 700 $D
	install -m 600 /vc/ssh/root $D/id_ed25519
	: > /etc/ssh/ssh_config
}

# The known_hosts files, without what is random in hashed lines.
files() {
	local f name
	for f in "$D"/* "$G"*; do
		case $f in */id_* | */config | '*') continue ;; esac
		[ -f "$f" ] || { [ -e "$f" ] && echo "$f: no file"; continue; }
		echo "$f $(stat -c %a "$f")"
		sed 's/^|1|[^ ]*/HASHED/' "$f"
		grep -q '^|1|' "$f" || continue
		for name in n1 n2 n3 '[n1]:2222' "$a1"; do
			echo "$name: $(ssh-keygen -F "$name" -f "$f" 2> /dev/null | sed '/^#/d; s/^[^ ]* //')"
		done
	done
}

# compare IN|OUT TRANSPORT|- NAME HOST SETUP [SSH_OPTIONS [RUNNER_OPTIONS]]
compare() {
	local want=$1 via=$2 name=$3 host=$4 setup=$5 ssh_options=${6:-} options=${7:-${6:-}}
	local ssh_says ssh_status status got seen wrong=
	count=$((count + 1))
	[ $(((count + seed) % share)) = 0 ] || return 0
	run=$((run + 1))
	reset
	eval "$setup"
	cp -a $D "$work/before"; cp -a $G ${G}2 "$work/" 2> /dev/null
	# shellcheck disable=SC2086
	ssh_says=$(ssh -o BatchMode=yes -o ConnectTimeout=20 $ssh_options "$host" true 2>&1 < /dev/null)
	ssh_status=$?
	files > "$work/ssh"
	rm -rf $D $G ${G}2; mv "$work/before" $D; mv "$work"/ssh_known_hosts* /etc/ssh/ 2> /dev/null
	# shellcheck disable=SC2086
	got=$("$runner" -v -np 1 $options -H "$host" true 2>&1 < /dev/null)
	status=$?
	files > "$work/runner"
	seen=$(sed -n 's/^runner: .* is up: .*(\(.*\))$/\1/p' <<< "$got")
	[ "$((ssh_status == 0))" = "$((status == 0))" ] || wrong+=" ssh: $ssh_status, runner: $status."
	[ "$((status == 0))" = "$([ "$want" = in ]; echo $((! $?)))" ] || wrong+=" not '$want'."
	[ "$via" = - ] || [ "$seen" = "$via" ] || wrong+=" through '$seen', not '$via'."
	cmp -s "$work/ssh" "$work/runner" || wrong+=" known_hosts differ."
	# a key that is not the known one is never passed over
	if grep -qE 'IDENTIFICATION HAS CHANGED|REVOKED HOST KEY' <<< "$ssh_says" &&
		! grep -qiE 'host key' <<< "$got"; then
		wrong+=" silent on the changed key."
	fi
	if [ -z "$wrong" ]; then
		echo "ok $count - $name"
		return
	fi
	failed=$((failed + 1))
	echo "not ok $count - $name:$wrong"
	printf '%s\n' "-- ssh: $ssh_says" "-- runner: $got" "-- files:" "$(diff "$work/ssh" "$work/runner")" | sed 's/^/# /'
}

# shellcheck source=tests/cluster/hostkeys.cases
. "$(dirname "$0")/hostkeys.cases"
echo "1..$count"
echo "# $run of $count cases ran, $failed failed"
[ "$failed" = 0 ] && [ "$run" -gt 0 ]
