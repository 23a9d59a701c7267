#!/bin/bash
# run.sh: what `make bench` runs: all benches, with their peers.  Never part of the tests.
set -eu
here=$(dirname "$0")
"$here/peers.sh" || echo "not all peers could be installed; those missing are skipped"
echo "machine: $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(uname -sr), $(date -I)"
failed=
for bench in launch hosts output place restart kill idle wait simulate collectives across gradients torch tensorflow ratios mpi fence agreement device worlds secure hash; do
	"$here/$bench.sh" || failed+=" $bench"
done
[ -z "$failed" ] || { echo "over a limit, or failed:$failed"; exit 1; }
