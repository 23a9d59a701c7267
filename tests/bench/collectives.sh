#!/bin/bash
# collectives.sh [-r ROUNDS] [PART...]: allreduce between ranks of this machine, f32 sums, against
# every MPI that is here: Open MPI 4.1.4 and MPICH 4.0.2 (Debian), Open MPI 5 and MPICH 5
# (tests/bench/peers.sh), each at its defaults; beside them Open MPI 4 with ob1 and no CMA.
# Parts: small (8 B-8 KiB), middle (32 KiB-8 MiB), large (128 MiB), heap (128 MiB in memory that all
# ranks map, against the memory's own limit), four (4 ranks, Open MPI yielding), and, if named, many
# (3, 8, 16 and 32 ranks, 8 B-1 MiB, the same).
# 7 rounds are some 5 minutes.  The rows go to build/bench/collectives.csv.  UNDER: words in front of
# every rank's program, ours and the peers', on a machine that others use ("nice -n -20").  LEAST=1
# takes the least batch of each row instead of the median.
set -eu
. "$(dirname "$0")/common.bash"
rounds=7
read -r -a under <<< "${UNDER:-}"
while getopts r: option; do
	case $option in r) rounds=$OPTARG ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- small middle large heap four
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
bin=$BUILD/bench/collectives
rows=$BUILD/bench/collectives.csv
mkdir -p "$BUILD/bench"
: > "$rows"

# ---- the programs ----

compile=(-O2 -std=c11 -D_GNU_SOURCE "$BENCH/collectives.c")
library_tool collectives

mpis=()
mpi() { # NAME MPICC MPIRUN
	if command -v "$2" > /dev/null && command -v "$3" > /dev/null; then
		"$2" -DPEER "${compile[@]}" -o "$bin.$1"
		mpis+=("$1")
	else
		echo "skipped: $1 (no $2: tests/deps bench, tests/bench/peers.sh)"
	fi
}
mpi ompi4 mpicc.openmpi mpirun.openmpi
mpi mpich4 mpicc.mpich mpiexec.mpich
mpi ompi5 "$PEERS/ompi/bin/mpicc" "$PEERS/ompi/bin/mpirun"
mpi mpich5 "$PEERS/mpich/bin/mpicc" "$PEERS/mpich/bin/mpiexec"

ours() { # RANKS ARGUMENT...
	local n=$1; shift
	once "$RUNNER" --no-tag --oversubscribe -np "$n" "${under[@]}" "$bin" "$@"
}

no_cma=(--mca pml ob1 --mca btl "vader,self" --mca btl_vader_single_copy_mechanism none)
start() { # NAME RANKS ARGUMENT...: of the MPI; ob1 is Open MPI 4 without CMA
	local name=$1 n=$2 words; shift 2
	case $name in
	ompi4) words=(mpirun.openmpi --oversubscribe -np "$n") ;;
	ob1) words=(mpirun.openmpi --oversubscribe "${no_cma[@]}" -np "$n") ;;
	ompi5) words=("$PEERS/ompi/bin/mpirun" --map-by :OVERSUBSCRIBE -np "$n") ;;
	mpich4) words=(mpiexec.mpich -np "$n") ;;
	mpich5) words=("$PEERS/mpich/bin/mpiexec" -np "$n") ;;
	esac
	local program=$bin.$name
	[ "$name" != ob1 ] || program=$bin.ompi4
	words+=("${under[@]}" "$program" -l "$name" "$@")
	once "${words[@]}"
}

once() {
	[ "$round" != 1 ] || echo "    $*" | sed "s|$ROOT/||g"
	timeout 120 "$@" 2> "$rows.err" | sed "s/^/$round,/" >> "$rows.part" || { echo "failed: $*"; tail -3 "$rows.err"; }
}

# ---- the parts ----

table() { # TITLE ARGUMENT...
	echo "== $1"; shift
	cat "$rows.part" >> "$rows"
	"$BENCH/collectives.py" ${LEAST:+--least} "$@" < "$rows.part" || missed+=" $part"
}

against_mpis() { # TITLE GOALS ARGUMENT...
	local title=$1 goals=$2; shift 2
	for round in $(seq "$rounds"); do
		ours 2 "$@"
		for name in "${mpis[@]}"; do
			start "$name" 2 "$@"
		done
		[[ " ${mpis[*]} " != *' ompi4 '* ]] || start ob1 2 "$@"
	done
	# shellcheck disable=SC2086 # words
	table "$title, $rounds rounds" --beside ob1 $goals
}

part_small() {
	against_mpis "2 ranks, private arrays" "512:2.3:1.6 4K:2.5:1.7 8K:3:4" -b 8 -e 8K -f 2
}
part_middle() {
	against_mpis "2 ranks, private arrays" "512K:1.8:4 8M:1.5:3" -b 32K -e 8M
}
part_large() {
	against_mpis "2 ranks, private arrays" "128M:5:5" -b 128M -e 128M -k 3 -s 1
}
part_heap() {
	for round in $(seq "$rounds"); do
		ours 2 -b 128M -e 128M -k 5 -s 1 -m heap
		ours 2 -b 128M -e 128M -k 5 -s 1 -m limit -l limit
	done
	table "2 ranks, arrays in the heap, against the time for 2pn bytes, $rounds rounds" 128M:0.9:0.9
}
against_yielding() { # RANKS GOALS ARGUMENT...
	local n=$1 goals=$2; shift 2
	export OMPI_MCA_mpi_yield_when_idle=1
	for round in $(seq "$rounds"); do
		ours "$n" "$@"
		for name in "${mpis[@]}"; do
			# the others spin through whole turns of the scheduler, 4 ms each
			case $name in ompi*) start "$name" "$n" "$@" ;; esac
		done
	done
	unset OMPI_MCA_mpi_yield_when_idle
	table "$n ranks on $(nproc) cores, Open MPI yielding, $rounds rounds" "$goals"
}

part_four() { against_yielding 4 32K:1.5:1.5 -b 8 -e 32K; }
part_many() {
	for n in 3 8 16 32; do
		: > "$rows.part"
		against_yielding "$n" 1M:1.5:1.5 -b 8 -e 1M -k 5 -s 10
	done
}

missed=
for part; do
	: > "$rows.part"
	"part_$part"
done
rm -f "$rows.part" "$rows.err"
[ -z "$missed" ] || { echo "under the goal:$missed"; exit 1; }
