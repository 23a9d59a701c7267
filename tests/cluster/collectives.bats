#!/usr/bin/env bats
# limit_s: 400
# takes_s: 54
# more: 16 hosts, bad networks, random steps
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# libberth over 2, 4 and 16 hosts: what it computes, and what becomes of it when connections lose and
# delay, hosts are cut off, ranks are killed in the middle of an operation.  The ranks are
# tests/helpers/collectives.c and steady.c; counts and moments come from SEED.
load jobs
load lost
load crowd

setup_file() {
	cluster_up "$([ "${CHECK:-}" = user ] && echo 4 || echo 16)" --nics 2
	[ -n "$(why_no_cluster)" ] || mark_clean n0 n1 n2 n3 n4
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	PROGRAM=$HELPERS/collectives STEADY=$HELPERS/steady
	SEED=${SEED:-$((RANDOM + 1))}
	echo "SEED=$SEED"
}

teardown() {
	local h
	[ -z "$(why_no_cluster)" ] || return 0
	for h in n1 n2 n3 n4; do "$VCLUSTER" netem "$h" clear 2> /dev/null; done
	"$VCLUSTER" partition heal
	[ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
}

checked() { # HOSTS CASE...
	local case
	run -0 r --no-tag -H "$1" "$PROGRAM" "$SEED" "${@:2}"
	for case in "${@:2}"; do
		[[ $output == *"$case: "*" checks"* ]] || { echo "$1: $output"; return 1; }
	done
}

@test "every kind of operation on 2 hosts" {
	checked "n[1-2]" reductions scaled moves sets async poll thresholds join mismatch arguments
	checked "n[1-2]" meet requests abort make counts sends
	checked "n[1-2]" waiting lacking stop again late
	checked "n[1-3]" overlap
	[ "${SAN:-}" ] || checked "n[1-2]" starved # sanitizers do not live without memory
}
# bats test_tags=all
@test "on 4 hosts, one, or two and one ranks each" {
	checked "n[1-4]" reductions moves async join mismatch late
	checked n1:2,n2:2,n3:1 reductions moves async join mismatch meet abort make counts sends
}
# bats test_tags=all
@test "random steps, and operations that no plan has, on 2 and 4 hosts" {
	PROGRAM=$HELPERS/plans
	checked "n[1-2]" random strangers
	checked "n1:2,n2:2" random
	checked "n[1-4]" random
}
@test "random programs on 2 and 3 hosts, with several ranks each" {
	local hosts
	for hosts in "n[1-2]" n1:2,n2:1 n1:3,n2:2 n1:2,n2:2,n3:3; do
		run r --no-tag -H "$hosts" "$HELPERS/programs" "$SEED" "$([ "${SAN:-}" ] && echo 3 || echo 8)" "${#hosts}"
		[[ $status = 0 && $output == *"programs: "*" checks"* ]] || { echo "$hosts: $output"; return 1; }
	done
}
# bats test_tags=all
@test "50 sets in flight, in another order on each rank; those that stand still have no thread" {
	checked "n[1-4]" idle
	checked n1:2,n2:1 idle
}
@test "a rank that leaves before anybody has a connection to it" {
	checked "n[1-2]" left
	checked "n[1-4]" left
	checked n1:2,n2:2 left
}
# bats test_tags=all
@test "on 16 hosts" { checked "n[1-16]" moves async mismatch; }

# bats test_tags=all
@test "connections that lose 2 % and delay by 3 ms" {
	"$VCLUSTER" netem n1 loss 2%
	"$VCLUSTER" netem n2 loss 2%
	"$VCLUSTER" netem n3 delay 3 > /dev/null 2>&1 3>&-
	checked "n[1-4]" mismatch late
	run -0 r --no-tag -H "n[1-4]" "$STEADY" 5
	[[ $output == *' sums' ]]
}

# Are the connections of the rank on n2 in NET, all?  It listens at one address, there.
uses() { # NET
	local lines
	lines=$(on n2 ss -tnpH state established | grep '"steady"') || return 1
	! grep -vF "${1%0.0/16}" <<< "$lines"
	lines=$(on n2 ss -tnpH state listening | grep '"steady"') || return 1
	[ "$(wc -l <<< "$lines")" = 1 ]
	[[ $lines == *" ${1%0.0/16}"[0-9.]*:* ]]
}

all_sum() { [ "$(grep -c '^begun$' "$T/out")" = 4 ]; }

use() { # NET VARIABLE...
	start --no-tag -H "n[1-4]" "${@:2}" "$STEADY" 60
	wait_for all_sum
	uses "$1"
	signal USR1
	ended_with 0 n1 n2 n3 n4
}

@test "two networks: --net says which; a range that no host has an address in is an error" {
	use 10.77.0.0/16 -x BERTH_NET=10.77.0.0/16
	use 10.78.0.0/16 --net 10.78.0.0/16
	run -3 r --no-tag -H "n[1-2]" -x BERTH_NET=192.0.2.0/24 "$STEADY" 1
	[[ $output == *'no interface has an address in '*'"192.0.2.0/24"'* ]]
}

# bats test_tags=all
@test "two networks: HOROVOD_GLOO_IFACE says which, where BERTH_NET does not" {
	use 10.77.0.0/16 -x HOROVOD_GLOO_IFACE=eth0
	use 10.78.0.0/16 --network-interfaces eth1,eth0
	use 10.77.0.0/16 -x HOROVOD_GLOO_IFACE=eth1 -x BERTH_NET=10.77.0.0/16
	run -3 r --no-tag -H "n[1-2]" -x HOROVOD_GLOO_IFACE=eth,eth10 "$STEADY" 1
	[[ $output == *'no interface of HOROVOD_GLOO_IFACE="eth,eth10" is up and has an address'* ]]
}

# bats test_tags=all
@test "a network that does not lead to the others: that is said, not that they have ended" {
	local h
	for h in n1 n2; do # as of containers, on every host
		on "$h" sh -c 'ip link add twin type bridge; ip addr add 172.30.0.1/16 dev twin; ip link set twin up'
	done
	run -3 r --no-tag -H "n[1-2]" -x BERTH_NET=172.30.0.0/16 "$STEADY" 1
	for h in n1 n2; do on "$h" ip link del twin; done
	[[ $output == *"rank 1 on 'n2' can't be reached at 172.30.0.1: Connection refused"* ]]
}

# bats test_tags=all
@test "strangers by the thousand at the listeners: the job is not harmed, and a late peer gets in" {
	crowded 2000 "$SEED"
}

# bats test_tags=all
@test "a host that is cut off for 3 s, and comes back" {
	start --no-tag -H "n[1-4]" "$STEADY" 60
	wait_for all_sum
	"$VCLUSTER" partition n2
	sleep 3 # how long it lasts
	"$VCLUSTER" partition heal
	signal USR1
	ended_with 0 n1 n2 n3 n4
	grep -q ' sums$' "$T/out" || { cat "$T/out"; false; }
}

@test "a rank that is killed in the middle is named by all others within a second" {
	local hosts
	for hosts in 2 4 $([ "${CHECK:-}" = user ] || echo 16); do
		lost_at "$hosts" $((SEED % hosts)) $((100 + SEED % 397))
	done
	all_clean n0 n1 n2 n3 n4
}

# bats test_tags=all
@test "a host without power: its rank is lost to the others, also those that it did not talk to" {
	start --no-tag -H "n[1-4]" --keep-going --host-timeout 6 "$STEADY" 60
	wait_for all_sum
	"$VCLUSTER" kill n3
	status_of_job 40
	"$VCLUSTER" boot n3
	[ "$(grep -c "^6 of 2 at .*rank 2 on 'n3' has ended" "$T/out")" = 3 ] || { cat "$T/out" "$T/err"; false; }
}
