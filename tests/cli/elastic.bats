#!/usr/bin/env bats
# limit_s: 240
# takes_s: 1
# more: more kills, in the change of others, too
# shellcheck disable=SC2154 # bats sets output
# Ranks that start again while the others go on, and join them: tests/helpers/elastic.c trains, and
# compares what it computed with an undisturbed training.
load common

trains() { # OPTION... : ELASTIC_ARGUMENT...
	local options=()
	while [ "$1" != : ]; do options+=("$1"); shift; done
	run -0 timeout -k 5 60 "$RUNNER" --no-tag --oversubscribe --restarts 20 "${options[@]}" "$BUILD/helpers/elastic" "$2" "$3" all "${@:4}" < /dev/null
	says "$(grep -o -- '-np [0-9]*' <<< "${options[*]}" | cut -d ' ' -f 2) ranks, "
	silent_on " ranks on "
}

@test "one is killed: the others do its work, and then it is back" {
	trains --events "$T/events" -np 4 : 20 0 2@10
	says "rank 2 on '" "was ended by SIGKILL" "it starts again: restart 1 of 20" "rank 2 is back after " ": 4 ranks" \
		"rank 2 came at step "
	grep -q '"event": "rank starts again", "rank": 2, "life": 2, "text": "rank 2 on ' "$T/events"
	grep -q '"event": "rank is back", "rank": 2, "life": 2, "ranks": 4}' "$T/events"
}

@test "rank 0: another one takes its place, and it comes last" {
	trains -np 3 : 20 0 0@5
	says "rank 0 came at step "
}

@test "in an operation, two at once, one after the other, in the change, before its next world" {
	trains -np 4 : 30 0 1@3+
	trains -np 4 : 30 0 1@3 2@3
	trains -np 5 : 40 1 0@2 1@4 2@6 3@8 4@10
	trains -np 4 : 30 0 1@3 2@3c
	trains -np 4 : 30 0 1@3 1@0i
}

@test "all of them, and the only one" {
	trains -np 2 : 20 0 0@5 1@5
	trains -np 1 : 20 0 0@5
	says "rank 0 came at step 0" # nobody had what it had computed
}

@test "with --replace all, all ranks start again" {
	run -0 timeout -k 5 60 "$RUNNER" --no-tag --restarts 3 --replace all -np 3 "$BUILD/helpers/elastic" 20 0 1@10 < /dev/null
	says "restart 1 of 3: 3 ranks on 1 host" "3 ranks, 20 steps"
	silent_on "is back"
}

@test "no restart is left: the others are ended" {
	run -137 timeout -k 5 60 "$RUNNER" --no-tag --restarts 1 -np 3 "$BUILD/helpers/elastic" 2000 1 1@10 2@20 < /dev/null
	says "rank 1 is back" "rank 2 on '" "was ended by SIGKILL"
}

@test "--keep-going without restarts: the others finish without it" {
	run -137 timeout -k 5 60 "$RUNNER" --no-tag --keep-going -np 3 "$BUILD/helpers/elastic" 20 0 1@10 < /dev/null
	says "2 ranks, 20 steps"
}

@test "a rank that is killed at the end of the work does not begin it anew" {
	run timeout -k 5 60 "$RUNNER" --no-tag --restarts 3 -np 3 "$BUILD/helpers/elastic" 20 0 1@19+ < /dev/null
	[ "$status" = 0 ]
	says " ranks, 20 steps"
	[ "$(grep -c ' ranks, 20 steps' <<< "$output")" = 1 ]
}

@test "the others go on before a rank that dies has ended" {
	trains -np 4 : 30 5 times 1@10z
	says "rank 1 came at step "
	awk '/rank 1 dies/ { died = $1 } /rank 0 goes on, of 3/ && died && $1 - died < 1500 { soon = 1 } END { exit !soon }' <<< "$output"
	# it ends once the work is done
	run -0 timeout -k 5 60 "$RUNNER" --no-tag --restarts 20 -np 3 "$BUILD/helpers/elastic" 20 0 1@10z < /dev/null
	says "2 ranks, 20 steps"
}

@test "a child that dies, a thread that ends and exec are no death" {
	trains -np 3 : 20 0 1@5f 2@7f
	silent_on "it starts again"
	trains -np 3 : 20 5 times 1@5e
	says "rank 1 execs" "rank 1 on '" "exited with status 9" "rank 1 came at step "
	awk '/execs/ { began = $1 } /goes on, of 2/ && $1 - began < 450 { exit 1 }' <<< "$output"
}

# bats test_tags=all
@test "the others go on while the kernel frees 1 GB of a rank that was killed" {
	trains -np 4 : 30 10 times mb=1024 2@10
	says "rank 0 goes on, of 3" "rank 2 came at step "
}

# bats test_tags=all
@test "200 kills of random ranks, some in the change of others" {
	run -0 timeout -k 5 120 python3 "$ROOT/tests/soak/elastic.py" "$RUNNER" "$BUILD/helpers/elastic" --kills 200 --ranks 5 \
		--gap 0.005-0.05 --seed "${SEED:-$RANDOM}"
	says "200 kills" "status 0"
}
