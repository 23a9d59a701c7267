#!/usr/bin/env bats
# limit_s: 300
# takes_s: 7
# more: --check with an NCCL that hangs
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# The script for a machine with a GPU (tests/gpu/run.sh), on a stand-in of one, so that a GPU's time is
# not spent on the script's own mistakes.
load common

RUN="$BATS_TEST_DIRNAME/../gpu/run.sh"
export GPU_PROGRAM=$BUILD/gpu/gpu

teardown() {
	clean_standin
}

@test "each step of check-gpu passes on a stand-in of a GPU" {
	CHECK_GPU=standin run -0 "$RUN"
	[[ $output == *"16 steps, 0 of them not passed"* ]]
	[[ $output == *"operations as on the host"* && $output == *"a lost peer after"* ]]
}

@test "a step that fails, and one that hangs, are in the table and stop no other one" {
	CHECK_GPU=standin STANDIN_NCCL_FAIL=0:3:2 STEPS="sums cycles" run -1 "$RUN"
	[[ $output == *"sums             FAILED"* && $output == *"cycles           "* ]]
	CHECK_GPU=standin LIMIT_S=0 run -1 "$RUN"
	[[ $output == *"16 steps, 16 of them not passed"* && $output == *"no time is left"* ]]
}

@test "mistakes that the stand-in makes for the back end are found" {
	[ -z "${SAN:-}" ] || skip "the sanitizers report such a mistake, too"
	for mistake in ready moved order temp record streams host capture; do
		for ((seed = 1; seed <= 20; seed++)); do
			CHECK_GPU=standin STANDIN_DELAY_US=200 STANDIN_SEED=$seed STANDIN_MISTAKE=$mistake \
				STEPS="sums gradients captures" run "$RUN"
			[ "$status" = 0 ] || break
		done
		[[ $status = 1 && $output == *FAILED* ]] || { echo "$mistake: $output"; return 1; }
	done
}

@test "NCCL is that of BERTH_NCCL, of the loader, or of a wheel in a Python environment" {
	local wheel=$T/venv/lib/python3.11/site-packages/nvidia/nccl/lib there=$BUILD/standin
	local sums=("$GPU_PROGRAM" -np 2 -bytes 65536 sums)
	mkdir -p "$wheel" "$T/cuda" "$T/loader"
	ln -s "$there/libcuda.so.1" "$T/cuda"
	ln -s "$there/libnccl.so.2" "$T/loader"
	cp "$there/libnccl.so.2" "$wheel"
	export STANDIN_GPU=one STANDIN_DELAY_US=0 LD_LIBRARY_PATH=$T/cuda BERTH_DEVICE=nccl-only
	unset VIRTUAL_ENV CONDA_PREFIX
	run -1 "${sums[@]}"
	[[ $output == *"rank 0: no NCCL: neither the loader nor a Python environment"*"pip install nvidia-nccl-cu13"* ]]
	VIRTUAL_ENV=$T/venv run -0 "${sums[@]}"
	CONDA_PREFIX=$T/venv run -0 "${sums[@]}"
	LD_LIBRARY_PATH=$T/cuda:$T/loader run -0 "${sums[@]}"
	BERTH_NCCL=$wheel/libnccl.so.2 run -0 "${sums[@]}"
	VIRTUAL_ENV=$T/venv BERTH_NCCL=$T/none.so run -1 "${sums[@]}"
	[[ $output == *"rank 0: BERTH_NCCL: $T/none.so: "* ]]
}

# bats test_tags=all
@test "the steps of PyTorch pass on a stand-in of a GPU" {
	[ -e "$ROOT/build/venv/installed" ] || skip "no build/venv (make venv)"
	CHECK_GPU=standin GPU_PYTHON=$ROOT/build/venv/bin/python3 STANDIN_TENSORS=1 STANDIN_UNIFIED=1 STEPS="torch-alone torch" \
		run -0 "$RUN"
	[[ $output == *"1 ranks: 35 collectives"*"2 ranks: 35 collectives"*"2 steps, 0 of them not passed"* ]]
}

# What --check says of NCCL for PROGRAM, as a rank that is given OPTIONs would meet it: with a GPU, of which only
# the files of its driver are there.
nccl() { # VERDICT TEXT [OPTION...] PROGRAM...
	local verdict=$1 text=$2 line; shift 2
	run -0 "$ROOT/tests/machines/withtree" "$T/tree" timeout -k 5 30 "$RUNNER" --check -np 1 "$@" < /dev/null
	line=$(grep ' nccl ' <<< "$output")
	[[ $line == "$verdict "*": $text"* ]] || { printf 'not %s: %s\nsaid: %s\n' "$verdict" "$text" "$output"; return 1; }
}

@test "--check: which NCCL libberth finds in a rank" {
	[ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null || skip "needs a mount namespace"
	local wheel=$T/venv/lib/python3.11/site-packages/nvidia/nccl/lib by_host="arrays in GPU memory go through the host's memory"
	unset VIRTUAL_ENV CONDA_PREFIX
	/usr/bin/python3 "$ROOT/tests/machines/mktree.py" "$T/tree" nvidia,0000:53:00.0,minor=0,numa=0,cpus=0-1
	mkdir -p "$T/loader" "$wheel" "$T/venv/bin"
	gcc -shared -fPIC -Wl,-soname,libnccl.so.2 -o "$T/loader/libnccl.so.2" -xc - <<- 'C'
		#include <stdlib.h>
		__attribute__((constructor)) static void load(void) { if (getenv("CRASHES")) abort(); }
		int ncclGetVersion(int *v) { *v = atoi(getenv("VERSION")); return 0; }
	C
	cp "$T/loader/libnccl.so.2" "$wheel"
	export VERSION=22105
	nccl note "none: $by_host" true
	says 'hint: install NCCL 2.18 or later there'
	nccl ok 2.21.5 -x LD_LIBRARY_PATH="$T/loader" true
	nccl note "2.7.8, older than 2.18: $by_host" -x VIRTUAL_ENV="$T/venv" -x VERSION=2708 true
	nccl warn "$T/none.so: cannot open" -x BERTH_NCCL="$T/none.so" -x VIRTUAL_ENV="$T/venv" true
	says 'hint: libberth meets the same in each rank'
	nccl warn "the library ended the process that loaded it" -x LD_LIBRARY_PATH="$T/loader" -x CRASHES=1 true
	# a program that loads its own: that counts
	echo "import ctypes; ctypes.CDLL('$T/loader/libnccl.so.2')" > "$T/loads.py"
	echo 'import loads' > "$T/train.py"
	nccl ok 2.21.5 -x BERTH_NCCL="$T/none.so" /usr/bin/python3 "$T/train.py"
}

# bats test_tags=all
@test "--check: an NCCL that hangs is ended after --start-timeout" {
	[ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null || skip "needs a mount namespace"
	/usr/bin/python3 "$ROOT/tests/machines/mktree.py" "$T/tree" nvidia,0000:53:00.0,minor=0,numa=0,cpus=0-1
	gcc -shared -fPIC -o "$T/hangs.so" -xc - <<- 'C'
		#include <unistd.h>
		__attribute__((constructor)) static void load(void) { for (;;) pause(); }
	C
	nccl warn "the library did not answer in time (--start-timeout)" --start-timeout 2 -x BERTH_NCCL="$T/hangs.so" true
	[ -z "$(alive_with "BERTH_NCCL=$T/hangs.so")" ]
}

@test "without a GPU it says so, and is skipped" {
	run -77 env -u CHECK_GPU "$RUN"
	[[ $output == "skipped: no "* || $output == "skipped: "*"driver"* ]]
}
