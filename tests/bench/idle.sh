#!/bin/bash
# idle.sh [SECONDS]: CPU time of a job that does nothing, on 16 cluster hosts for 60 s: at most 0.1 %
# of a core in the launcher and in each agent with its guardian.  And the memory of an agent with
# one rank and with 64.
set -eu
. "$(dirname "$0")/common.bash"
cluster 16
mkdir -p "$BUILD/bench"
idle() { # SECONDS NP HOSTS
	"$BENCH/job.py" idle "$1" "$RUNNER" --events "$BUILD/bench/events" -np "$2" -H "$3" sleep 1000
}
echo "== idle job of 16 hosts, one rank each"
idle "${1:-60}" 16 "$(seq -s, -f 'n%.0f' 1 16)"
echo "== idle job of one host with 64 ranks"
idle 5 64 n1:64
