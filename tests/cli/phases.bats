#!/usr/bin/env bats
# limit_s: 240
# takes_s: 10
# shellcheck disable=SC2016,SC2154,SC2030,SC2031 # $ is for the ranks' shells; bats sets output
# What signals, losses and a lost reader lead to in each phase of a job; test_job_endings.c has
# the same without processes.
load common

said() { grep -q "$1" "$T/out" "$T/err" 2> /dev/null; }

start() { # arguments of runner
	: > "$T/out"
	env --default-signal "$RUNNER" --no-tag "$@" > "$T/out" 2> "$T/err" < /dev/null &
	pid=$!
}

teardown() {
	[ -z "${pid-}" ] || kill -KILL "$pid" 2> /dev/null || true
}

ended_with() {
	local status=0
	wait "$pid" || status=$?
	[ "$status" = "$1" ] || { echo "status $status, not $1"; cat "$T/out" "$T/err"; return 1; }
}

# An agent that begins once $T/go exists.
slow_agent() {
	printf '#!/bin/sh\ntouch %s/started\nuntil [ -e %s/go ]; do sleep 0.05; done\nexec %s "$@"\n' \
		"$T" "$T" "$AGENT" > "$T/slow"
	chmod +x "$T/slow"
}

state() { sed 's/.*) \(.\).*/\1/' "/proc/$1/stat"; }
gone() { ! kill -0 "$1" 2> /dev/null; }
agents_of() { pgrep -P "$1" -f berth-agent; }

@test "TERM in a resource manager's job, then the agent dies: the job ends" {
	SLURM_JOB_ID=1$$ start -np 2 bash -c 'trap "" TERM; echo ready; sleep 1000 & wait; wait'
	wait_for said ready
	kill -TERM "$pid"
	# shellcheck disable=SC2046 # pids
	kill -KILL $(agents_of "$pid")
	wait_for gone "$pid"
	ended_with 143
	none_left() { [ -z "$(alive_with "SLURM_JOB_ID=1$$")" ]; }
	wait_for none_left # the agent ends some ms after its ranks
}

@test "stderr's reader leaves before a restart: no further epoch runs" {
	mkfifo "$T/stderr"
	env --default-signal "$RUNNER" --restarts 3 -np 2 bash -c '
		[ $TORCHELASTIC_RESTART_COUNT = 0 ] || { sleep 1; echo end >> "$1"; exit 0; }
		[ $RANK = 1 ] && { until [ -e "$1" ]; do sleep 0.01; done; exit 3; }
		trap "until [ -e $1.go ]; do sleep 0.01; done; exit 1" TERM; : > "$1"; sleep 1000 & wait' \
		x "$T/seen" > "$T/out" 2> "$T/stderr" < /dev/null &
	pid=$!
	exec 5< "$T/stderr"
	# the report; the other rank holds the restart up.  A command of its shell would be ended
	# together with it, and the shell would say so first.
	read -r line <&5
	[[ $line != *' ranks share '* ]] || read -r line <&5
	[[ $line == *'exited with status 3'* ]] || { echo "it says: $line"; false; }
	exec 5<&-
	touch "$T/seen.go"
	wait_for gone "$pid"
	run ! grep end "$T/seen"
	ended_with 141
}

@test "TERM, HUP and INT before the first hello, without -np" {
	slow_agent
	for sig in TERM:143 HUP:129 INT:130; do
		rm -f "$T/started"
		start --launch-agent "$T/slow" true
		wait_for test -e "$T/started"
		kill "-${sig%:*}" "$pid"
		ended_with "${sig#*:}"
	done
	touch "$T/go"
}

@test "TERM each half second: the first one starts the grace, KILL comes" {
	start -np 1 --kill-grace 2 bash -c 'trap "" TERM; echo ready; sleep 1000 & wait; wait; wait; wait; wait; wait; wait'
	wait_for said ready
	for ((i = 0; i < 16; i++)); do
		kill -TERM "$pid" 2> /dev/null || break
		sleep 0.5
	done
	[ "$i" -lt 16 ]
	ended_with 143
}

@test "^Z before the ranks run: the time stopped does not count" {
	slow_agent
	start -np 2 --start-timeout 2 --launch-agent "$T/slow" echo well
	wait_for test -e "$T/started"
	kill -TSTP "$pid"
	is_stopped() { [ "$(state "$pid")" = T ]; }
	wait_for is_stopped
	sleep 3 # longer than --start-timeout and its half second
	kill -CONT "$pid"
	touch "$T/go"
	ended_with 0
	[ "$(grep -c well "$T/out")" = 2 ]
}

@test "^C while agents start: the end in half a second" {
	slow_agent
	start -np 2 --launch-agent "$T/slow" true
	wait_for test -e "$T/started"
	kill -INT "$pid"
	ended_with 130
	touch "$T/go"
}

@test "TERM between an end and its restart: no restart" {
	start -np 2 --restarts 3 --kill-grace 5 bash -c '
		[ $RANK = 1 ] && { until [ -e "$1" ]; do sleep 0.01; done; exit 3; }
		trap "echo asked; sleep 1; exit 1" TERM; touch "$1"; sleep 1000 & wait' x "$T/up"
	wait_for said asked
	kill -TERM "$pid"
	ended_with 143
	run ! said restart
}

@test "all hosts are lost, without and with --restarts: 241" {
	for n in 0 2; do
		start -np 2 --restarts $n bash -c 'echo ready; sleep 1000 & wait'
		wait_for said ready
		# shellcheck disable=SC2046 # pids
		kill -KILL $(agents_of "$pid")
		ended_with 241
		run ! said 'restart [0-9]'
	done
}
