#!/bin/bash
# mpi.sh [N...]: MPI_Init and MPI_Finalize of N ranks (2, 8 and 64) on this machine, then of 2 ranks on
# each of HOSTS (2, 4 and 16) cluster hosts, beside the launcher of each MPI.  HOSTS= leaves the second
# part out.  MPICH 4.0.2 is not in it: across hosts it hangs in MPI_Finalize, under hydra, too.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || set -- 2 8 64
ranks=("$@")
read -r -a hosts <<< "${HOSTS-2 4 16}"
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT

# NAME COMPILER LAUNCHER...: both start the same program.
names=()
declare -A launchers
mpi() {
	local name=$1 compiler=$2
	[ -x "$(command -v "$compiler")" ] || { echo "no $compiler: $name is left out"; return; }
	"$compiler" -o "$at/$name" "$BENCH/../mpi/ranks.c"
	names+=("$name")
	launchers[$name]=${*:3}
}

mpi mpich4 mpicc.mpich mpiexec.hydra
mpi mpich5 "$PEERS/mpich/bin/mpicc" "$PEERS/mpich/bin/mpiexec"
# as root, and on fewer cores than ranks, Open MPI's launcher wants to be asked twice
mpi openmpi4 mpicc.openmpi mpirun.openmpi --allow-run-as-root --oversubscribe
mpi openmpi5 "$PEERS/ompi/bin/mpicc" "$PEERS/ompi/bin/mpirun" --allow-run-as-root --map-by :oversubscribe

for name in "${names[@]}"; do
	for n in "${ranks[@]}"; do
		echo "== MPI_Init and MPI_Finalize, $name, np $n"
		"$BENCH/rounds.py" -n "${ROUNDS:-9}" -l 10 \
			"runner=$RUNNER -np $n --oversubscribe --bind-to none $at/$name nothing" \
			"$name=${launchers[$name]} -np $n $at/$name nothing"
	done
done

# The cluster's hosts do not see $at.
for n in "${hosts[@]}"; do
	cluster "$n"
	trap '"$VCLUSTER" down > /dev/null 2>&1; rm -rf "$at"' EXIT
	mkdir -p "${VC_STATE:-/run/vcluster-$VC_NAME}/t"
	list=$(seq -s, -f 'n%.0f:2' 0 $((n - 1)))
	for name in "${names[@]}"; do
		[ "$name" != mpich4 ] || continue
		cp "$at/$name" "${VC_STATE:-/run/vcluster-$VC_NAME}/t/$name"
		options="-launcher ssh -hosts $list"
		[ "${name#openmpi}" = "$name" ] || options="-H $list"
		echo "== MPI_Init and MPI_Finalize, $name, 2 ranks on each of $n hosts over ssh"
		on_n0 "$BENCH/rounds.py" -n "${ROUNDS:-5}" -l 30 \
			"runner=$RUNNER -H $list --oversubscribe --bind-to none /vc/t/$name nothing" \
			"$name=${launchers[$name]} $options -np $((2 * n)) /vc/t/$name nothing"
	done
	"$VCLUSTER" down
done
