#!/usr/bin/env bats
# all: starts Slurm
# limit_s: 200
# takes_s: 40
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the hosts' shells; bats sets output
# A host between runner's and an agent's, by ARP, on a real Slurm with MUNGE: it exchanges what srun
# says for what it likes (between.py), and no agent calls it.
load jobs
load slurm

setup_file() {
	slurm_up 2
}

teardown_file() {
	cluster_down
}

setup() {
	need_slurm
	hosts=(n1)
	A=10.77.255.254 B=10.77.0.1 # n0, n1
	mark_clean n1
}

teardown() {
	say_slurm
	[ -z "${between-}" ] || leave
}

leave() {
	on n0 ip neigh replace "$B" lladdr "$mac" dev eth0 nud stale
	on n1 ip neigh replace "$A" lladdr "$mac" dev eth0 nud stale
	on n2 sh -c 'kill $(cat /run/between.pid)'
	wait "$between" || true
	between=
	on n2 iptables -F FORWARD
}

is_between() { # what n0 and n1 hold for the other one's address is n2's
	[[ $(on n0 cat /proc/net/arp) == *"$B "*"$mac"* && $(on n1 cat /proc/net/arp) == *"$A "*"$mac"* ]]
}

come() { # DOES
	local n
	on n2 sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward
		for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $f; done'
	for n in n0 n1; do on n2 bash -c ": < /dev/tcp/$n/22"; done
	mac=$(on n2 cat /sys/class/net/eth0/address)
	on n2 iptables -A FORWARD -p tcp -j NFQUEUE --queue-num 5
	on n2 sh -c 'echo $$ > /run/between.pid; exec "$@"' sh /usr/bin/python3 "$ROOT/tests/cluster/between.py" \
		eth0 "$A" "$B" "$1" > "$T/between" 2>&1 3>&- &
	between=$!
	wait_for grep -q ready "$T/between"
	wait_for is_between
	# A host that asks again hears the true address for a moment.
	on n0 ip neigh replace "$B" lladdr "$mac" dev eth0 nud permanent
	on n1 ip neigh replace "$A" lladdr "$mac" dev eth0 nud permanent
}

@test "it carries all: agents start" {
	come carry
	run -0 salloc -w n1 -N1 "$RUNNER" --no-tag echo started
	says started
}

@test "it exchanges the call: the agent refuses it, calls nobody, and says so" {
	local user
	come call
	for user in alice root; do
		run -240 salloc -w n1 -N1 "$RUNNER" true
		says 'before the agent called: ' \
			'cannot call runner: runner uses MUNGE, and the message on stdin is not a credential'
	done
	cat "$T/between"
	[ "$(grep -c 'a credential: True: exchanged' "$T/between")" = 2 ]
	run ! grep 'an agent calls' "$T/between"
}

# The arguments are in a message of Slurm's whose hash is in srun's credential.
@test "it exchanges the argument as well: Slurm starts nothing" {
	come both
	run -240 salloc -w n1 -N1 "$RUNNER" --start-timeout 10 true
	cat "$T/between"
	grep -q 'argv: --connect=munge: exchanged' "$T/between"
	run ! grep 'an agent calls' "$T/between"
}
