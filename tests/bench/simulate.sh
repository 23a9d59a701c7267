#!/bin/bash
# simulate.sh [HOSTS...]: what many hosts cost the launcher itself, by step; agents are played by
# two processes (tests/helpers/simulate.c), which answer one at a time.  Column us/host is what
# has to stay the same from row to row.
set -eu
. "$(dirname "$0")/common.bash"
make -s -C "$ROOT" "$AS_GIVEN/helpers/simulate"
[ $# -gt 0 ] || set -- 64 250 1000 4000
echo "== the launcher with many simulated hosts, one rank each"
for n; do
	if [ "$(ulimit -Hn)" != unlimited ] && [ "$(ulimit -Hn)" -lt $((n * 2)) ]; then
		echo "skipped: $n hosts (ulimit -Hn is $(ulimit -Hn))"
		continue
	fi
	"$BUILD/helpers/simulate" -p 1 -t "$n" 2>&1 > /dev/null < /dev/null
done
