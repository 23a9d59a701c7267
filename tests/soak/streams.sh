#!/bin/bash
# streams.sh [MIB [HOSTS...]]: streams of MIB MiB in all (1024) through runner, every byte
# checked.  On 16 hosts: each kind of bytes from 64 ranks on 1, 2 and 16 hosts, a reader at
# 1 MB/s for two minutes, one that stands still for two minutes, stdin to one rank and to all;
# then the heaviest of these on 64 and 256 hosts.  Prints what runner and the agents kept in
# memory, MiB.  $SEED repeats a run; $STAND_S shortens it.
# shellcheck disable=SC1090,SC2034,SC2048,SC2154 # for the helpers, which set the counts
set -u
cd "$(dirname "$0")/../.." || exit
bats_require_minimum_version() { :; }
load() { . "tests/cluster/$1.bash"; }
BATS_TEST_FILENAME=$PWD/tests/cluster/streams.bats
T=$(mktemp -d)
load jobs
load streams
bytes=$((${1:-1024} << 20))
failed=0

trap 'cluster_down; rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

row() { # WHAT HOSTS BYTES COMMAND...
	local what=$1 hosts=$2 size=$3 said='ok' start=$EPOCHSECONDS; shift 3
	runner_kib=0 agent_kib=0
	"$@" > "$T/said" 2>&1 || said="FAILED: $(cat "$T/said")"
	if [ "$said" = ok ] && [ $((EPOCHSECONDS - start)) -gt 2 ]; then
		in_bounds "$hosts" > "$T/said" 2>&1 || said="FAILED: $(cat "$T/said")"
	fi
	[ "$said" = ok ] || failed=$((failed + 1))
	printf '%-34s %5d %6d %6d %8.1f %8.1f  %s\n' "$what" "$hosts" $((size >> 20)) $((EPOCHSECONDS - start)) \
		"$((runner_kib * 10 / 1024))e-1" "$((agent_kib * 10 / 1024))e-1" "$said"
}

stands() { head -c 1000000; sleep "${STAND_S:-120}"; cat; }

small() {
	local kind slow=$((${STAND_S:-120} * 1000000))
	for kind in lines short long endless binary crlf bars; do
		row "64 ranks write, $kind" 1 "$bytes" flood n1:64 $kind $((bytes / 64)) cat
		row "64 ranks write, $kind" 2 "$bytes" flood 'n[1-2]:32' $kind $((bytes / 64)) cat
		row "64 ranks write, $kind" 16 "$bytes" flood 'n[1-16]:4' $kind $((bytes / 64)) cat
	done
	row "a reader at 1 MB/s" 16 $slow flood 'n[1-16]:4' lines $((slow / 64)) "$FLOW" slow 1000000
	for kind in short long; do
		row "a reader stands still, $kind" 16 "$bytes" flood 'n[1-16]:4' $kind $((bytes / 64)) stands
	done
	row "stdin to rank 0" 2 "$bytes" feed 0 'n[1-2]' "$bytes"
	row "stdin to all" 2 "$bytes" feed all 'n[1-2]' "$bytes"
	row "stdin to all" 16 $((bytes / 4)) feed all 'n[1-16]' $((bytes / 4))
}

large() { # HOSTS
	row "$((2 * $1)) ranks write, lines" "$1" $((bytes / 4)) flood "n[1-$1]:2" lines $((bytes / 8 / $1)) cat
	row "a reader stands still, short" "$1" $((bytes / 4)) flood "n[1-$1]:2" short $((bytes / 8 / $1)) stands
	row "stdin to all" "$1" $((bytes / 64)) feed all "n[1-$1]" $((bytes / 64))
}

echo "seed $SEED"
printf '%-34s %5s %6s %6s %8s %8s\n' streams hosts MiB s runner agent
[ $# = 0 ] || shift
for n in ${*:-16 64 256}; do
	cluster_up "$n" || exit
	[ "$n" = 16 ] && small
	[ "$n" = 16 ] || large "$n"
	cluster_down
done
[ "$failed" = 0 ]
