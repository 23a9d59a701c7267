#!/usr/bin/env bats
# limit_s: 300
# takes_s: 52
# more: ends that take seconds, 300 cycles, each call that waits
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# Operations on the memory of a device, by NCCL's back end: a stand-in of one GPU in each rank
# (tests/standin) is its libcuda and libnccl.  Random programs with it are in programs.bats.
load common

DEVICES=$BUILD/helpers/devices

teardown() {
	clean_standin
}

does() { # [OPTION VALUE]... CASE
	run timeout -k 5 60 "$DEVICES" "$@"
	[ "$status" = 0 ] || { echo "$*: status $status: $output"; return 1; }
}

@test "training steps: fused, in a plan, in two sets, on streams" {
	for seed in 1 2 3; do
		STANDIN_SEED=$seed does -np 2 steps
	done
	does -np 3 steps
	does -np 4 -hosts 2 steps
	STANDIN_DELAY_US=0 does -np 2 steps
	does -np 2 streams
	BERTH_DEVICE=host does -np 2 streams
}

@test "host and device memory in one set: in one request; a difference names both sides" {
	does -np 3 mix
	does -np 2 differ
	does -np 3 differ
	does -np 4 -hosts 2 differ
}

@test "host memory on some ranks and a device's on others: all go through the host's" {
	does -np 3 mixed
	[[ $output == *"rank 0 says: allreduce "*": some ranks have it in GPU memory and others in the host's"* ]]
	BERTH_DEVICE=nccl-only does -np 2 mixed-refused
	does -np 2 die-mixed-here
}

# bats test_tags=all
@test "memories that differ: more ranks and hosts, and a rank that dies" {
	does -np 2 mixed
	does -np 4 -hosts 2 mixed
	BERTH_DEVICE=host does -np 3 mixed
	for case in die-mixed-there die-mixed-here; do
		does -np 2 "$case"
		does -np 3 "$case"
		does -np 4 -hosts 2 "$case"
	done
}

# bats test_tags=all
@test "memories that differ, and a stream that is late: all ranks are told of the deadline" {
	for hosts in "2 1" "3 1" "4 2"; do
		does -np "${hosts% *}" -hosts "${hosts#* }" time-out-mixed
		BERTH_DEVICE=host does -np "${hosts% *}" -hosts "${hosts#* }" time-out-mixed
		BERTH_DEVICE=host does -np "${hosts% *}" -hosts "${hosts#* }" time-out-staged
	done
}

@test "messages of a device's memory keep their order, and wait for their streams" {
	does -np 1 messages
	does -np 2 messages
	does -np 4 -hosts 2 messages
	does -np 2 -hosts 2 messages-late
	STANDIN_MISTAKE="done" run -1 timeout -k 5 60 "$DEVICES" -np 2 messages
	BERTH_DEVICE=nccl-only does -np 2 messages-refused
}

@test "sets that wait for each other in a circle" {
	does -np 3 cross
	does -np 3 -hosts 3 cross
}

@test "a rank that has joined: zeros, ones, and what goes by the host" {
	does -np 3 join
	BERTH_DEVICE=host does -np 3 join
	BERTH_DEVICE=host does -np 4 -hosts 2 join
}

@test "what NCCL can't do is refused by all ranks alike, where a user wants nothing else" {
	export BERTH_DEVICE=nccl-only
	STANDIN_GPU=one does -np 3 refused
	does -np 3 lacks
	does -np 3 join
	does -np 2 versions
	STANDIN_DRIVER=11030 does -np 3 too-old
	STANDIN_DRIVER=11040 does -np 2 steps # by the first form of cuGetProcAddress()
}

@test "BERTH_DEVICE=host: all operations go through the host's memory" {
	export BERTH_DEVICE=host
	for case in steps mix in-place odd adasum busy shut-down; do
		does -np 2 "$case"
		[[ $output != *"go through the host"* ]] # as the user wants it
		does -np 4 -hosts 2 "$case"
	done
	does -np 3 cross
	does -np 1 steps
	STANDIN_DELAY_US=0 does -np 2 large
	echo "# $output" >&3
}

