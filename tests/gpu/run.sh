#!/bin/bash
# run.sh: what NCCL's back end does on the GPU of this machine, step by step: `make check-gpu`, or in
# an unpacked `make gpu-pack`, which needs neither network nor compiler.
#
# Each step has a limit of time, prints a line, and stops no other one.  A table comes last.  The whole
# ends after LIMIT_S seconds (560).  Without a GPU it says so, and exits with 77.  Else it exits with 0
# if each step has passed.
#
#   CHECK_GPU=standin      on the stand-in of a GPU (tests/standin): `make check` does so
#   STEPS="facts sums"     only these
#   GPU_PROGRAM=FILE       the program, if it does not lie beside this file, nor in build/gpu
#   GPU_PYTHON=FILE        the Python that has torch: python3, but none on a stand-in
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=${GPU_PROGRAM:-$here/gpu}
[ -x "$program" ] || program=$here/../../build/gpu/gpu
[ -x "$program" ] || { echo "run.sh: no $program: make gpu-pack builds it" >&2; exit 2; }
limit=$((${LIMIT_S:-560} * ${SLOW:-1}))
bytes=$((64 << 20)) times=100 python=${GPU_PYTHON:-python3} SECONDS=0 failed=0 table=()

if [ "${CHECK_GPU:-}" = standin ]; then
	standin=$(cd "$(dirname "$program")/../standin" && pwd) || exit
	export LD_LIBRARY_PATH=$standin STANDIN_GPU=one STANDIN_DELAY_US=${STANDIN_DELAY_US:-0}
	bytes=$((1 << 20)) times=20 python=${GPU_PYTHON:-}
elif ! ldconfig -p 2> /dev/null | grep -q 'libnccl\.so\.2'; then
	# the wheel's, with which torch comes
	nccl=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")' 2> /dev/null) &&
		export LD_LIBRARY_PATH=$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# Run a step of the program for at most SECONDS.
step() { # NAME SECONDS ARGUMENT...
	command_step "$1" "$2" "$program" "${@:3}"
}

# Run torch_steps.py with NP ranks of runner.
torch_step() { # NAME SECONDS NP
	local base=$here package=$here/python library
	if [ ! -d "$package" ]; then
		base=$here/../../build package=$here/../../lib/python
	fi
	if [ -z "$python" ] || ! "$python" -c 'import torch' 2> /dev/null; then
		echo "$1: skipped: no torch"
		return
	fi
	library=$(echo "$base"/lib/libberth.so.*)
	PYTHONPATH=$package BERTH_LIBRARY=$library BERTH_DEVICE=nccl \
		command_step "$1" "$2" "$base/bin/runner" -q --no-tag --oversubscribe -np "$3" -x PYTHONPATH \
		-x BERTH_LIBRARY -x BERTH_DEVICE -x LD_LIBRARY_PATH -x 'STANDIN_*' "$python" "$here/torch_steps.py"
}

# Sums by the oldest NCCL that the library takes: of the pack, or of the stand-in.
oldest_step() { # NAME SECONDS
	local to=${standin:-}
	[[ " ${STEPS:-$1} " == *" $1 "* ]] || return 0
	if [ -z "$to" ]; then
		[ -e "$here/oldest.xz" ] || { echo "$1: skipped: it is not in the pack"; return; }
		to=$(mktemp -d) || return
		python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' "$here/oldest.xz" "$to/libnccl.so.2"
	fi
	BERTH_NCCL=$to/libnccl.so.2 step "$1" "$2" -np 2 -bytes "$bytes" sums
	[ -n "${standin:-}" ] || rm -r "$to"
}

command_step() { # NAME SECONDS COMMAND...
	local name=$1 most=$(($2 * ${SLOW:-1})) left=$((limit - SECONDS)) begun=$SECONDS said status=0; shift 2
	[[ " ${STEPS:-$name} " == *" $name "* ]] || return 0
	[ "$left" -gt 0 ] || { note "$name" "left out" "no time is left" 0; return; }
	[ "$most" -lt "$left" ] || most=$left
	said=$(timeout -k 5 "$most" "$@" 2>&1) || status=$?
	said=$(tail -n 3 <<< "$said" | tr '\n' ' ')
	case $status in
	0) note "$name" passed "$said" $((SECONDS - begun)) ;;
	77) echo "skipped: $said"; exit 77 ;;
	124 | 137) note "$name" FAILED "ran past $most s: $said" $((SECONDS - begun)) ;;
	*) note "$name" FAILED "status $status: $said" $((SECONDS - begun)) ;;
	esac
}

note() { # NAME WHAT SAID SECONDS
	[ "$2" = passed ] || failed=$((failed + 1))
	echo "$1: $2: $3"
	table+=("$(printf '%-16s %-8s %4d s  %s' "$1" "$2" "$4" "$3")")
}

export BERTH_DEVICE=nccl-only # what NCCL can't is to be seen
step facts 20 facts
step alone 40 -np 1 -bytes "$bytes" sums
step sums 60 -np 2 -bytes "$bytes" sums
step captures 40 -np 2 captures
step gradients 60 -np 2 -bytes "$bytes" gradients
step operations 120 -np 2 -bytes "$bytes" operations
BERTH_DEVICE=host step staged-sums 60 -np 2 -bytes "$bytes" sums
BERTH_DEVICE=host step staged-all 120 -np 2 -bytes "$bytes" operations
step dies-joining 40 -np 2 -bytes "$bytes" dies-joining
step dies-running 40 -np 2 -bytes "$bytes" dies-running
step cycles 90 -np 2 -times "$times" cycles
STANDIN_BLOCKING=1 step raw 60 -np 2 -bytes "$bytes" raw
for seed in 1 2 3; do
	BERTH_DEVICE=nccl command_step "programs-$seed" 40 "${program%/*}/programs" -np 2 -devices 1 "$seed" 4
done
oldest_step oldest 60
torch_step torch-alone 60 1
torch_step torch 90 2

echo
printf '%s\n' "${table[@]}"
echo "${#table[@]} steps, $failed of them not passed, in $SECONDS s"
[ "$failed" = 0 ]
