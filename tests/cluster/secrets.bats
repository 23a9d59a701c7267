#!/usr/bin/env bats
# limit_s: 120
# takes_s: 15
# all: starts Slurm's MUNGE
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the hosts' shells; bats sets output
# What keeps a key from others on real hosts: MUNGE, with a munged on each; and the program with
# which other suites look whether it travels in clear.
load jobs

setup_file() {
	[ -n "$(why_no_munge)" ] || "$ROOT/tests/cluster/vslurm" up 1 >&2
}

teardown_file() {
	cluster_down
}

setup() {
	local why
	why=$(why_no_munge | head -1)
	[ -z "$why" ] || skip "$why"
	PROBE=$HELPERS/munge_probe
	KEY=0123456789abcdef0123456789abcdef
}

why_no_munge() {
	local program
	why_no_cluster
	for program in munged slurmctld slurmd srun; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
			echo "no $program (tests/deps launchers installs it)"
			return
		}
	done
}

# A credential of USER on HOST into $T/credential.
wrap() { # USER HOST
	printf %s "$KEY" | as "$1" "$2" timeout 20 "$PROBE" wrap > "$T/credential"
	grep -q '^MUNGE:.*:$' "$T/credential"
}

unwrap() { # USER HOST
	as "$1" "$2" timeout 20 "$PROBE" unwrap < "$T/credential"
}

refused() { # TEXT USER HOST
	local text=$1; shift
	run -1 unwrap "$@"
	says "munge_probe: $text"
	silent_on "$KEY"
}

@test "a credential is opened by its user on any host, and not once alone" {
	wrap alice n0
	run ! grep -q "$KEY" "$T/credential"
	[ "$(wc -c < "$T/credential")" -lt 4096 ]
	for host in n1 n0 n1; do
		run -0 unwrap alice "$host"
		[ "$output" = "$KEY" ]
	done
}

@test "another user cannot open it, nor can root, nor after its user has" {
	wrap alice n0
	refused "MUNGE: " bob n1
	refused "MUNGE: " root n1
	run -0 unwrap alice n1
	refused "MUNGE: " bob n1
	refused "MUNGE: " root n1
	wrap root n0
	refused "MUNGE: " alice n1
	run -0 unwrap root n1
	[ "$output" = "$KEY" ]
}

# munge -u makes one for any user; it says who made it.
@test "a credential that another user made for us is refused" {
	as bob n0 timeout 20 munge -u alice -s "$KEY" > "$T/credential"
	refused "user 2002 made the credential" alice n1
	as alice n0 timeout 20 munge -s "$KEY" > "$T/credential"
	run -0 unwrap alice n1
	[ "$output" = "$KEY" ]
}

# munged calls it expired.  It gives its times, and these count.
@test "a credential that is older than its maker said, and younger than an hour, is opened" {
	as alice n0 timeout 20 munge -t 1 -u alice -s "$KEY" > "$T/credential"
	for host in n0 n1; do
		wait_for expired "$host"
		run -0 unwrap alice "$host"
		[ "$output" = "$KEY" ]
	done
}

expired() { as alice "$1" unmunge < "$T/credential" | grep -qi expired; }

@test "what is no credential is refused" {
	wrap alice n0
	cp "$T/credential" "$T/good"
	for change in 's/^MUNGE/MUNGF/' 's/:$//' 's/^\(.\{40\}\)./\1#/' 's/^\(.\{100\}\).*/\1:/' 's/.*//' 's/.*/MUNGE::/'; do
		sed "$change" "$T/good" > "$T/credential"
		refused "MUNGE: " alice n1
	done
	head -c 8000 /dev/zero | tr '\0' A > "$T/credential"
	refused "MUNGE: " alice n1
}

@test "a munged of another cluster does not open it; without one, that is said within seconds" {
	local begun
	wrap alice n0
	on n1 sh -c 'kill $(pgrep -x munged); while pgrep -x munged > /dev/null; do sleep 0.05; done'
	begun=$SECONDS
	refused "MUNGE: " alice n1
	run -1 as alice n1 timeout 20 "$PROBE" wrap < <(printf %s "$KEY")
	says "munge_probe: MUNGE: "
	[ $((SECONDS - begun)) -lt 10 ]
	on n1 sh -c 'head -c 128 /dev/urandom > /etc/munge/munge.key
		setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged'
	refused "MUNGE: " alice n1
	wrap alice n1
	run -0 unwrap alice n1
}

@test "sniff finds what TCP carries in clear past a host, whole" {
	mkdir -p "$STATE/t"
	on n1 sh -c 'echo $$ > /run/sniff.pid; exec "$@"' sh "$HELPERS/sniff" /vc/t/sniffed > "$T/sniff" 2>&1 3>&- &
	wait_for grep -q 'sniff: ready' "$T/sniff"
	on n1 python3 -c 'if True:
		import socket
		s = socket.create_server(("", 7777))
		print("listens", flush=True)
		c = s.accept()[0]
		while c.recv(65536): pass' > "$T/listens" 3>&- &
	wait_for grep -q listens "$T/listens"
	on n0 python3 -c 'if True:
		import socket
		s = socket.create_connection(("n1", 7777))
		for i in range(20000): s.sendall(b"secret %08d in clear\n" % i)'
	wait %2
	on n1 sh -c 'kill $(cat /run/sniff.pid)'
	wait %1
	grep -q ' 7777 ' "$STATE/t/sniffed"
	grep -aq 'secret 00000000 in clear' "$STATE/t/sniffed"
	[ "$(grep -ac 'secret [0-9]* in clear' "$STATE/t/sniffed")" -gt 19000 ] # some are cut by the end of a packet
	run ! grep -aq 'secret 00020000' "$STATE/t/sniffed"
}
