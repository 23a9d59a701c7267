#!/bin/bash
# hosts.sh [N...]: `runner true` on N cluster hosts (2, 16 and 64; 256 if asked for), one rank each,
# against other launchers and against sshtrue, which opens the same ssh sessions and does nothing else.
# runner/sshtrue is the ratio that counts: 1.3 at most.  check is `runner --check true`, which may
# take twice the time: runner/check is 0.5 at least.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || set -- 2 16 64
tool sshtrue -lssh

for n; do
	cluster "$n"
	hosts=$(seq -s, -f 'n%.0f' 1 "$n")
	peers=()
	peer check "$RUNNER" --check -np "$n" -H "$hosts" true
	peer sshtrue "$BUILD/bench/sshtrue" "$hosts" true
	peer hydra "$PEERS/mpich/bin/mpiexec" -launcher ssh -hosts "$hosts" -ppn 1 -np "$n" true
	peer ompi "$PEERS/ompi/bin/mpirun" --allow-run-as-root --host "$hosts" -np "$n" true
	peer pdsh pdsh -R ssh -f "$n" -w "$hosts" true
	echo "== true on $n hosts over ssh"
	on_n0 "$BENCH/rounds.py" -n "${ROUNDS:-$((n < 64 ? 11 : 5))}" -l 40 \
		"runner=$RUNNER -np $n -H $hosts true" "${peers[@]}"
	"$VCLUSTER" down
done
