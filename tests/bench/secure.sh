#!/bin/bash
# secure.sh [ROUNDS]: an f32 allreduce of 2 ranks of this machine over TCP whose connections are
# encrypted (BERTH_NET_SECURE=aead), or whose data have no MAC (heads), against the default (mac).
# Goals: aead 1.5 times as long for 8 bytes, 2 for 64 KiB, 2.5 for 8 MiB.  BEFORE, the build directory of another version that has its
# bench/across: against that as well; goal: 1.03.
set -eu
. "$(dirname "$0")/common.bash"
cd "$ROOT"
across=$BUILD/bench/across sizes='8 64 1024 4096 65536 524288 2097152 8388608'
library_tool across

sums() { # RUNNER [OPTION...] ACROSS
	echo "${*:1:$#-1} -np 2 --show 0 ${*: -1} x ${BATCH_MS:-10} 3 $sizes"
}

others=("aead=$(sums "$RUNNER" -x BERTH_NET_SECURE=aead "$across")"
	"heads=$(sums "$RUNNER" -x BERTH_NET_SECURE=heads "$across")")
[ -z "${BEFORE-}" ] || others+=("before=$(sums "$BEFORE/bin/runner" "$BEFORE/bench/across")")
table=$("$BENCH/across.py" -n "${1:-15}" "mac=$(sums "$RUNNER" "$across")" "${others[@]}")
echo "$table"
awk 'BEGIN { most[8] = 1.5; most[65536] = 2; most[8388608] = 2.5 }
	$1 in most && $4 > most[$1] { bad = 1 }
	END { exit bad }' <<< "$table"
