#!/bin/bash
# restart.sh [N]: with --restarts on N cluster hosts (16), from the death of one rank to the start
# of the last rank of the next epoch.  Ranks that die at once of TERM, so no grace is in it.
set -eu
. "$(dirname "$0")/common.bash"
n=${1:-16} rounds=${ROUNDS:-11}
cluster "$n"
script=$BUILD/bench/restart-rank
mkdir -p "$BUILD/bench"
# Each rank of each epoch says when it began; the last one of an epoch to come up ends it.
cat > "$script" <<'S'
echo "$TORCHELASTIC_RESTART_COUNT began $EPOCHREALTIME"
[ "$TORCHELASTIC_RESTART_COUNT" = "$1" ] && exit 0
[ "$RANK" != 1 ] && exec sleep 1000
sleep 1
echo "$TORCHELASTIC_RESTART_COUNT failed $EPOCHREALTIME"
exit 3
S
echo "== --restarts on $n hosts: from a rank's exit to the start of the last rank of the next epoch"
on_n0 "$RUNNER" -q --no-tag --restarts "$rounds" -H "n[1-$n]" bash "$script" "$rounds" < /dev/null |
	awk '$2 == "failed" { failed[$1] = $3 }
	$2 == "began" && $3 > began[$1] { began[$1] = $3 }
	END { for (i = 0; i in failed; i++) printf "%.0f\n", 1000 * (began[i + 1] - failed[i]) }' |
	sort -n | awk '{ v[NR] = $1 } END { print "median " v[int((NR + 1) / 2)] " ms, worst " v[NR] " ms of " NR }'