@test "where NCCL can't, arrays go through the host's memory, and one rank says why" {
	goes() { # VARIABLE=VALUE WHY
		run env "$1" timeout -k 5 60 "$DEVICES" -np 3 steps
		[ "$status" = 0 ] && [ "$(grep -c "through the host's memory" <<< "$output")" -ge 1 ]
		[[ $output == *"rank 0 says: arrays in GPU memory go through the host's memory, in the set of rank 0 on 'host0': "*"$2"* ]]
	}
	goes STANDIN_GPU=one "ranks 0 and 1 share GPU 0000:17:00.0, which NCCL can't (NCCL 2.18.0, driver of CUDA 12.0)"
	goes STANDIN_BUS=1 "ranks 0 and 1 share GPU 0000:17:00.0"
	STANDIN_MISTAKE=join-fails does -np 3 steps # the others do not wait for it
	[[ $output == *"go through the host's memory"*"can't be joined: "* ]]
	for np in 1 2; do
		does -np $np told
		[[ $output == "arrays in GPU memory: by NCCL 2.18.0 of /"* ]]
		BERTH_DEVICE=host does -np $np told
		[ "$output" = "arrays in GPU memory: through the host's memory, as BERTH_DEVICE says" ]
	done
	STANDIN_GPU=one does -np 2 told
	[[ $output == *"arrays in GPU memory: through the host's memory: the ranks' devices can't be joined: ranks 0 and 1"* ]]
	does -np 2 odd # NCCL can all but some operations
	[[ $output != *says:* ]]
	does -np 2 adasum
	does -np 4 -hosts 2 odd
}

# bats test_tags=all
@test "by the host: a rank that dies, is late, aborts, or leaves" {
	export BERTH_DEVICE=host
	for case in die-before die-in-kernel abort leave part remove; do
		does -np 4 -hosts 2 "$case"
	done
	does -np 2 die-submitted
	does -np 2 time-out
}

@test "arrays in place" {
	does -np 2 in-place
	does -np 3 in-place
}

@test "the kernel in the library is that of its source, and each chip takes it" {
	local chip to=$BATS_TEST_TMPDIR
	command -v nvcc ptxas > /dev/null || skip "no nvcc"
	[[ $(nvcc --version) == *"release 13.0"* ]] || skip "another nvcc than the one that made it"
	lib/backend/move_ptx.sh "$to"
	diff "$to/move_ptx.h" lib/backend/move_ptx.h
	for chip in $(nvcc --list-gpu-code); do
		ptxas -arch="$chip" -o /dev/null "$to/move.ptx"
	done
}

@test "ranks agree on a work in 1 us alone and 2.5 us by two, before their device gets it" {
	[ -z "${SAN:-}" ] || skip "of sanitizers everything takes longer"
	agrees() { # NP MOST_NS; on a busy machine the median says little
		STANDIN_DELAY_US=0 does -np "$1" agree
		echo "$1: $output"
		[[ $output =~ tenth\ ([0-9]+)\ ns ]] && [ "${BASH_REMATCH[1]}" -le "$2" ]
	}
	wait_for agrees 1 1000
	wait_for agrees 2 2500
}

@test "a communicator that fails on one rank ends the set on all" {
	STANDIN_NCCL_FAIL=0:3:2 does -np 3 fail
	STANDIN_NCCL_FAIL=0:3:2 does -np 4 -hosts 2 fail
}

@test "between hosts NCCL does not encrypt: it is not used where all is to be encrypted, unless the user allows it" {
	local why="rank 0: BERTH_NET_SECURE=aead, and NCCL does not encrypt (BERTH_NCCL_CLEAR=1 allows it)"
	local clear="NCCL neither authenticates nor encrypts what it sends between hosts"
	export BERTH_NET_SECURE=aead
	does -np 2 -hosts 2 steps
	[[ $output == *"go through the host's memory"*"$why"* ]]
	BERTH_DEVICE=nccl-only run -1 "$DEVICES" -np 2 -hosts 2 steps
	[[ $output == *"$why"* ]]
	BERTH_NCCL_CLEAR=1 does -np 2 -hosts 2 steps
	[[ $output == *"$clear"* ]]
	does -np 2 steps # of one host
	[[ $output != *says:* ]]
	BERTH_NET_SECURE=mac does -np 2 -hosts 2 steps
	[[ $output == *"rank 0 says: $clear"* ]]
	unset BERTH_NET_SECURE
	does -np 2 -hosts 2 steps
	[[ $output != *says:* ]]
}

@test "a rank that dies: before its kernel, and in it" {
	for case in die-joining die-launching die-before die-in-kernel die-submitted; do
		does -np 3 "$case"
		does -np 2 -hosts 2 "$case"
		does -np 4 -hosts 2 "$case"
	done
	STANDIN_MISTAKE=abort-hangs does -np 3 die-in-kernel
	[[ $output == *"says: what was to end the operations on the device hangs: their arrays stay in use"* ]]
}

@test "a rank that is late, one that aborts, one that leaves" {
	does -np 2 busy
	for case in abort leave remove; do
		does -np 2 "$case"
		does -np 4 -hosts 2 "$case"
	done
	does -np 3 -hosts 2 time-out
}

@test "in a training step the host waits for the GPU in no call; what a world had there ends with it" {
	does -np 2 -times 20 waits
	does -np 2 -times 10 cycles
}

# bats test_tags=all
@test "200 steps without a call that waits for the GPU; one that is planted, of each kind, is named" {
	local mistake
	local -A names=([sync]=cuStreamSynchronize [alloc]=cuMemAlloc [free]=cuMemFree [host-alloc]=cuMemHostAlloc
		[register]=cuMemHostRegister [module]=cuModuleLoadData [pageable]="cuMemcpyAsync with pageable memory"
		[query]="cuEventQuery of one event for 20 us")
	for np in 1 2 3; do
		does -np $np -times 200 waits
	done
	does -np 4 -hosts 2 -times 200 waits
	does -np 2 -hosts 2 -times 200 waits
	BERTH_DEVICE=host does -np 2 -times 200 waits
	echo "# $output" >&3
	for mistake in "${!names[@]}"; do
		STANDIN_MISTAKE=wait-$mistake run timeout -k 5 60 "$DEVICES" -np 2 -times 20 waits
		echo "$mistake: status $status: $output"
		[[ $status = 1 && $output == *": ${names[$mistake]}"*" times in 20 steps"* ]]
	done
}

# bats test_tags=all
@test "300 inits and shutdowns leave no handle, byte of the device, thread or descriptor" {
	for np in 1 2; do
		does -np $np -times 300 cycles
		echo "# np $np: $output" >&3
	done
	does -np 2 -hosts 2 -times 100 cycles
}

@test "what a stream waits for is done when the library ends" {
	does -np 3 shut-down
}

# bats test_tags=all
@test "a rank that leaves two sets gives up what runs for both" {
	does -np 2 leave-two
	does -np 3 -hosts 3 leave-two
}

@test "a rank leaves its world with operations in flight" {
	does -np 2 part
	does -np 3 part
	does -np 4 -hosts 2 part
}

# Each on some of the seeds at least, where nothing but the timing hides it.
@test "each mistake of a back end is found" {
	for mistake in ready "done" streams record host order count pointer thread moved temp:in-place wait:in-place destroy:remove; do
		case=steps
		[[ $mistake != *:* ]] || case=${mistake#*:}
		for ((seed = 1; seed <= 12; seed++)); do
			# the host's read of a device's memory kills, and is no finding of ASan's
			ASAN_OPTIONS=${ASAN_OPTIONS-}:handle_segv=0 STANDIN_MISTAKE=${mistake%:*} \
				STANDIN_SEED=$seed timeout -k 5 60 "$DEVICES" -np 2 "$case" &> /dev/null || break
		done
		echo "$mistake: the seed $seed finds it"
		[ "$seed" -le 12 ]
	done
}
