#!/usr/bin/env bats
# limit_s: 200
# takes_s: 35
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the hosts' shells; bats sets output
# The CPUs and the memory of a job on each host, as agents that srun starts see them: hosts of 2
# sockets, 48 cores and 96 CPUs that they do not have, with true affinity masks and memory cgroups.
load jobs
load slurm

setup_file() {
	[ -n "$(why_no_slurm)" ] && return
	"$ROOT/tests/machines/mkmachine.py" "$BATS_FILE_TMPDIR" two-sockets-8gpu
	slurm_up 2 --xml "$BATS_FILE_TMPDIR/two-sockets-8gpu.xml" --task affinity,cgroup --constrain-memory \
		SchedulerType=sched/backfill SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
	mkdir -p "$STATE/t"
	script see <<- 'E'
		agent=$(pgrep -o -x berth-agent)
		group=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/$agent/cgroup)
		mask() { taskset -pc $1 | sed 's/.*: //'; }
		echo "$RANK on $(uname -n): agent $(mask $agent), rank $(mask $$), memory $(($(cat $group/../memory.limit_in_bytes) >> 20))"
	E
}

teardown_file() {
	cluster_down
}

setup() {
	need_slurm
	[ -d /sys/fs/cgroup/memory ] || skip 'no memory cgroups of version 1'
}

seen() { grep -E '^[0-9]+ on ' <<< "$output" | sort -n; }

@test "--cpus-per-task: an agent has all CPUs of the job there, a rank its part" {
	run -0 salloc -N2 --ntasks-per-node=2 --cpus-per-task=2 --mem=200 "$RUNNER" -q --no-tag sh /vc/t/see
	[ "$(seen)" = '0 on n1: agent 0,1,48,49, rank 0,48, memory 200
1 on n1: agent 0,1,48,49, rank 1,49, memory 200
2 on n2: agent 0,1,48,49, rank 0,48, memory 200
3 on n2: agent 0,1,48,49, rank 1,49, memory 200' ]
	run -0 salloc -N2 -n3 --cpus-per-task=4 --mem=200 "$RUNNER" -q --no-tag sh /vc/t/see
	[ "$(seen)" = '0 on n1: agent 0-3,48-51, rank 0,1,48,49, memory 200
1 on n1: agent 0-3,48-51, rank 2,3,50,51, memory 200
2 on n2: agent 0,1,48,49, rank 0,1,48,49, memory 200' ]
}

@test "two jobs on the same hosts: no CPU is in both" {
	submit -N2 --ntasks-per-node=1 --cpus-per-task=4 --mem=100 <<- 'E'
		#!/bin/bash
		touch /vc/t/has-cpus
		until [ -e /vc/t/go ]; do sleep 0.1; done
	E
	wait_for test -e "$STATE/t/has-cpus"
	run -0 salloc -N2 --ntasks-per-node=2 --cpus-per-task=2 --mem=100 "$RUNNER" -q --no-tag sh /vc/t/see
	touch "$STATE/t/go"
	wait_for job_gone
	[ "$(seen | grep -c 'agent 2,3,50,51, rank \(2,50\|3,51\), memory 100$')" = 4 ]
}

@test "--mem, --mem-per-cpu: the step has all memory of the job, also beside one that has all of it" {
	run -0 salloc -N2 -n3 --cpus-per-task=4 --mem-per-cpu=100 "$RUNNER" -q --no-tag sh /vc/t/see
	[ "$(seen | sed 's/agent.*memory/memory/' | xargs)" = '0 on n1: memory 800 1 on n1: memory 800 2 on n2: memory 400' ] || { echo "$output"; return 1; }
	run -0 salloc -N2 --ntasks-per-node=1 --mem=300 sh -c "srun --mem=300 sh -c 'touch /vc/t/has.\$(uname -n); until [ -e /vc/t/enough ]; do sleep 0.1; done' &
		until [ -e /vc/t/has.n1 ] && [ -e /vc/t/has.n2 ]; do sleep 0.1; done
		$RUNNER -q --no-tag sh /vc/t/see; touch /vc/t/enough; wait"
	[ "$(seen | grep -c 'memory 300$')" = 2 ]
}
