#!/bin/bash
# across.sh [0] [N...]: an f32 allreduce over TCP against Open MPI over TCP: 2 ranks of this machine
# (0), one rank on each of N cluster hosts; by default 0 4 16.  The hosts share this machine's cores; Open MPI spins
# there unless it is told to yield, so both are shown.  Goals: 2 ranks 1.4 at each size; hosts, against
# its defaults, a geometric mean of 1.1, no size under 0.9, 1.2 at 512 KiB.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || set -- 0 4 16
cd "$ROOT"

across=$BUILD/bench/across
library_tool across
library_tool across -DWHOLE -o "$across-berth"
versions=() # NAME:MPIRUN
if [ -x "$PEERS/ompi/bin/mpicc" ]; then
	"$PEERS/ompi/bin/mpicc" -O2 -std=c11 -D_GNU_SOURCE -DPEER -o "$across-ompi5" "$BENCH/across.c"
	versions+=("ompi5:$PEERS/ompi/bin/mpirun")
else
	echo "skipped: Open MPI 5 (tests/bench/peers.sh ompi installs it)"
fi
if command -v mpicc.openmpi > /dev/null; then
	mpicc.openmpi -O2 -std=c11 -D_GNU_SOURCE -DPEER -o "$across-ompi4" "$BENCH/across.c"
	versions+=("ompi4:$(command -v mpirun.openmpi)")
else
	echo "skipped: Open MPI 4 (Debian's libopenmpi-dev and openmpi-bin)"
fi
[ ${#versions[@]} -gt 0 ] || exit 0

# A row of peers for each version, started with these words.
over_tcp() { # SIZES WORD...
	local v sizes=$1
	shift
	for v in "${versions[@]}"; do
		peers+=("${v%%:*}=${v#*:} --allow-run-as-root --mca pml ob1 --mca btl tcp,self $* \
			$across-${v%%:*} x ${BATCH_MS:-10} 3 $sizes")
	done
}

on_this_machine() {
	local sizes='8 64 512 4096 16384 32768 65536 131072 524288 2097152 8388608 33554432 134217728'
	peers=()
	over_tcp "$sizes" -np 2 --bind-to core
	echo "== 2 ranks on this machine, over TCP"
	"$BENCH/across.py" -n "${ROUNDS:-7}" \
		"berth=$RUNNER -np 2 --show 0 $across x ${BATCH_MS:-10} 3 $sizes" "${peers[@]}"
}

on_hosts() { # N
	local n=$1 hosts yield sizes='8 64 512 4096 32768 131072 524288 2097152 16777216'
	cluster "$n"
	hosts=$(seq -s, -f 'n%.0f' 1 "$n")
	for yield in ${YIELD:-0 1}; do
		peers=()
		over_tcp "$sizes" -np "$n" --host "$hosts" --mca mpi_yield_when_idle "$yield"
		echo "== one rank on each of $n hosts of this machine, mpi_yield_when_idle $yield"
		on_n0 "$BENCH/across.py" -n "${ROUNDS:-$((yield ? 5 : 3))}" \
			"berth=$RUNNER -np $n -H $hosts --show 0 $across-berth x ${BATCH_MS:-10} 3 $sizes" \
			"${peers[@]}"
	done
	"$VCLUSTER" down
}

for n; do
	if [ "$n" = 0 ]; then on_this_machine; else on_hosts "$n"; fi
done
