#!/bin/bash
# chaos.sh SECONDS SEED [NUMBER...]: random jobs and random faults on a cluster of $HOSTS hosts (2)
# and n0, for SECONDS; or the jobs NUMBER alone.  See chaos.py.  VERBOSE=1 names each job.  CGROUP=0:
# on hosts where an agent cannot make a cgroup; CGROUP=v1: only one of version 1.
set -u
cd "$(dirname "$0")/../.." || exit
[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
export VC_NAME=${VC_NAME:-chaos} HOSTS=${HOSTS:-2} LC_ALL=C.UTF-8
unset "${!BERTH_@}" VC_CGROUPS
case ${CGROUP:-1} in
0) export VC_CGROUPS=none ;;
v1) export VC_CGROUPS=v1 ;;
esac
trap 'tests/cluster/vcluster down' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
tests/cluster/vcluster up "$HOSTS" || exit
/usr/bin/python3 -B tests/cluster/chaos.py "$@"
