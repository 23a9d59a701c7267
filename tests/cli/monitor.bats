#!/usr/bin/env bats
# limit_s: 240
# takes_s: 9
# shellcheck disable=SC2016,SC2154 # $ is for the ranks' shells; bats sets output
# --monitor: what ranks use, and what the verdict says of it (tests/helpers/steps.c).
load common

STEPS=$ROOT/build/helpers/steps

@test "--monitor names the slow rank, and why: it waits for something else" {
	run -0 --separate-stderr "$RUNNER" -np 2 --monitor 0.3 "$STEPS" 3 2 lock 1 60
	[[ $stderr == *"SLOW RANK: rank 1 on "*": others wait for it "*" ms of each step of "* ]]
	[[ $stderr == *"; it waited outside of libberth "*"Try: look at what it reads"* ]]
}

# bats test_tags=all
@test "--monitor names the slow rank, and why: it computes longer" {
	run -0 --separate-stderr "$RUNNER" -np 2 --monitor 0.3 "$STEPS" 3 2 work 0 40
	[[ $stderr == *"SLOW RANK: rank 0 on "*"; it computes "*"Try: give it less work"* ]]
}

@test "--summary names the slow rank without samples, as text and as JSON" {
	run -0 --separate-stderr "$RUNNER" -np 2 --summary "$STEPS" 2.5 2 lock 1 40
	[[ $stderr == *"SLOW RANK: rank 1 on "*"Try: --monitor shows why" ]]
	run -0 --separate-stderr "$RUNNER" -np 2 --summary=json "$STEPS" 2.5 2 lock 1 40
	/usr/bin/python3 - "$stderr" <<- 'P'
		import json
		import sys
		(found,) = json.loads(sys.argv[1].splitlines()[-1])["verdict"]
		assert found["rule"] == "SLOW RANK" and found["ranks"] == [1] and found["gain"] > 0.3, found
	P
}

# bats test_tags=all
@test "--monitor names a rank that is slower than before, and since when" {
	local try
	for try in 1 2 3; do # other processes may slow the other rank
		run -0 --separate-stderr "$RUNNER" -np 2 --monitor 0.2 "$STEPS" 8 2 later 1 20
		[[ $stderr == *"SLOW"*" RANK: rank 1 on "*"before for the last "[234].?" s"* ]] && return
		echo "$try: $stderr"
	done
	false
}

# bats test_tags=all
@test "ranks that left their CPUs are named" {
	(($(nproc) > 1)) || skip "one CPU"
	run -0 --separate-stderr "$RUNNER" -np 2 --bind-to none --monitor 0.3 "$STEPS" 3 2 moved 1 0
	[[ $stderr == *"BINDING: rank 1 on "*": the program changed its CPUs, from "* ]]
}

# bats test_tags=all
@test "a program that does not use libberth is sampled, too; without --monitor nothing is said" {
	run -0 --separate-stderr "$RUNNER" -np 2 --monitor 0.5 bash -c 'sleep 3'
	[[ $stderr == *"verdict: nothing to improve was found" ]]
	run -0 --separate-stderr "$RUNNER" -np 2 "$STEPS" 1 2 lock 1 20
	no_stderr
	run -0 --separate-stderr "$RUNNER" -np 2 --monitor off "$STEPS" 1 2 lock 1 20
	no_stderr
}

# bats test_tags=all
@test "^\\ prints what each rank uses" {
	env --default-signal "$RUNNER" -np 2 --monitor 0.2 --events "$T/events" "$STEPS" 60 2 lock 1 20 \
		> "$T/out" 2> "$T/err" 3>&- &
	until grep -qs '"rank started"' "$T/events"; do sleep 0.05; done # before, ^\ ends it
	until [ "$(grep -c 'GiB' "$T/err")" -ge 1 ]; do
		kill -QUIT $!
		sleep 0.3
	done
	kill -INT $!
	wait $! || [ $? = 130 ]
	grep -q '^runner: 2/2 up' "$T/err"
	grep -qE '^ +1 +[0-9-]+ +[0-9-]+ ' "$T/err"
}

