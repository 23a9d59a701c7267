#!/usr/bin/env bats
# limit_s: 300
# takes_s: 15
# more: a third of the cases in place of a twelfth
# Host keys: runner logs in if and only if `ssh -o BatchMode=yes` does, and leaves the same
# known_hosts.  The cases stand in hostkeys.cases.  A part of them runs, another part tomorrow;
# ALL=1 runs all (`make soak` does).
# shellcheck disable=SC2016

load ../cli/common

setup_file() {
	cluster_up 3
	[ -z "$(why_no_cluster)" ] || return 0
	on n0 sh -c 'cd /vc
		ssh-keygen -q -t ecdsa -N "" -f n2_ecdsa; ssh-keygen -q -t rsa -b 2048 -N "" -f n2_rsa
		for t in ed25519 rsa ecdsa; do ssh-keygen -q -t $t -N "" -f other_$t; done
		mv other_ed25519.pub other.pub
		ssh-keygen -q -t ed25519 -N "" -f ca
		ssh-keygen -q -s ca -I n3 -h -n n3 keys/n3.pub' > /dev/null
	on n1 sh -c 'printf "%s\n" "Port 22" "Port 2222" > /etc/ssh/vc_sshd.d/test.conf'
	on n2 sh -c 'cp /vc/n2_ecdsa /vc/n2_rsa /etc/ssh/; chmod 600 /etc/ssh/n2_*
		printf "HostKey /etc/ssh/%s\n" n2_ecdsa n2_rsa > /etc/ssh/vc_sshd.d/test.conf'
	on n3 sh -c 'cp /vc/keys/n3-cert.pub /etc/ssh/; echo "HostCertificate /etc/ssh/n3-cert.pub" > /etc/ssh/vc_sshd.d/test.conf'
	for h in n1 n2 n3; do "$VCLUSTER" sshd $h reread; done
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

alike() { # SHARE
	local share=$1
	[ -z "${ALL:-}" ] || share=1
	run on n0 "$ROOT/tests/cluster/hostkeys.sh" "$RUNNER" "${SEED:-$(date +%j)}" $share
	grep -E '^(not ok|#)' <<< "$output" || true
	grep -E 'cases ran' <<< "$output" >&3
	[ "$status" = 0 ]
}

@test "runner logs in where ssh does, and known_hosts is the same after" { alike 12; }

# bats test_tags=all
@test "the same with more cases" { alike 3; }

@test "of several hosts with unknown keys, each key is said" {
	# a case may have left anything
	on n0 sh -c 'rm -rf ~/.ssh/* /etc/ssh/ssh_config /etc/ssh/ssh_known_hosts*
		install -m 600 /vc/ssh/root ~/.ssh/id_ed25519'
	run -240 on n0 "$RUNNER" -H n1,n2,n3 true
	for h in n1 n2 n3; do
		print=$(on n0 ssh-keygen -lf /vc/keys/$h.pub | cut -d ' ' -f 2)
		grep -qx "runner: $h: ssh-ed25519 $print" <<< "$output"
	done
	hinted
	run -240 on n0 "$RUNNER" -H n1 true
	[ "$(grep -c SHA256 <<< "$output")" = 1 ] # in the error itself
}
