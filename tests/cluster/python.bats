#!/usr/bin/env bats
# limit_s: 300
# takes_s: 40
# all: imports PyTorch 8 times; cli/examples does so on one host
# alone: PyTorch takes all cores while ranks import it, and other suites measure times
# shellcheck disable=SC2154 # bats sets output
# The examples in Python over libberth, on 2 hosts.
load jobs

setup_file() {
	cluster_up 2
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	[ -e "$ROOT/build/venv/installed" ] || skip "no PyTorch in build/venv (make venv)"
}

example() { # NAME OPTION...
	run r -q --no-tag --oversubscribe -H n0,n1 -x PYTHONPATH="$ROOT/lib/python" -x PYTHONDONTWRITEBYTECODE=1 \
		-x BERTH_LIBRARY="$BUILD/lib/libberth.so" -x OMP_NUM_THREADS=1 "$PYTHON" "$ROOT/examples/$1.py" "${@:2}"
	[ "$status" = 0 ] || { echo "$* ended with $status: $output"; return 1; }
}

@test "the examples in Python, on 2 hosts" {
	example pytorch_digits --no-cuda --epochs 3
	says "epoch 3 loss"
	[[ $(grep -o 'accuracy [0-9.]*' <<< "$output" | tail -1) > "accuracy 0.8" ]]
	example pytorch_synthetic_benchmark --no-cuda --batch-size 4 --num-iters 2
	says "total img/sec on 2 CPU(s): "
	for name in ddp_berth fsdp_berth; do
		example $name --epochs 4
		[[ $(grep -o 'accuracy [0-9.]*' <<< "$output" | tail -1) > "accuracy 0.8" ]]
	done
}
