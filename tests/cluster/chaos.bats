#!/usr/bin/env bats
# limit_s: 400
# takes_s: 75
# all: 60 s of chaos; faults has each fault alone
# shellcheck disable=SC2016,SC2154 # awk's $; bats sets status and output
# A minute of random jobs and faults on 2 hosts, from SEED; chaos.py says what is checked.
load jobs

setup() {
	need_cluster
}

teardown() {
	cluster_down
}

# A busy machine does this to a host for seconds: here rank and agent are held by hand.
@test "an agent that got no turn while its ranks had none to die in does not give them up" {
	local box=/sys/fs/cgroup/freezer/$VC_NAME/n1/box n1 p
	[ -d /sys/fs/cgroup/freezer ] || skip "no freezer cgroup (v1) here"
	cluster_up 1
	mark_clean n0 n1
	start -H n1 sleep 1000
	wait_for on n1 pgrep -x sleep
	mkdir "$box"
	n1=$(awk '$1 == "n1" {print $2}' "$STATE/pids")
	for p in $(pgrep -x sleep); do
		[ "$(readlink "/proc/$p/ns/pid")" != "$(readlink "/proc/$n1/ns/pid")" ] || echo "$p" > "$box/cgroup.procs"
	done
	echo FROZEN > "$box/freezer.state"
	signal INT
	wait_for grep -q 'again ends them now' "$T/err" # or the two may come as one
	signal INT
	wait_for grep -q 'ending 1 rank now' "$T/err"
	sleep 0.5
	on n1 pkill -STOP -x berth-agent
	sleep 5
	on n1 pkill -CONT -x berth-agent
	sleep 0.2
	echo THAWED > "$box/freezer.state"
	status_of_job 20
	cat "$T/err"
	[ "$status" = 130 ]
	run ! grep 'could not be killed' "$T/err"
	all_clean n0 n1
	rmdir "$box"
}

@test "60 s of chaos: right statuses, right causes, nothing left" {
	# soaks have the time to name a fault; here a busy machine may stand still for some of it
	NAME_MS=10000 HOSTS=2 run "$ROOT/tests/cluster/chaos.sh" 60 "${SEED:-1}" 3>&-
	echo "$output"
	[ "$status" = 0 ]
	[[ $output == *' jobs, 0 with a violation'* ]]
}
