#!/bin/bash
# hosts.sh [N]: `runner true` on N cluster hosts (16), one rank each, against other launchers and
# against sshtrue, which opens the same ssh sessions and does nothing else.
set -eu
. "$(dirname "$0")/common.bash"
n=${1:-16}
tool sshtrue -lssh
cluster "$n"

hosts=$(seq -s, -f 'n%.0f' 1 "$n")
peer sshtrue "$BUILD/bench/sshtrue" "$hosts" true
peer hydra "$PEERS/mpich/bin/mpiexec" -launcher ssh -hosts "$hosts" -ppn 1 -np "$n" true
peer ompi "$PEERS/ompi/bin/mpirun" --allow-run-as-root --host "$hosts" -np "$n" true
peer pdsh pdsh -R ssh -f "$n" -w "$hosts" true
echo "== true on $n hosts over ssh"
on_n0 "$BENCH/rounds.py" -n "${ROUNDS:-11}" -l 10 "runner=$RUNNER -np $n -H $hosts true" "${peers[@]}"
