#!/bin/bash
# kill.sh: 64 ranks of sleep on 16 cluster hosts, which end at SIGTERM at once; from kill -9 of
# one of them to the end of runner, at most 0.3 s.
set -eu
. "$(dirname "$0")/common.bash"
cluster 16
mkdir -p "$BUILD/bench"
hosts=$(seq -s, -f 'n%.0f:4' 1 16)
echo "== kill -9 of one rank of 64 on 16 hosts"
"$BENCH/job.py" kill "${ROUNDS:-21}" 0.3 "$RUNNER" --events "$BUILD/bench/events" -np 64 -H "$hosts" sleep 1000
