#!/bin/bash
# spank.sh [MACHINE...]: srun --berth on each machine of tests/machines, and on those of
# BERTH_SHARED/topologies where it is set: a real Slurm, whose host seems to be that machine, with
# true affinity masks.  What the tasks of a step read back has to equal what `runner --plan` says.
# Steps of 1 task, of one for each GPU, and of one more; as root and as another user.
set -u
cd "$(dirname "$0")/../.." || exit
export BUILD=${BUILD:-$PWD/build} VC_NAME=${VC_NAME:-soak$$}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
V=tests/cluster/vcluster
S=${VC_STATE:-/run/vcluster-$VC_NAME}
folder=$BUILD/soak/machines
failed=0 steps=0

trap '$V down > /dev/null 2>&1' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

make -s BUILD="$BUILD" spank || exit
mkdir -p "$folder"
tests/machines/mkmachine.py "$folder" > /dev/null
stack=$folder/plugstack.conf
echo "optional $BUILD/lib/berth_spank.so topology=/vc/topo.xml agent=/usr/lib/berth/berth-agent" > "$stack"

planned() { # TASKS XML
	"$BUILD/bin/runner" --plan=json -np "$1" -H "n1:$1" --topology "$2" 2> /dev/null | /usr/bin/python3 -c 'import json, sys
for r in json.load(sys.stdin)["ranks"]:
    print(r["rank"], "none" if r.get("gpu_index") is None else r["gpu_index"], r["cpus"])' | pairs
}

# taskset(1) writes "2,3" where the plan has "2-3".
pairs() {
	/usr/bin/python3 -c 'import sys
for line in sys.stdin:
    rank, gpu, cpus = line.split()
    ends = [[int(x) for x in part.split("-")] for part in cpus.split(",")]
    print(rank, gpu, *sorted(c for e in ends for c in range(e[0], e[-1] + 1)))'
}

# shellcheck disable=SC2016 # for the tasks' shells
seen() { # USER TASKS GPUS
	local gpus=()
	[ "$3" = 0 ] || gpus=("--gpus-per-node=$3")
	"$V" exec -u "$1" n0 timeout -k 5 60 salloc -Q -N1 --exclusive "${gpus[@]}" \
		srun -Q -N1 -n "$2" --whole --overcommit --berth \
		sh -c 'echo "$RANK ${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-none}} $(taskset -pc $$ | sed "s/.*: //")"' \
		< /dev/null 2> /dev/null | sort -n | pairs
}

compare() { # USER TASKS GPUS XML
	local want got
	want=$(planned "$2" "$4" | sort -n)
	got=$(seen "$1" "$2" "$3")
	steps=$((steps + 1))
	[ -n "$want" ] && [ "$got" = "$want" ] && return
	failed=$((failed + 1))
	printf '%s, %s tasks of %s: planned\n%s\nseen\n%s\n' "$(basename "$4")" "$2" "$1" "$want" "$got"
	return 1
}

# slurm.conf has one number of cores for all sockets, and one of threads for all cores.  slurmd
# here sees the real machine, so it takes the CPUs of the other one for 0, 1, 2 and so on.
is_even() { # XML
	local sockets all
	sockets=$(hwloc-calc -i "$1" -N package root)
	all=$(hwloc-calc -i "$1" -N pu root)
	[ "$all" = $((sockets * $(hwloc-calc -i "$1" -N core package:0) * $(hwloc-calc -i "$1" -N pu core:0))) ] &&
		[ "$(hwloc-calc -i "$1" --physical-output -I pu root | tr , '\n' | sort -n | tail -1)" = $((all - 1)) ]
}

machine() { # XML
	local xml=$1 gpus word=equal
	if ! is_even "$xml"; then
		printf '%-34s skipped: uneven sockets or cores, or gaps between the numbers of CPUs\n' "$(basename "$xml")"
		return
	fi
	if ! tests/cluster/vslurm up 1 --xml "$xml" --plugstack "$stack" > "$folder/log" 2>&1; then
		printf '%-34s Slurm does not start: %s\n' "$(basename "$xml")" "$(tail -1 "$folder/log")"
		failed=$((failed + 1)) steps=$((steps + 1))
		tests/cluster/vslurm down > /dev/null 2>&1
		return
	fi
	$V exec n1 install -D -m 755 "$BUILD/bin/berth-agent" /usr/lib/berth/berth-agent
	gpus=$(grep -c Name=gpu "$S/slurm/gres.conf")
	compare alice 1 "$gpus" "$xml" || word=DIFFER
	if [ "$gpus" -gt 1 ]; then
		compare alice "$gpus" "$gpus" "$xml" || word=DIFFER
		compare root "$((gpus + 1))" "$gpus" "$xml" || word=DIFFER
	else
		compare root 3 "$gpus" "$xml" || word=DIFFER
	fi
	printf '%-34s %2d GPUs  %s\n' "$(basename "$xml")" "$gpus" "$word"
	tests/cluster/vslurm down > /dev/null 2>&1
}

if [ $# -gt 0 ]; then
	files=("${@/#/$folder/}")
	files=("${files[@]/%/.xml}")
else
	files=("$folder"/*.xml)
	[ -z "${BERTH_SHARED:-}" ] || files+=("$BERTH_SHARED"/topologies/*.xml)
fi
for xml in "${files[@]}"; do
	machine "$xml"
done
echo "$((steps - failed)) of $steps steps equal the plan"
[ "$failed" = 0 ]
