#!/bin/bash
# wait.sh [ROUNDS]: what a rank costs that waits for another, and how long after the other's call its
# own returns: in a call, for a request, or where each waits for another request ("crossed"); in
# shared memory, and over TCP between 2 cluster hosts.  Goals, in the best round: of waits of 3 s,
# 0.5 % of a core; of waits of 20 ms, late by 0.2 ms (median).
set -eu
. "$(dirname "$0")/common.bash"
rounds=${1:-3}
cd "$ROOT"
library_tool wait
cluster 2
failed=

# The least number that stands before WORDS in the lines of stdin.
least() { # WORDS
	grep -oE "[0-9.]+ $1" | awk '{ print $1 }' | sort -g | head -1
}

waits() { # TITLE COMMAND...
	local title=$1 lines='' kind i
	shift
	for kind in '' async crossed; do
		lines=
		for ((i = 0; i < rounds; i++)); do
			lines+=$("$@" "$BUILD/bench/wait" 3000 1 $kind)$'\n'
			lines+=$("$@" "$BUILD/bench/wait" 20 100 $kind)$'\n'
		done
		echo "== $title${kind:+, $kind}"
		printf '%s' "$lines"
		awk -v cpu="$(grep '^1 x' <<< "$lines" | least '% of a core')" \
			-v late="$(grep '^100 x' <<< "$lines" | sed 's/.*late by //' | least us)" \
			'BEGIN { printf "best: %s %%, goal 0.5; %s us, goal 200\n", cpu, late
				exit cpu > 0.5 || late > 200 }' || failed=1
	done
}

waits "2 ranks of this machine" "$RUNNER" --no-tag -np 2
waits "one rank on each of 2 hosts, over TCP" on_n0 "$RUNNER" --no-tag -H n0,n1
[ -z "$failed" ]
