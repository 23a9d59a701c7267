#!/usr/bin/env bats
# limit_s: 300
# takes_s: 45
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the hosts' shells; bats sets output
# Agents that srun starts, where Slurm is set up otherwise: each test brings its own cluster.
load jobs
load slurm

setup() {
	need_slurm
	hosts=(n1 n2)
}

teardown() {
	cluster_down
}

up() { # OPTION...
	slurm_up 2 "$@"
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	mark_clean "${hosts[@]}"
}

# ---- MUNGE ----

warning='runner: agents call back without MUNGE (MUNGE: Socket communication error): a process that reads what srun sends can pose as an agent; to use ssh, --transport ssh'

@test "no MUNGE for runner: one line names ssh; the key is in clear, and no variable is" {
	up --munge-socket /run/munge/other.socket --proctrack cgroup SchedulerType=sched/backfill
	for user in alice root; do
		run -0 salloc -N2 -n3 "$RUNNER" --no-tag sh -c 'echo "rank $RANK on $(uname -n)"'
		[ "$(grep -c '^rank [0-2] on n[12]$' <<< "$output")" = 3 ]
		[ "$(grep -cxF "$warning" <<< "$output")" = 1 ] || { echo "$output"; return 1; }
	done
	user=alice
	run -0 salloc -N2 -n2 "$RUNNER" -q true
	silent_on 'without MUNGE'
	nobody_hears n1 n2
	[ "$(grep -cxF "$warning" "$STATE/t/out")" = 1 ]
	all_clean n1 n2
}

@test "MUNGE for runner, and none where agents start: the start fails, and says so" {
	up --munge-socket /run/munge/other.socket --proctrack cgroup SchedulerType=sched/backfill
	on n0 ln -s other.socket /run/munge/munge.socket.2
	run -240 salloc -N2 -n2 "$RUNNER" true
	says ' before the agent called: ' 'MUNGE: Socket communication error'
	hinted
	all_clean n1 n2
}

# ---- proctrack ----

start_saving() {
	rm -f "$STATE"/t/said.*
	submit -N2 -n4 --ntasks-per-node=2 <<- E
		#!/bin/bash
		exec $RUNNER --no-tag bash -c '$saving'
	E
	wait_for out_has 4 '^up '
}

# Each rank saved once, though it may have got TERM again before.
each_saved_once() {
	local rank
	for rank in 0 1 2 3; do
		[[ $(xargs < "$STATE/t/said.$rank") =~ ^TERM\ 1(\ TERM\ 2)?\ saved$ ]] || { head "$STATE"/t/said.*; return 1; }
	done
}

@test "proctrack/linuxproc: scancel lets ranks save, and nothing is left" {
	local flag
	up --proctrack linuxproc SchedulerType=sched/backfill
	for flag in '' '-s TERM'; do
		start_saving
		# shellcheck disable=SC2086 # no word or two
		on n0 scancel $flag "$id"
		job_ends_clean
		each_saved_once
	done
	start_saving
	on n0 scancel -s KILL "$id"
	job_ends_clean
}

@test "proctrack/pgid: scancel lets ranks save, and nothing is left" {
	local flag
	up --proctrack pgid SchedulerType=sched/backfill
	for flag in '' '-s TERM'; do
		start_saving
		# shellcheck disable=SC2086 # no word or two
		on n0 scancel $flag "$id"
		job_ends_clean
		each_saved 0 1 2 3
	done
	start_saving
	on n0 scancel -s KILL "$id"
	job_ends_clean
}
