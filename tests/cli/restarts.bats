#!/usr/bin/env bats
# limit_s: 240
# takes_s: 8
# more: restarts by time, and of libberth's ranks
# shellcheck disable=SC2001,SC2016,SC2154 # $ is for the ranks' shells; bats sets output
# --restarts N on one machine: all ranks start again, and what must end the job ends it.
load common

setup() {
	cat > "$T/fails_until" <<- 'E' # EPOCH
		echo "epoch $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS port $MASTER_PORT"
		[ "$TORCHELASTIC_RESTART_COUNT" -lt "$1" ] || exit 0
		said=$0.$TORCHELASTIC_RESTART_COUNT
		: > "$said.$RANK"
		for ((rank = 0; RANK == 1 && rank < WORLD_SIZE; rank++)); do
			until [ -e "$said.$rank" ]; do :; done
		done
		[ "$RANK" = 1 ] && exit 3
		setsid sleep 1000 &
		sleep 1000
	E
}

r() { timeout -k 5 30 "$RUNNER" --no-tag "$@" < /dev/null 2> "$T/err"; }

@test "all ranks start again, with a new count and a new port, until they do well" {
	run -0 r -x "MARK=$T" --restarts 3 -np 3 bash "$T/fails_until" 2
	for epoch in 0 1 2; do
		[ "$(grep -c "^epoch $epoch of 3" <<< "$output")" = 3 ]
	done
	[ "$(sed 's/.*port //' <<< "$output" | sort -u | wc -l)" = 3 ]
	[ "$(grep -c '^runner: rank 1 .*exited with status 3' "$T/err")" = 2 ]
	grep -q '^runner: restart 2 of 3: 3 ranks on 1 host$' "$T/err"
	[ -z "$(alive_with "MARK=$T")" ]
}

@test "--tf-config: each start has new ports" {
	run -0 r --tf-config --restarts 1 -np 2 sh -c 'echo "$TF_CONFIG"; exit $((1 - TORCHELASTIC_RESTART_COUNT))'
	ports=$(grep -o '127.0.0.1:[0-9]*' <<< "$output" | sort | uniq -c)
	[ "$(wc -l <<< "$ports")" = 4 ] || { echo "$output"; false; }
}

@test "when there are no more restarts, the last failure's status stands" {
	run -3 r --restarts 2 -np 2 bash "$T/fails_until" 9
	says 'epoch 2 of 2'
	[ "$(grep -c '^runner: restart' "$T/err")" = 2 ]
}

# bats test_tags=all
@test "N/TIME: restarts that are long over do not count" {
	run -0 r --restarts 2/1s -np 1 sh -c 'sleep 0.55; exit $((TORCHELASTIC_RESTART_COUNT < 3))'
	grep -q '^runner: restart 3, at most 2 in 1 s: 1 rank on 1 host$' "$T/err"
	run -3 r --restarts 2/1h -np 1 sh -c 'exit 3'
	[ "$(grep -c '^runner: restart' "$T/err")" = 2 ]
	run -2 r --restarts 2/0 -np 1 true
	run -2 r --restarts 2/ -np 1 true
}

@test "%e: each start has files of its own" {
	run -3 r --restarts 1 --output-filename "$T/log/%e" -np 2 bash "$T/fails_until" 9
	grep -q '^epoch 0 ' "$T/log/1/rank.0/stdout"
	grep -q '^epoch 1 ' "$T/log/2/rank.1/stdout"
	[ "$(wc -l < "$T/log/1/rank.0/stdout")" = 1 ]
}

