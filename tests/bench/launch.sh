#!/bin/bash
# launch.sh [N...]: `runner -np N true` on this machine, ranks bound, against other launchers.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || set -- 1 8 64

for n; do
	peers=()
	peer hydra "$PEERS/mpich/bin/mpiexec" -bind-to core -np "$n" true
	peer ompi "$PEERS/ompi/bin/mpirun" --allow-run-as-root --map-by :OVERSUBSCRIBE -np "$n" true
	[ "$n" -gt 8 ] || [ ! -x "$PEERS/torch/bin/horovodrun" ] ||
		peer horovodrun "$PEERS/torch/bin/horovodrun" -np "$n" true
	echo "== true on this machine, np $n"
	"$BENCH/rounds.py" -n "${ROUNDS:-21}" -l 10 "runner=$RUNNER -np $n --oversubscribe true" "${peers[@]}"
done
