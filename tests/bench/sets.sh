#!/bin/bash
# sets.sh CHECKOUT [ROUNDS]: 1,000 requests of 50 sets, 2 ranks, in memory and over TCP, against another
# version in CHECKOUT, where `make` has been run, in interleaved rounds.  Ratio: ours by its, of the
# medians.  Goals: 0.8 of its time and CPU time; no set ends later than twice the mean.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || { echo "usage: sets.sh CHECKOUT [ROUNDS]" >&2; exit 2; }
other=$(cd "$1" && pwd) rounds=${2:-15}
cd "$ROOT"
library_tool sets
(unset BUILD AS_GIVEN; cp -n "$BENCH/sets.c" "$other/tests/bench/"
	bash -c 'cd "$1"; . tests/bench/common.bash; library_tool sets' tools "$other")

for hosts in 1 2; do
	echo "== 50 sets of 2 ranks, $hosts host(s), $rounds rounds"
	for ((round = 0; round < rounds; round++)); do
		for who in ours other; do
			build=$BUILD
			[ $who = ours ] || build=$other/build
			"$build/bench/sets" 2 "$hosts" 20 | sed "s/^/$who /"
		done
	done | awk '
		/ B: / { add($1 " " $2 " B time", $4); add($1 " " $2 " B CPU time", $7) }
		/latest/ { add($1 " latest set", $4) }
		function add(what, value) { all[what] = all[what] " " value }
		function median(what,   v, n, i, k, x) {
			n = split(all[what], v, " ")
			for (i = 2; i <= n; i++)
				for (k = i; k > 1 && v[k] + 0 < v[k - 1] + 0; k--) { x = v[k]; v[k] = v[k - 1]; v[k - 1] = x }
			return v[int((n + 1) / 2)]
		}
		END {
			for (what in all) if (what ~ /^ours / && what !~ /latest/) {
				name = substr(what, 6)
				printf "%-20s %9.0f us, other %9.0f us: %.2f\n", name, median(what), median("other " name),
					median(what) / median("other " name)
			}
			printf "latest set           %.2f of the mean, other %.2f\n", median("ours latest set"), median("other latest set")
		}' | sort
done
