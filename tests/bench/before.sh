#!/bin/bash
# before.sh CHECKOUT [ROUNDS] [PART...]: our own times against those of another version, in CHECKOUT,
# where `make` has been run, in interleaved rounds; ratio: its time by ours.  Parts: memory (2 ranks of
# this machine, 8 B-128 MiB), heap (128 MiB in memory that all ranks map), four (4 ranks, 8 B-32 KiB),
# tcp (2 ranks over connections), hosts (one rank on each of 4 cluster hosts).  Goals: 0.98 in memory,
# 0.97 over TCP, of each size.
set -eu
. "$(dirname "$0")/common.bash"
[ $# -gt 0 ] || { echo "usage: before.sh CHECKOUT [ROUNDS] [PART...]" >&2; exit 2; }
other=$(cd "$1" && pwd) rounds=${2:-15}
shift $(($# > 2 ? 2 : $#))
[ $# -gt 0 ] || set -- memory heap four tcp hosts
cd "$ROOT"
rows=$BUILD/bench/before.csv missed=

tools() { # CHECKOUT
	bash -c 'cd "$1"; . tests/bench/common.bash; library_tool collectives; library_tool across
		library_tool across -DWHOLE -o "$BUILD/bench/across-berth"' tools "$1"
}
(unset BUILD AS_GIVEN; tools "$other")
tools "$ROOT"

# ---- in memory ----

once() { # NAME BUILD NP ARGUMENT...
	timeout 120 "$2/bin/runner" --no-tag --oversubscribe -np "$3" "$2/bench/collectives" -l "$1" "${@:4}" |
		sed "s/^/$round,/" >> "$rows"
}

in_memory() { # NP ARGUMENT...
	echo "== $part: $1 ranks of this machine, $rounds rounds"
	: > "$rows"
	for ((round = 1; round <= rounds; round++)); do
		if ((round % 2)); then
			once berth "$BUILD" "$@"; once before "$other/build" "$@"
		else
			once before "$other/build" "$@"; once berth "$BUILD" "$@"
		fi
	done
	"$BENCH/collectives.py" 128M:0.98:0.98 < "$rows" || missed+=" $part"
}

part_memory() {
	in_memory 2 -b 8 -e 8K -f 2
	in_memory 2 -b 32K -e 8M
	in_memory 2 -b 128M -e 128M -k 3 -s 1
}
part_heap() { in_memory 2 -b 128M -e 128M -k 5 -s 1 -m heap; }
part_four() { in_memory 4 -b 8 -e 32K; }

# ---- over TCP ----

over_tcp() { # TOOL RANKS COMMAND...: RANKS are words for runner, COMMAND stands in front of all
	local tool=$1 words=$2 sizes='8 64 512 1024 4096 16384 65536 131072 524288 2097152 8388608' table
	table=$("${@:3}" "$BENCH/across.py" -n "$rounds" \
		"berth=$BUILD/bin/runner $words --show 0 $BUILD/bench/$tool x ${BATCH_MS:-10} 3 $sizes" \
		"before=$other/build/bin/runner $words --show 0 $other/build/bench/$tool x ${BATCH_MS:-10} 3 $sizes")
	echo "$table"
	awk '$1 + 0 > 0 && $4 < 0.97 { bad = 1 } END { exit bad }' <<< "$table" || missed+=" $part"
}

part_tcp() {
	echo "== 2 ranks of this machine over TCP, $rounds rounds"
	over_tcp across "-np 2" env
}
part_hosts() {
	echo "== one rank on each of 4 hosts of this machine, $rounds rounds"
	cluster 4
	over_tcp across-berth "-np 4 -H n1,n2,n3,n4" on_n0
	"$VCLUSTER" down
}

for part; do "part_$part"; done
[ -z "$missed" ] || { echo "over the limit:$missed"; exit 1; }