@test "--top shows a table below the output; q removes it, and the job goes on" {
	/usr/bin/python3 -c 'import pyte' 2> /dev/null || skip "no pyte (tests/deps check installs it)"
	export TERM=xterm
	mkfifo "$T/steps" "$T/answers"
	/usr/bin/python3 "$ROOT/tests/helpers/terminal.py" env --default-signal "$RUNNER" -np 2 --top \
		--monitor 0.2 bash -c 'until [ -e "$0" ]; do sleep 0.1; done; head -c1 | wc -c' "$T/go" \
		< "$T/steps" > "$T/answers" 2>&1 3>&- &
	exec 5> "$T/steps" 6< "$T/answers"
	t() {
		printf '%s\n' "$*" >&5
		read -r -t 70 answer <&6 || answer='no answer'
		[[ $answer == ok* ]] || { echo "$*: $answer"; return 1; }
	}
	t wait 'loaders%'
	t send 'q'
	t wait 'runner: 2/2 up, cpu '
	until t rows && [[ $answer != *loaders* ]]; do sleep 0.1; done
	touch "$T/go"
	t row '[1]<stdout>:0'
	t end
	exec 5>&- 6<&-
}

# bats test_tags=all
@test "the ledger keeps how fast a command was, for two runners at a time, and nothing of its text" {
	export XDG_STATE_HOME=$T/state
	local ledger=$T/state/berth/ledger pids=() pid
	mkdir -p "$T/held/berth" "$T/other"
	: > "$T/held/berth/ledger"
	"$RUNNER" -np 1 "$STEPS" 10.8 20 none 0 0 3>&- &
	pids+=($!)
	"$RUNNER" -np 2 "$STEPS" 10.8 20 none 0 0 3>&- &
	pids+=($!)
	"$RUNNER" -np 1 "$STEPS" 3 20 none 0 0 3>&- & # too short
	pids+=($!)
	XDG_STATE_HOME=$T/held flock "$T/held/berth/ledger" "$RUNNER" -np 1 "$STEPS" 10.8 20 none 0 0 3>&- &
	pids+=($!)
	XDG_STATE_HOME=$T/other "$RUNNER" --no-ledger -np 1 "$STEPS" 10.8 20 none 0 0 3>&- &
	pids+=($!)
	for pid in "${pids[@]}"; do wait "$pid"; done
	[ "$(cut -d' ' -f2 "$ledger" | sort)" = $'1\n2' ]
	[ "$(cut -d' ' -f1 "$ledger" | sort -u | wc -l)" = 1 ]
	run ! grep -E 'steps|none' "$ledger"
	[ "$(stat -c %a "$ledger")" = 600 ]
	[ ! -s "$T/held/berth/ledger" ]
	[ ! -e "$T/other/berth" ]
}

@test "a time that is none is an error" {
	run -2 "$RUNNER" --monitor soon true
	[[ $output == *soon* ]]
}

@test "samples that the agent of a slow runner drops are counted" {
	local pid
	env --default-signal "$RUNNER" -np 1 --monitor 0.1 --summary=json --report "$T/job.json" \
		sh -c 'sleep 0.5; touch "$0"; timeout 1.5 yes; touch "$1"; sleep 1' "$T/go" "$T/end" \
		> /dev/null 2> "$T/err" 3>&- &
	pid=$!
	wait_for test -e "$T/go"
	kill -STOP $pid
	sleep 1
	kill -CONT $pid
	wait $pid
	/usr/bin/python3 - "$T/err" "$T/job.json" <<- 'P'
		import json
		import re
		import sys
		told = json.loads(open(sys.argv[1]).read().splitlines()[-2])["missing"]
		assert re.fullmatch(r"host '.*' lagged: \d+ samples of \d+ are missing", told), told
		job = json.load(open(sys.argv[2]))
		assert job["missing"] == told and job["hosts"][0]["samples_dropped"] > 0, job["hosts"]
	P
}
