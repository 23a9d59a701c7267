#!/bin/bash
# collectives.sh [N]: a rank of 2, 4 and 16 hosts is killed in the middle of libberth's operations, N
# times each (100), at moments that SEED says: all others name it within a second.  Then everything
# that tests/helpers/collectives.c checks, ALL of it, on 2 and 4 hosts.
# shellcheck disable=SC1090,SC2034,SC2154,SC2317 # for the helpers, which set the counts
set -u
cd "$(dirname "$0")/../.." || exit
bats_require_minimum_version() { :; }
run() { output=$("$@" 2>&1) || true; }
load() { . "tests/cluster/$1.bash"; }
BATS_TEST_FILENAME=$PWD/tests/cluster/collectives.bats
T=$(mktemp -d)
load jobs
load lost
n=${1:-100} failed=0 RANDOM=${SEED:=$RANDOM}

trap 'cluster_down; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

killed() { # HOSTS
	local i good=0 most=0
	for ((i = 0; i < n; i++)); do
		if lost_at "$1" $((RANDOM % $1)) $((50 + RANDOM % 1500)) > "$T/said"; then
			good=$((good + 1))
		else
			cat "$T/said"
		fi
		[ "$told_ms" -le "$most" ] || most=$told_ms
	done
	[ $good = "$n" ] || failed=1
	printf '%2d hosts: %d of %d told in time, the last after %d ms\n' "$1" "$good" "$n" "$most"
}

everything() { # HOSTS
	local case
	for case in reductions scaled moves sets async poll thresholds join adasum mismatch threads late lacking stop again; do
		run r --no-tag -H "n[1-$1]" env ALL=1 "$HELPERS/collectives" "$SEED" $case
		[[ $output == *"$case: "*" checks"* ]] || { echo "$output"; failed=1; }
		printf '%2d hosts: %s\n' "$1" "$(tail -1 <<< "$output")"
	done
}

echo "seed $SEED"
cluster_up 16
for hosts in 2 4 16; do killed $hosts; done
for hosts in 2 4; do everything $hosts; done
exit $failed
