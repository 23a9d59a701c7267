#!/usr/bin/env bats
# limit_s: 300
# takes_s: 6
# The script for a machine with a GPU (tests/gpu/run.sh), on a stand-in of one, so that a GPU's time is
# not spent on the script's own mistakes.
load common

RUN="$BATS_TEST_DIRNAME/../gpu/run.sh"
export GPU_PROGRAM=$BUILD/gpu/gpu

teardown() {
	rm -f /dev/shm/standin-*
}

@test "each step of check-gpu passes on a stand-in of a GPU" {
	CHECK_GPU=standin run -0 "$RUN"
	[[ $output == *"8 steps, 0 of them not passed"* ]]
	[[ $output == *"operations as on the host"* && $output == *"a lost peer after"* ]]
}

@test "a step that fails, and one that hangs, are in the table and stop no other one" {
	CHECK_GPU=standin STANDIN_NCCL_FAIL=0:3:2 STEPS="sums cycles" run -1 "$RUN"
	[[ $output == *"sums             FAILED"* && $output == *"cycles           "* ]]
	CHECK_GPU=standin LIMIT_S=0 run -1 "$RUN"
	[[ $output == *"8 steps, 8 of them not passed"* && $output == *"no time is left"* ]]
}

@test "mistakes that the stand-in makes for the back end are found" {
	[ -z "${SAN:-}" ] || skip "the sanitizers report such a mistake, too"
	for mistake in ready moved order temp record streams host; do
		for ((seed = 1; seed <= 20; seed++)); do
			CHECK_GPU=standin STANDIN_DELAY_US=200 STANDIN_SEED=$seed STANDIN_MISTAKE=$mistake \
				STEPS="sums gradients" run "$RUN"
			[ "$status" = 0 ] || break
		done
		[[ $status = 1 && $output == *FAILED* ]] || { echo "$mistake: $output"; return 1; }
	done
}

@test "without a GPU it says so, and is skipped" {
	run -77 env -u CHECK_GPU "$RUN"
	[[ $output == "skipped: no "* || $output == "skipped: "*"driver"* ]]
}
