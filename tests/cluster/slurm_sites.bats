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
	say_slurm
	cluster_down
}

up() { # OPTION...
	slurm_up 2 "$@"
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	mark_clean "${hosts[@]}"
}

# ---- MUNGE ----

warning='runner: agents call back without MUNGE (MUNGE: .*): a process that reads what srun sends can pose as an agent, or as runner; to use ssh, --transport ssh'

# Slurm without MUNGE, on these hosts: one munged has to stop for each.
up_without_munge() { # HOST...
	local host
	up --proctrack cgroup SchedulerType=sched/backfill AuthType=auth/none CryptoType=crypto/none
	for host; do
		on "$host" sh -c 'kill $(pgrep -x munged); while pgrep -x munged > /dev/null; do sleep 0.05; done'
	done
}

@test "no MUNGE: one line names ssh, with -q too; the key is in clear, and no variable is" {
	up_without_munge n0 n1 n2
	for user in alice root; do
		run -0 salloc -N2 -n3 "$RUNNER" --no-tag sh -c 'echo "rank $RANK on $(uname -n)"'
		[ "$(grep -c '^rank [0-2] on n[12]$' <<< "$output")" = 3 ]
		[ "$(grep -cx "$warning" <<< "$output")" = 1 ] || { echo "$output"; return 1; }
	done
	user=alice
	run -0 salloc -N2 -n2 "$RUNNER" -q true
	[ "$(grep -cx "$warning" <<< "$output")" = 1 ]
	nobody_hears n1 n2
	[ "$(grep -cx "$warning" "$STATE/t/out")" = 1 ]
	all_clean n1 n2
}

@test "MUNGE for runner, and none where agents start: the start fails, and says so" {
	up_without_munge n1 n2
	run -240 salloc -N2 -n2 "$RUNNER" true
	says ' before the agent called: ' 'cannot call runner: MUNGE: '
	silent_on 'without MUNGE'
	hinted
	all_clean n1 n2
}

@test "munged at the socket of AuthInfo is asked; a munged that has stopped is an error" {
	up --munge-socket /run/munge/other.socket --proctrack cgroup SchedulerType=sched/backfill
	run -0 salloc -N2 -n2 "$RUNNER" --no-tag sh -c 'tr "\0" " " < /proc/$PPID/cmdline; echo'
	[ "$(grep -c -- 'berth-agent --connect=munge:/run/munge/other.socket' <<< "$output")" = 2 ] || { echo "$output"; return 1; }
	silent_on 'without MUNGE'
	user=root
	submit -N2 -n2 <<- E
		#!/bin/bash
		kill \$(pgrep -x munged); while pgrep -x munged; do sleep 0.05; done
		$RUNNER true; echo status \$?
	E
	wait_for out_has 1 '^status'
	run -0 cat "$STATE/t/out"
	says 'runner: cannot make a credential for the agents: MUNGE: ' 'other.socket' 'status 240'
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
