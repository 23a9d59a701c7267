#!/bin/bash
# cause.sh [PROGRAM...]: the right rank and the right status, TIMES (100) times for each program and
# each way to fail; see tests/cluster/cause.bash.  Prints a table, and ends with 1 if one was wrong.
# HOWS  other ways; SEED  which ranks fail
# shellcheck disable=SC1091,SC2046,SC2048,SC2086,SC2153,SC2154
set -u
tests=$(cd "$(dirname "$0")/.." && pwd)
export VC_NAME=${VC_NAME:-soakcause} LC_ALL=C.UTF-8
. "$tests/cluster/rounds.bash"
outside_bats "$tests"
. "$tests/cluster/jobs.bash"
. "$tests/cluster/inject.bash"
. "$tests/cluster/cause.bash"
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
failed=0

trap 'cluster_down; rm -rf "$BATS_FILE_TMPDIR"' EXIT
trap 'exit 130' INT TERM
echo "SEED=$SEED"
cluster_up 4 > /dev/null 2>&1 || exit
cause_ready
for program in ${*:-$PROGRAMS}; do
	for how in $HOWS; do
		right=0
		for ((i = 0; i < ${TIMES:-100}; i++)); do
			[ "$program" = ddp.py ] && each=1 || each=$((i % 2 + 1)) # PyTorch: 1 s of CPU to import
			if cause_round "$program" "$how" "$each" > "$T/said" 2>&1; then
				right=$((right + 1))
			else
				failed=$((failed + 1))
				sed 's/^/  /' "$T/said" | head -20
			fi
		done
		printf '%-10s %-10s %d of %d right\n' "$program" "$how" "$right" "$i"
	done
done
[ "$failed" = 0 ]