@test "%e: one rank that starts again alone, then all" {
	cat > "$T/lives" <<- 'EOF'
		echo "rank $BERTH_RANK"
		mkdir "$1/$BERTH_RANK" 2> /dev/null || exec mkdir "$1/again"
		[ "$BERTH_RANK" = 0 ] || exit 3
		until [ -d "$1/again" ]; do sleep 0.05; done
	EOF
	mkdir "$T/ran"
	run -0 r --restarts 1 --replace alone --output-filename "$T/log/%r.%e" -np 2 bash "$T/lives" "$T/ran"
	[ "$(cd "$T/log" && printf '%s ' *)" = "0.1 0.1.err 1.1 1.1.err 1.2 1.2.err " ]
	[ "$(cat "$T/log/1.1" "$T/log/1.2")" = $'rank 1\nrank 1' ]
	# the files of an earlier run are moved, rank by rank
	rm -r "$T/ran"/*
	run -0 r --restarts 1 --replace alone --output-filename "$T/log/%r.%e" -np 2 bash "$T/lives" "$T/ran"
	[ -e "$T/log/1.2.1" ]
}

@test "no failure, no restart; 0 is none" {
	run -0 r --restarts 5 -np 2 sh -c 'echo here'
	[ "$output" = $'here\nhere' ]
	run -3 r --restarts 0 -np 2 bash "$T/fails_until" 1
	silent_on 'epoch 1'
}

@test "torchrun's name for it" {
	run -0 r --max_restarts=1 -np 2 bash "$T/fails_until" 1
}

@test "a program that is not there is not tried again" {
	run -127 r --restarts 3 -np 2 "$T/nothing"
	run ! grep 'runner: restart' "$T/err"
}

@test "a time limit ends the job, in whichever epoch" {
	run -124 r --restarts 1000000 --timeout 6 -np 2 bash "$T/fails_until" 1000000
	grep -q 'runner: restart' "$T/err"
}

@test "TERM ends the job and is no failure to restart after" {
	env --default-signal "$RUNNER" --restarts 5 -np 2 sh -c 'echo here; sleep 1000' > "$T/out" 2> "$T/err" < /dev/null &
	pid=$!
	wait_for grep -q here "$T/out"
	kill -TERM $pid
	status=0
	wait $pid || status=$?
	[ $status = 143 ]
	run ! grep 'runner: restart' "$T/err"
}

@test "--keep-going: after the last rank has ended" {
	run -0 r --restarts 1 --keep-going -np 2 sh -c '
		[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
		[ $RANK = 0 ] && exit 4
		sleep 0.3; echo finished'
	[ "$output" = finished ]
}

# The second line of stdin comes in the second epoch.
# shellcheck disable=SC2094 # read while it is written is the point
fed() {
	"$@" 2> "$T/err" < <(echo a; wait_for grep -q 'runner: restart' "$T/err"; echo b)
}

@test "stdin goes on where it was, and has an end in every epoch" {
	seq 5 > "$T/in"
	run -0 "$RUNNER" --no-tag --restarts 1 -np 2 sh -c '
		[ $RANK$TORCHELASTIC_RESTART_COUNT != 10 ] || exec sleep 1000
		cat; exit $((1 - TORCHELASTIC_RESTART_COUNT))' < "$T/in"
	[ "$(grep -c '^[1-5]$' <<< "$output")" = 5 ]
	: > "$T/err"
	run -0 fed "$RUNNER" --no-tag --restarts 1 --stdin all -np 2 sh -c '
		[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec cat
		read -r first; echo "first $first"; exit 1'
	says 'first a' b
}

@test "output of all epochs is in the files; the report shows the last epoch's stderr" {
	run -5 r --restarts 1 --output-filename "$T/log" -np 2 sh -c '
		echo "out $TORCHELASTIC_RESTART_COUNT"; echo "why $TORCHELASTIC_RESTART_COUNT" >&2
		[ $RANK = 0 ] || exit 5; sleep 1000'
	[ "$(cat "$T/log/rank.1/stdout")" = $'out 0\nout 1' ]
	sed -n '/restart 1 of 1/,$p' "$T/err" > "$T/last"
	grep -q '  | why 1' "$T/last"
	run ! grep '  | why 0' "$T/last"
}

@test "lines stay whole in the second epoch as well" {
	run -0 r --restarts 1 -np 2 sh -c '
		[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1
		printf one-; sleep 0.3; printf line-; sleep 0.3; echo "$RANK"'
	[ "$(sort <<< "$output")" = $'one-line-0\none-line-1' ]
}

@test "--events tells of the restart" {
	run -0 r --events "$T/events" --restarts 2 -np 2 bash "$T/fails_until" 1
	grep -q '"event": *"restart".*"epoch": *2' "$T/events"
}

# Rank 1 fails twice, with children behind it and a line without an end.
fails_alone() {
	cat > "$T/fails_alone" <<- 'E'
		echo "rank $RANK life $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT"
		if [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" -lt 2 ]; then
			setsid sleep 1000 &
			sleep 1000 &
			printf 'no end'
			exit 3
		elif [ "$RANK" = 1 ]; then
			pgrep -fx 'sleep 1000' | while read -r pid; do
				tr '\0' '\n' < "/proc/$pid/environ" | grep -qxF "MARK=$MARK" && echo "pid $pid is left"
			done
			touch "$0.done"
		else
			until [ -e "$0.done" ]; do sleep 0.05; done
		fi
	E
}

@test "--replace alone: the others go on, and nothing of the rank's last life is left" {
	fails_alone
	run -0 r --tag-style short --tag -x "MARK=$T" --oversubscribe --restarts 2 --replace alone -np 3 bash "$T/fails_alone"
	[ "$(grep -c '^\[[02]\] rank . life 0' <<< "$output")" = 2 ]
	[ "$(grep -c '^\[1\] rank 1 life [012]' <<< "$output")" = 3 ]
	[ "$(grep -c '^\[1\] no end$' <<< "$output")" = 2 ]
	[ "$(sed -n 's/.*port //p' <<< "$output" | sort -u | wc -l)" = 1 ]
	silent_on 'is left'
	[ "$(grep -c '^runner: rank 1 .*exited with status 3$' "$T/err")" = 2 ]
	grep -qx '  it starts again: restart 2 of 2' "$T/err"
	[ -z "$(alive_with "MARK=$T")" ]
}

@test "--replace alone: without a restart left the job ends; ^C and stdin work as ever" {
	fails_alone
	run -3 r --restarts 1 --replace alone -np 2 bash "$T/fails_alone"
	grep -q 'the other rank will be ended' "$T/err"
	run -0 "$RUNNER" -q --no-tag --restarts 1 --replace alone -np 1 \
		sh -c 'read -r line; echo "$line"; exit $((1 - TORCHELASTIC_RESTART_COUNT))' <<< $'one\ntwo'
	says one
}

# bats test_tags=all
@test "--replace alone: ranks of libberth all start again" {
	printf '%s\n' 'import os, berth' 'berth.init()' 'life = os.environ["TORCHELASTIC_RESTART_COUNT"]' \
		'print("rank", berth.rank(), "life", life, flush=True)' \
		'if berth.rank() == 1 and life == "0": os._exit(3)' 'berth.shutdown()' > "$T/joins.py"
	run -0 r --restarts 1 --replace alone -x "PYTHONPATH=$ROOT/lib/python" -x "BERTH_LIBRARY=$BUILD/lib/libberth.so" \
		-np 2 python3 "$T/joins.py"
	[ "$(grep -c 'life 1' <<< "$output")" = 2 ]
	grep -q '^runner: restart 1 of 1: 2 ranks on 1 host$' "$T/err"
}
