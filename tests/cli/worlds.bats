#!/usr/bin/env bats
# limit_s: 300
# takes_s: 12
# more: fifty worlds in place of ten
# Worlds that follow each other in the same processes: tests/helpers/worlds.c says what is checked.
# SEED (random, printed) decides all of them.
load common

setup() {
	export SEED=${SEED:-$((RANDOM + 1))}
	echo "SEED=$SEED"
}

worlds() { # N KILLED [OPTION]
	run -0 timeout -k 5 120 "$BUILD/helpers/worlds" -n "$1" -s "$SEED" "${@:3}"
	says "$1 worlds, seed $SEED: $2 killed"
}

@test "ten worlds, grown, shrunk and renumbered, with calls in other threads, leave nothing" { worlds 10 0; }

@test "as many in which ranks are killed, and others come" { worlds 10 2 -k; }

# bats test_tags=all
@test "fifty worlds" { worlds 50 0; }

# bats test_tags=all
@test "fifty worlds, with kills" { worlds 50 10 -k; }

@test "a change that fails leaves a process without a world, until the next one" {
	run -0 timeout -k 5 20 "$BUILD/helpers/worlds" -f < /dev/null
	says "changes that fail: fine"
}

@test "ranks of a job go on without those that were killed, or have ended" {
	run "$RUNNER" --no-tag --keep-going -np 6 "$BUILD/helpers/changes" "$SEED"
	says "5 ranks after" "4 ranks after" "3 ranks after" "2 ranks after"
	run "$RUNNER" --no-tag --keep-going -np 4 "$BUILD/helpers/changes" "$SEED" exits
	says "3 ranks after" "2 ranks after"
	run "$RUNNER" --no-tag --keep-going -np 6 "$BUILD/helpers/changes" "$SEED" during
	says "4 ranks after" "2 ranks after"
}

@test "a rank that does not call berth_change() is named after a minute of its clock" {
	run env BERTH_OP_TIMEOUT=1 timeout -k 5 90 "$RUNNER" --no-tag --keep-going -np 3 \
		"$BUILD/helpers/changes" 1 late
	says "rank 1 did not call berth_change() in 6"
}
