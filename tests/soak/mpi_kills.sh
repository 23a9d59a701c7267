#!/bin/bash
# mpi_kills.sh [ROUNDS]: in jobs of 4 MPI ranks on 2 hosts a rank, an agent, a PMIx server or runner is killed
# at a random moment of MPI_Init, of a loop of barriers, or of MPI_Finalize: ROUNDS times (100), the MPIs,
# victims and moments in turn.  runner has to end within END_MOST_MS (2000), to name the cause, and to
# leave nothing.  Prints a table, and ends with 1 if a round failed.
#
# SEED  where the random moments begin; MPIS, VICTIMS, MOMENTS  other lists
# shellcheck disable=SC1091,SC2046,SC2086,SC2153,SC2154
set -u
tests=$(cd "$(dirname "$0")/.." && pwd)
export VC_NAME=${VC_NAME:-soakmpikills} LC_ALL=C.UTF-8
. "$tests/cluster/rounds.bash"
outside_bats "$tests"
. "$tests/cluster/jobs.bash"
. "$tests/cluster/mpis.bash"
. "$tests/cluster/inject.bash"
. "$tests/cluster/mpi_kills.bash"
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
failed=0 left_files=0
declare -A passed total phases worst_end worst_clean

table() {
	local of mpi victim moment
	printf '\n%-8s %-8s %9s %9s %9s   %-32s %7s %9s\n' mpi victim init loop finalize "where it was" end-ms clean-ms
	for mpi in $mpis; do
		for victim in $victims; do
			[ -n "${phases[$mpi $victim]-}" ] || continue
			printf '%-8s %-8s' "$mpi" "$victim"
			for moment in $moments; do
				of="$mpi $victim $moment"
				printf ' %9s' "${passed[$of]:-0}/${total[$of]:-0}"
			done
			printf '   %-32s %7s %9s\n' "$(tr ' ' '\n' <<< "${phases[$mpi $victim]}" | grep . | sort | uniq -c |
				awk '{printf "%s%s %d", s, $2, $1; s = ", "}')" "${worst_end[$mpi $victim]:--}" "${worst_clean[$mpi $victim]:--}"
		done
	done
	echo "$failed failed, SEED=$SEED; $left_files files that MPIs themselves have left"
}

trap 'table; cluster_down; rm -rf "$BATS_FILE_TMPDIR"' EXIT
trap 'exit 130' INT TERM

fresh() {
	cluster_down
	cluster_up 2 > /dev/null 2>&1 || exit
	mpi_programs
	mark_clean n0 n1 n2
}

one() { # MPI VICTIM MOMENT
	local of="$1 $2"
	total[$of $3]=$((${total[$of $3]:-0} + 1))
	if kill_round /vc/t/"$1" "$2" "$3" > "$T/said" 2>&1; then
		passed[$of $3]=$((${passed[$of $3]:-0} + 1))
		((end_ms <= ${worst_end[$of]:-0})) || worst_end[$of]=$end_ms
		((clean_ms <= ${worst_clean[$of]:-0})) || worst_clean[$of]=$clean_ms
	else
		failed=$((failed + 1))
		echo "FAIL round $round: $1, $2, $3 (SEED=$SEED):"
		sed 's/^/  /' "$T/said" | head -40
		fresh
	fi
	phases[$of]="${phases[$of]-} $phase"
	left_files=$((left_files + left))
}

compile_ranks "$BATS_FILE_TMPDIR"
mpis=${MPIS:-$(cd "$BATS_FILE_TMPDIR" && ls -d ompi4 ompi5 mpich5 2> /dev/null)}
victims=${VICTIMS:-rank agent server runner} moments=${MOMENTS:-init loop finalize}
echo "SEED=$SEED"
fresh
round=0
while :; do
	for moment in $moments; do
		for victim in $victims; do
			for mpi in $mpis; do
				[[ $victim$mpi != servermpich* ]] || continue # it uses none
				[ "$round" -lt "${1:-100}" ] || break 4
				round=$((round + 1))
				one "$mpi" "$victim" "$moment"
			done
		done
	done
done
[ "$failed" = 0 ]
