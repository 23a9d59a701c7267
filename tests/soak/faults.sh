#!/bin/bash
# faults.sh [FAULT...]: every fault of tests/cluster/inject.bash, on 2, 4 and 16 hosts, at the start,
# while ranks run and at the end, to ranks that are bash and PyTorch; then the kinds of ranks.
# Prints a table of rounds that passed and the worst time from the blow to the first line that names
# the cause, and ends with 1 if a round failed.
#
# SIZES, MOMENTS, RANKS  other lists; ROUNDS  of each (1); SEED  where the random moments begin
# shellcheck disable=SC1091,SC2046,SC2048,SC2086,SC2153,SC2154
set -u
tests=$(cd "$(dirname "$0")/.." && pwd)
export VC_NAME=${VC_NAME:-soakfaults} LC_ALL=C.UTF-8
. "$tests/cluster/rounds.bash"
outside_bats "$tests"
. "$tests/cluster/jobs.bash"
. "$tests/cluster/inject.bash"
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
sizes=${SIZES:-2 4 16} failed=0
declare -A passed total worst

of_size() { # FAULT HOSTS -> "passed/total"
	echo "${passed[$1 $2]:-0}/${total[$1 $2]:-0}"
}

table() {
	local size fault
	printf '%-24s' fault $(for size in $sizes; do echo "$size-hosts"; done) worst-ms
	echo
	for fault in nothing $FAULTS; do
		printf '%-24s' "$fault"
		for size in $sizes; do printf '%-24s' "$(of_size "$fault" "$size")"; done
		echo "${worst[$fault]:--}"
	done
	echo "$failed failed"
}

trap 'table; cluster_down; rm -rf "$BATS_FILE_TMPDIR"' EXIT
trap 'exit 130' INT TERM

fresh() {
	local n=0 size
	for size in $sizes; do ((size > n)) && n=$size; done
	cluster_down
	cluster_up "$n" > /dev/null 2>&1 || exit
	write_ranks
	mark_clean n0 $(seq -f 'n%.0f' "$n")
}

one() { # FAULT HOSTS MOMENT RANKS
	local at="$1 $2"
	total[$at]=$((${total[$at]:-0} + 1))
	if round "$@" > "$T/said" 2>&1; then
		passed[$at]=$((${passed[$at]:-0} + 1))
		# at the start runner waits for all hosts before it says which failed
		[ "$3" = start ] || ((${cause_ms:-0} <= ${worst[$1]:-0})) || worst[$1]=$cause_ms
	else
		failed=$((failed + 1))
		echo "FAIL $1 on $2 hosts, $3, $4, on $victim_host (SEED=$SEED):"
		sed 's/^/  /' "$T/said" | head -20
		fresh
	fi
}

echo "SEED=$SEED"
fresh
for ((i = 0; i < ${ROUNDS:-1}; i++)); do
	for fault in ${*:-$FAULTS}; do
		for size in $sizes; do
			for moment in ${MOMENTS:-start running ending}; do
				for ranks in ${RANKS:-messy worker.py}; do
					one "$fault" "$size" "$moment" "$ranks"
				done
			done
		done
	done
	for ranks in ${KINDS-stubborn mute contained zombies.py sysv bomb}; do
		for size in $sizes; do
			for fault in nothing rank_killed all_killed; do
				one "$fault" "$size" "$([ $fault = nothing ] && echo ending || echo running)" "$ranks"
			done
		done
	done
done

[ "$failed" = 0 ]
