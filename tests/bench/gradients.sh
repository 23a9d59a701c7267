#!/bin/bash
# gradients.sh [ROUNDS]: 64 tensors of 16 KiB between 2 ranks of this machine, submitted one by one,
# then waited for, against Horovod (tests/bench/peers.sh horovod builds it, minutes).  Goal: 13 times
# as fast.
set -eu
. "$(dirname "$0")/common.bash"
rounds=${1:-7}
cd "$ROOT"
library_tool gradients
horovod=$PEERS/torch/bin/horovodrun
[ -x "$horovod" ] || echo "skipped: Horovod (tests/bench/peers.sh horovod builds it)"

median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }
us() { grep -o 'median [0-9.]*' | awk '{ print $2 }'; }

ours=() peers=()
for ((i = 0; i < rounds; i++)); do
	ours+=("$("$RUNNER" --no-tag -np 2 "$BUILD/bench/gradients" 2000 | us)")
	[ ! -x "$horovod" ] || peers+=("$(PATH=$PEERS/torch/bin:$PATH "$horovod" --gloo -np 2 -H localhost:2 \
		"$PEERS/torch/bin/python" "$BENCH/gradients.py" 2> /dev/null | us)")
done
berth=$(printf '%s\n' "${ours[@]}" | median)
echo "64 x 16 KiB, asynchronous, then waited for: Berth $berth us (${ours[*]})"
[ ${#peers[@]} = 0 ] || {
	hvd=$(printf '%s\n' "${peers[@]}" | median)
	echo "Horovod $hvd us (${peers[*]})"
	awk -v a="$hvd" -v b="$berth" 'BEGIN { printf "ratio %.1f, goal 13\n", a / b; exit a / b < 13 }'
}
