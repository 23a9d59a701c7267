#!/usr/bin/env bats
# limit_s: 900
# takes_s: 28
# more: ends, and 3 ranks, each of which imports PyTorch
# alone: PyTorch takes all cores while ranks import it, and other suites measure times
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# lib/python/berth/torch: its tests with the ranks of runner, and ends that only a launcher's test can see.
load common

PYTHON=$ROOT/build/venv/bin/python3
TESTS=$ROOT/lib/python/tests/pytorch

setup() {
	export OMP_NUM_THREADS=1
	export PYTHONPATH=$ROOT/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	[ -e "$ROOT/build/venv/installed" ] || skip "no build/venv (make venv)"
}

# All ranks have passed all tests of FILES.
tested() { # NP FILE...
	# shellcheck disable=SC2153 # of common.bash
	run timeout -k 5 280 "$RUNNER" -q --no-tag --oversubscribe -np "$1" -x PYTHONPATH -x PYTHONDONTWRITEBYTECODE \
		-x BERTH_LIBRARY -x BERTH_DEVICE -x LD_LIBRARY_PATH -x 'STANDIN_*' "$PYTHON" -m pytest -q -p no:cacheprovider "${@:2}"
	[ "$status $(grep -c '^[0-9]* passed' <<< "$output")" = "0 $1" ] || { echo "$output"; return 1; }
}

@test "berth.torch, with 2 ranks" { tested 2 "$TESTS" --ignore-glob='*process_group*'; }

# Tensors stand for those of a GPU, in a stand-in of one below libberth (conftest.py).
on_stand_in() { # NP FILE...
	export LD_LIBRARY_PATH=$BUILD/standin STANDIN_TENSORS=1 STANDIN_UNIFIED=1
	tested "$@"
}

teardown() {
	clean_standin
}

@test "collectives on a stand-in of a GPU, with 2 ranks" {
	on_stand_in 2 -k 'alltoall or gather or sparse or scales or reducescatter or broadcast' "$TESTS/test_collectives.py"
}

# bats test_tags=all
@test "berth.torch on a stand-in of a GPU, by NCCL and by the host" {
	on_stand_in 2 "$TESTS" --ignore-glob='*process_group*'
	BERTH_DEVICE=host on_stand_in 2 "$TESTS" --ignore-glob='*process_group*'
	on_stand_in 3 "$TESTS/test_collectives.py"
	on_stand_in 2 "$TESTS/test_process_group.py"
	on_stand_in 2 "$TESTS/test_process_group_training.py"
	BERTH_DEVICE=host on_stand_in 3 "$TESTS/test_process_group.py"
	STANDIN_MISTAKE=streams run on_stand_in 2 -x "$TESTS/test_collectives.py"
	# its streams do not wait for all works, and that is seen
	[[ $status != 0 && $output == *"test_allreduce_is_what_numpy_says"* ]]
}

@test "the backend of torch.distributed, with 2 ranks" {
	tested 2 "$TESTS/test_process_group.py"
	tested 2 "$TESTS/test_process_group_training.py" # not with it: torch's store has one port in a process
}

@test "each public name is in its reference, with an example that runs" {
	export REFERENCE=$BUILD/man/berth.torch.3
	make -s -C "$ROOT" "${REFERENCE#"$ROOT"/}"
	run -0 timeout -k 5 280 "$PYTHON" -m pytest -q -p no:cacheprovider "$ROOT/lib/python/tests/test_reference.py"
}

# bats test_tags=all
@test "how the backend begins and ends, by runner, torchrun and neither" {
	run -0 timeout -k 5 280 "$PYTHON" -m pytest -q -p no:cacheprovider "$TESTS/test_process_group_ends.py"
}

# bats test_tags=all
@test "its collectives, alone" { tested 1 "$TESTS/test_collectives.py"; }

# bats test_tags=all
@test "its collectives, with 3 ranks" { tested 3 "$TESTS/test_collectives.py"; }

# bats test_tags=all
@test "a rank dies: the others get HorovodInternalError" {
	cat > "$T/dies.py" <<- 'P'
		import os, signal, sys, time
		import torch
		import berth.torch as hvd
		hvd.init()
		hvd.barrier()
		if hvd.rank() == 1:
		    os.kill(os.getpid(), signal.SIGKILL)
		began = time.monotonic()
		try:
		    if sys.argv[1] == "blocks":
		        hvd.allreduce(torch.ones(3))
		    else:
		        hvd.synchronize(hvd.allreduce_async(torch.ones(3), name="w"))
		except hvd.HorovodInternalError as e:
		    print("told in time" if time.monotonic() - began < 2 else "told late", e)
	P
	for way in blocks submits; do
		run -137 timeout -k 5 60 "$RUNNER" -q --no-tag --oversubscribe --keep-going -np 3 "$PYTHON" "$T/dies.py" $way
		[ "$(grep -c 'told in time.*rank 1 on .* has ended' <<< "$output")" = 2 ] || { echo "$output"; false; }
	done
}

# bats test_tags=all
@test "^C raises KeyboardInterrupt in each rank" {
	cat > "$T/waits.py" <<- 'P'
		import time
		import torch
		import berth.torch as hvd
		hvd.init()
		hvd.barrier()
		print("waits", flush=True)
		try:
		    if hvd.rank() == 0:
		        hvd.allreduce(torch.ones(3), name="w")
		    elif hvd.rank() == 1:
		        hvd.synchronize(hvd.allreduce_async(torch.ones(3), name="w"))
		    else:
		        time.sleep(60)  # they wait for this one
		except KeyboardInterrupt:
		    print("interrupted", flush=True)
	P
	coproc timeout -k 5 60 "$RUNNER" -q --no-tag --oversubscribe -np 3 "$PYTHON" "$T/waits.py" 2>&1
	local runner=$COPROC_PID line pid out=
	for _ in 1 2 3; do read -r line <&"${COPROC[0]}"; [ "$line" = waits ]; done
	pid=$(pgrep -P "$runner") # timeout has started it by now
	kill -INT "$pid"
	while read -r line; do out+=$line$'\n'; done <&"${COPROC[0]}"
	[ "$(grep -c '^interrupted$' <<< "$out")" = 3 ] || { echo "$out"; false; }
}
