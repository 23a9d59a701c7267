#!/bin/bash
# tensorflow.sh [ROUNDS]: TensorFlow's collectives and a step of Keras, with 2 ranks of this machine on
# one core each, by Berth and by Horovod, in turns; some 2 minutes a round.  tensorflow_table.py has
# the goals.
# HOROVOD_PYTHON is a python that has TensorFlow and Horovod 0.28.1; Berth then runs in it, too.  Else
# TENSORFLOW_PYTHON, or build/venv-tf (make venv-tf), without Horovod.
# ONLY="berth berth-np1" takes some of: horovod horovod-tuned horovod-np1 berth berth-np1.
set -eu
. "$(dirname "$0")/common.bash"
rounds=${1:-5}
cd "$ROOT"
python=${HOROVOD_PYTHON:-${TENSORFLOW_PYTHON:-$ROOT/build/venv-tf/bin/python3}}
[ -x "$python" ] || { echo "skipped: TensorFlow (no $python; make venv-tf installs it)"; exit 0; }
logs=$BUILD/bench/tensorflow
rm -rf "$logs/python"
mkdir -p "$logs/python"
# compiled, as pip installs it and as Horovod is there: else each import compiles it
cp -r "$ROOT/lib/python/berth" "$logs/python"
"$python" -m compileall -q "$logs/python"
export PYTHONPATH=$logs/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so
export BERTH_TENSORFLOW=op OMP_NUM_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3

names=()
if [ -n "${HOROVOD_PYTHON:-}" ]; then
	names+=(horovod horovod-tuned horovod-np1)
else
	echo "skipped: Horovod (no HOROVOD_PYTHON)"
fi
names+=(berth berth-np1)
[ -z "${ONLY:-}" ] || read -r -a names <<< "$ONLY"

horovodrun() { # NP ARGUMENT...
	# shellcheck disable=SC2016 # for the rank's shell: one core each, as runner binds ranks
	"$python" -c 'from horovod.runner.launch import run_commandline; run_commandline()' --gloo -np "$1" -H "localhost:$1" \
		bash -c 'exec taskset -c "$HOROVOD_LOCAL_RANK" "$@"' bash "$python" "$BENCH/tensorflow_times.py" horovod.tensorflow "${@:2}"
}

program() { # NAME
	case $1 in
	horovod) horovodrun 2 ;;
	horovod-tuned) HOROVOD_CYCLE_TIME=0 horovodrun 2 ;;
	horovod-np1) horovodrun 1 optimizer ;;
	berth) "$RUNNER" -q -np 2 --bind-to core "$python" "$BENCH/tensorflow_times.py" berth.tensorflow ;;
	berth-np1) "$RUNNER" -q -np 1 --bind-to core "$python" "$BENCH/tensorflow_times.py" berth.tensorflow optimizer ;;
	*) echo "tensorflow.sh: no program '$1'" >&2; return 2 ;;
	esac
}
export -f program horovodrun
export RUNNER BENCH python # for them

: > "$logs/values"
failed=
for ((i = 0; i < rounds; i++)); do
	for ((j = 0; j < ${#names[@]}; j++)); do
		name=${names[(i + j) % ${#names[@]}]}
		# shellcheck disable=SC2016 # for that shell
		timeout -k 5 600 bash -c 'program "$1"' bash "$name" > "$logs/$name.out" 2> "$logs/$name.err" < /dev/null ||
			[[ " $failed " = *" $name "* ]] || failed+=" $name"
		# without the launcher's label
		sed -n "s/^\(\[[0-9]*\]<stdout>: *\)\?\([^\t]*\t-\?[0-9.]*\)$/$i\t${name%-np1}\t\2/p" "$logs/$name.out" >> "$logs/values"
	done
done
"$python" "$BENCH/tensorflow_table.py" < "$logs/values" || failed+=" (a goal)"
for name in $failed; do
	[ ! -s "$logs/$name.err" ] || { echo "failed: $name:"; tail -n 3 "$logs/$name.err"; }
done
[ -z "$failed" ] || { echo "failed, or over a goal:$failed"; exit 1; }
