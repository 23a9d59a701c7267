#!/bin/bash
# torch.sh [ROUNDS]: PyTorch's collectives and training steps of 2 ranks of this machine, by
# Berth, Horovod (horovodrun) and gloo (torchrun), each under its own launcher and in turns; some
# 50 s a round.  tests/bench/peers.sh horovod installs those.  torch_table.py has the goals.
# ONLY="berth gloo" takes some of: horovod berth gloo berth-dist horovod-np1 berth-np1.
set -eu
. "$(dirname "$0")/common.bash"
rounds=${1:-5}
cd "$ROOT"
bin=$PEERS/torch/bin
if [ ! -x "$bin/python" ]; then
	bin=$ROOT/build/venv/bin
	[ -x "$bin/python" ] || { echo "skipped: Berth (no PyTorch; make venv installs it)"; exit 0; }
fi
logs=$BUILD/bench/torch
mkdir -p "$logs"
export PATH=$bin:$PATH PYTHONPATH=$ROOT/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so
# One thread each, as torchrun has it.
export OMP_NUM_THREADS=1

names=()
if [ -x "$bin/horovodrun" ]; then
	names+=(horovod horovod-np1)
else
	echo "skipped: Horovod (tests/bench/peers.sh horovod builds it)"
fi
[ ! -x "$bin/torchrun" ] || names+=(gloo)
names+=(berth berth-dist berth-np1)
[ -z "${ONLY:-}" ] || read -r -a names <<< "$ONLY"

program() { # NAME
	case $1 in
	horovod) horovodrun --gloo -np 2 -H localhost:2 "$bin/python" "$BENCH/torch_hvd.py" horovod.torch ;;
	horovod-np1) horovodrun --gloo -np 1 -H localhost:1 "$bin/python" "$BENCH/torch_hvd.py" horovod.torch optimizer ;;
	gloo) torchrun --nproc-per-node 2 "$BENCH/torch_dist.py" gloo ;;
	berth) "$RUNNER" -q -np 2 "$bin/python" "$BENCH/torch_hvd.py" berth.torch ;;
	berth-np1) "$RUNNER" -q -np 1 "$bin/python" "$BENCH/torch_hvd.py" berth.torch optimizer ;;
	berth-dist) "$RUNNER" -q -np 2 "$bin/python" "$BENCH/torch_dist.py" berth ;;
	*) echo "torch.sh: no program '$1'" >&2; return 2 ;;
	esac
}
export -f program
export RUNNER BENCH bin # for it

: > "$logs/values"
failed=
for ((i = 0; i < rounds; i++)); do
	for ((j = 0; j < ${#names[@]}; j++)); do
		name=${names[(i + j) % ${#names[@]}]}
		# shellcheck disable=SC2016 # for that shell
		timeout -k 5 120 bash -c 'program "$1"' bash "$name" > "$logs/$name.out" 2> "$logs/$name.err" < /dev/null ||
			[[ " $failed " = *" $name "* ]] || failed+=" $name"
		# without the launcher's label
		sed -n "s/^\(\[[0-9]*\]<stdout>: *\)\?\([^\t]*\t-\?[0-9.]*\)$/$i\t${name%-*}\t\2/p" "$logs/$name.out" >> "$logs/values"
	done
done
"$bin/python" "$BENCH/torch_table.py" < "$logs/values" || failed+=" (a goal)"
for name in $failed; do
	[ ! -s "$logs/$name.err" ] || { echo "failed: $name:"; tail -n 3 "$logs/$name.err"; }
done
[ -z "$failed" ] || { echo "failed, or over a goal:$failed"; exit 1; }
