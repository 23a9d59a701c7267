#!/bin/bash
# spank.sh: what srun --berth adds to a step of 1 and of 8 tasks on one host, in interleaved rounds;
# at most 8 ms for each node and step.
set -eu
. "$(dirname "$0")/common.bash"
if [ ! -e /usr/include/slurm/spank.h ] || ! command -v srun > /dev/null; then
	echo "skipped: no Slurm with slurm/spank.h (tests/deps launchers installs it)"
	exit 0
fi
[ "$(id -u)" = 0 ] || { echo "skipped: the cluster needs root"; exit 0; }
make -s -C "$ROOT" BUILD="$AS_GIVEN" spank
stack=$(mktemp)
trap '"$VCLUSTER" down > /dev/null 2>&1; rm -f "$stack"' EXIT
echo "optional $BUILD/lib/berth_spank.so agent=/usr/lib/berth/berth-agent" > "$stack"
"$ROOT/tests/cluster/vslurm" up 1 --plugstack "$stack"
"$VCLUSTER" exec n1 install -D -m 755 "$BUILD/bin/berth-agent" /usr/lib/berth/berth-agent
for n in 1 8; do
	echo "== srun -n$n true, with and without --berth"
	"$BENCH/rounds.py" -n "${ROUNDS:-31}" -l 20 "berth=$VCLUSTER exec n0 srun -n$n --berth true" \
		"plain=$VCLUSTER exec n0 srun -n$n true"
done
