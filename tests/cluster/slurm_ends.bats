#!/usr/bin/env bats
# limit_s: 300
# takes_s: 60
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the hosts' shells; bats sets output
# Agents that srun starts, on a real Slurm: the time limit; runner is killed between the starts of a
# job; programs of MPI.
load jobs
load slurm

setup_file() {
	slurm_up 3 --proctrack cgroup SchedulerType=sched/backfill \
		SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
}

teardown_file() {
	cluster_down
}

setup() {
	need_slurm
	hosts=(n1 n2 n3)
	rm -rf "$STATE"/t/*
	mark_clean "${hosts[@]}"
}

# An agent and its guardian that are killed at once leave their PMIx server's folder to the next one.
cleared() { # HOST...
	local host
	for host; do
		run -0 salloc -w "$host" "$RUNNER" sh -c true # only a program that may use MPI makes it look
	done
}

# Slurm looks every 30 s which jobs are past their limit.
@test "the time limit: each rank gets TERM once, and time to save; one that stays is killed; TIMEOUT" {
	submit -N2 -n4 --ntasks-per-node=2 <<- E
		#!/bin/bash
		exec $RUNNER --no-tag bash -c '[ \$RANK != 3 ] || { trap "" TERM; echo "up 3"; while :; do sleep 0.1; done; }
			$saving'
	E
	wait_for out_has 4 '^up '
	on n0 scontrol update JobId="$id" EndTime=now+1
	wait_for job_gone || wait_for job_gone
	job_is TIMEOUT
	each_saved 0 1 2
	wait_for none_runs n1 slurmstepd
	wait_for none_runs n2 slurmstepd
	cleared n1 n2
	job_ends_clean
}

# ---- runner is killed ----

# Ranks on n1 and n2, that start once more on n1 and n3 if n2 is lost.
start_restartable() {
	submit -N3 --ntasks-per-node=1 <<- E
		#!/bin/bash
		$RUNNER --no-tag --restarts 3 -np 2 -H n1,n2,n3 sh -c 'echo "up \$RANK \$(uname -n) \$TORCHELASTIC_RESTART_COUNT"; exec sleep 100'
		echo "status \$?"
		sleep 200
	E
	wait_for out_has 2 '^up [01] n[12] 0'
}

# While the job goes on: Slurm ends nothing.
runner_is_killed() {
	on n1 pkill -KILL -x runner
	wait_for out_has 1 '^status 137'
}

clean_beside_the_job() {
	all_clean "${hosts[@]}"
	wait_for none_runs n1 srun
	job_is RUNNING
	on n0 scancel "$id"
	job_ends_clean
}

@test "--restarts, and runner is killed: before a restart, in it and after it" {
	start_restartable
	runner_is_killed
	clean_beside_the_job
	start_restartable
	on n2 pkill -KILL -x berth-agent
	wait_for out_has 1 'n2: lost its agent'
	runner_is_killed
	cleared n2
	clean_beside_the_job
	start_restartable
	on n2 pkill -KILL -x berth-agent
	wait_for out_has 2 '^up [01] n[13] 1'
	runner_is_killed
	cleared n2
	clean_beside_the_job
}

# ---- other programs ----

# COMPILER: all ranks find each other.  MPICH 4 may hang in MPI_Finalize; mpi.bats says more.
says_hello() {
	local limit=30
	[ "$1" != mpicc.mpich ] || limit=8
	"$1" -o "$BATS_TEST_TMPDIR/hello" "$ROOT/examples/mpi_hello.c"
	cp "$BATS_TEST_TMPDIR/hello" "$STATE/t/hello.$1"
	for user in alice root; do
		run salloc -N2 --ntasks-per-node=2 timeout -k 5 $limit "$RUNNER" -q --no-tag "/vc/t/hello.$1"
		[[ $status = 0 || $status$1 = 124mpicc.mpich ]] || { echo "$output"; return 1; }
		[ "$(grep -c '^rank [0-3] of 4 on n[12]$' <<< "$output")" = 4 ] || { echo "$output"; return 1; }
		says 'the sum of all ranks is 6'
	done
	all_clean n1 n2
}

@test "Open MPI, on two hosts, as root and as another user" {
	command -v mpicc.openmpi > /dev/null || skip 'no Open MPI (tests/deps launchers installs it)'
	says_hello mpicc.openmpi
}

@test "MPICH, on two hosts, as root and as another user" {
	command -v mpicc.mpich > /dev/null || skip 'no MPICH (tests/deps launchers installs it)'
	says_hello mpicc.mpich
}
