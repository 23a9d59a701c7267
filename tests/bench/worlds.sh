#!/bin/bash
# worlds.sh: 8 ranks on 2 cluster hosts; from kill -9 of one of them to the end of the others' first
# allreduce in the next world: the median of 20 is at most 100 ms.
set -eu
. "$(dirname "$0")/common.bash"
cluster 2
mkdir -p "$BUILD/bench"
echo "== kill -9 of one rank of 8 on 2 hosts, to the first allreduce of the others in the next world"
for i in $(seq "${ROUNDS:-20}"); do
	on_n0 timeout -k 5 60 "$RUNNER" --no-tag --keep-going -H n0:4,n1:4 "$BUILD/helpers/changes" "$i" once \
		2> /dev/null < /dev/null || true # the rank that was killed
done | awk '/ranks after/ { print $4 }' | sort -n > "$BUILD/bench/worlds"
awk -v rounds="${ROUNDS:-20}" '{ v[NR] = $1 } END {
	m = v[int((NR + 1) / 2)]
	printf "%d of %d: %.1f to %.1f ms, median %.1f ms\n", NR, rounds, v[1], v[NR], m
	exit NR < rounds || m > 100 }' "$BUILD/bench/worlds"
