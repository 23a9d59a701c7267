#!/bin/bash
# large.sh [CASE...]: operations past 2^31 elements and 2^32 bytes (tests/helpers/large.c), of
# ranks on one host, on a host each (allreduce by each algorithm, too), and on hosts with different
# numbers of ranks.  What this machine's memory does not allow is skipped.  LARGE_GIB: the most
# memory to take.
set -u
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-build}
large=$build/helpers/large
spare=1 failed=0 skipped=0 did=0

# CASE: GiB for 2 ranks in memory, over TCP; for 3 ranks on 2 hosts; for a rank alone.  -: no
# such run.
table='
impossible          1   1   1   1
allreduce           9   9  13   5
allreduce-bf16      9   9   -   5
allreduce-heap      9   9   -   -
allreduce-joined    9   9   -   -
adasum             33  33   -   -
adasum-half        17  17   -   -
reduce              5   7   -   -
reduce-bf16         5   7   -   -
reduce-half         -   -  11   -
broadcast           9   9  13   -
broadcast-u16       9   9   -   -
allgather           9   9   -   -
allgather-place     9   9   -   -
allgather-own       9   9   -   5
reducescatter       9   9   -   -
reducescatter-own   9   9   -   -
reducescatter-half  3   3  11   -
alltoall            9   9   -   -
alltoall-place      9  17   -   -
alltoall-own        5   5   5   5
alltoall-u16        5   5   -   -
gather              9   9   -   -
gather-place        5   5   -   -
scatter             9   9   -   -
scatter-place       5   5   -   -
send                9   9   -   5
send-any            9   9   -   -
'

trap 'exit 130' INT
trap 'exit 143' TERM

# The memory to take, in GiB.
room() {
	local kib gib
	kib=$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)
	gib=$(((kib >> 20) - spare))
	echo $((gib < ${LARGE_GIB:-$gib} ? gib : ${LARGE_GIB:-$gib}))
}

run_one() { # WHERE GIB CASE ARGS...
	local where=$1 gib=$2 name=$3 before=${EPOCHREALTIME/./} said status=0 us room
	shift 3
	[ "$gib" != - ] || return
	room=$(room)
	if [ "$room" -lt "$gib" ]; then
		skipped=$((skipped + 1))
		printf '%-7s         %s: skipped: it takes %s GiB of memory, and there are %s for it\n' \
			"$where" "$name" "$gib" "$room"
		return
	fi
	did=$((did + 1))
	said=$(timeout -k 5 600 "$large" "$@" "$name" 2>&1) || status=$?
	us=$((${EPOCHREALTIME/./} - before))
	printf '%-7s %5d.%d s %s\n' "$where" $((us / 1000000)) $((us / 100000 % 10)) "$said"
	[ "$status" = 0 ] && return
	failed=$((failed + 1))
	echo "FAILED with status $status: $large $* $name"
}

make -s "$large" || exit
[ "$(awk 'NF { print $1 }' <<< "$table" | sort)" = "$("$large" | sort)" ] || {
	echo "the table does not have the cases of $large"
	exit 1
}
while read -r name shm tcp both alone; do
	[ -n "$name" ] || continue
	[[ $# = 0 || " $* " = *" $name "* ]] || continue
	run_one memory "$shm" "$name"
	run_one tcp "$tcp" "$name" -hosts 2
	for BERTH_ALGO in double halve direct; do
		export BERTH_ALGO
		[[ $name = allreduce || $name = allreduce-bf16 ]] && run_one "$BERTH_ALGO" "$tcp" "$name" -hosts 2
	done
	unset BERTH_ALGO
	run_one both "$both" "$name" -np 3 -hosts 2
	run_one alone "$alone" "$name" -np 1
done <<< "$table"
echo "$did runs, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
