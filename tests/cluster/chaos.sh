#!/bin/bash
# chaos.sh SECONDS SEED [NUMBER...]: random jobs and random faults on a cluster of $HOSTS hosts (2)
# and n0, for SECONDS; or the jobs NUMBER alone.  See chaos.py.  VERBOSE=1 names each job.
set -u
cd "$(dirname "$0")/../.." || exit
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0"; exit 2; }
export VC_NAME=${VC_NAME:-chaos} HOSTS=${HOSTS:-2} LC_ALL=C.UTF-8
unset "${!BERTH_@}"
trap 'tests/cluster/vcluster down' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
tests/cluster/vcluster up "$HOSTS" || exit
/usr/bin/python3 -B tests/cluster/chaos.py "$@"
