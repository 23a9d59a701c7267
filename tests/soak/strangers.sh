#!/bin/bash
# strangers.sh [N]: N (10000) strangers at each listener of a job of two hosts, before a late peer
# comes and while it works.  Prints what memory they take.
# shellcheck disable=SC1090,SC2034,SC2154,SC2317 # for the helpers, which set the counts
set -u
cd "$(dirname "$0")/../.." || exit
bats_require_minimum_version() { :; }
load() { . "tests/cluster/$1.bash"; }
BATS_TEST_FILENAME=$PWD/tests/cluster/collectives.bats
T=$(mktemp -d)
load jobs
load crowd
n=${1:-10000} SEED=${SEED:-$RANDOM} STEADY=$HELPERS/steady

trap 'cluster_down; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM
cluster_up 3 || exit
echo "SEED=$SEED"
crowded "$n" "$SEED" || { cat "$T/out" "$T/err"; exit 1; }
