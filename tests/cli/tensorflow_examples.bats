#!/usr/bin/env bats
# limit_s: 1200
# takes_s: 0
# all: each rank imports TensorFlow, which takes 5 s and more
# alone: TensorFlow takes all cores while ranks import it, and other suites measure times
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# The examples that import horovod and perseus, with the packages of runner --horovod and 2 ranks.
load common

PYTHON=${TENSORFLOW_PYTHON:-$ROOT/build/venv-tf/bin/python3}

setup() {
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	[ -x "$PYTHON" ] || skip "no TensorFlow in build/venv-tf (make venv-tf)"
	export OMP_NUM_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3 BERTH_TENSORFLOW=op PYTHONDONTWRITEBYTECODE=1
	unset BERTH_LIBRARY PYTHONPATH
}

# Rank 0 says once that most digits were known.
learned() { # NAME ARGUMENT...
	run -0 timeout -k 5 300 "$RUNNER" --horovod -q --no-tag --oversubscribe -np 2 -x BERTH_TENSORFLOW "$PYTHON" \
		"$ROOT/examples/$1.py" "${@:2}"
	[ "$(grep -c 'accuracy 0\.[89].* on 297 digits' <<< "$output")" = 1 ] || { echo "$output"; return 1; }
}

@test "tensorflow_monitored_session learns, and goes on from the checkpoint of rank 0" {
	learned tensorflow_monitored_session "$T/checkpoints"
	[ -e "$T/checkpoints/model.ckpt-1000.index" ]
	learned tensorflow_monitored_session "$T/checkpoints"
	[ -e "$T/checkpoints/model.ckpt-1001.index" ] # one step, to see that it is beyond the last
}

@test "tensorflow_session learns" { learned tensorflow_session; }

@test "tensorflow_loop learns" { learned tensorflow_loop; }

@test "tensorflow_keras_fit learns, and rank 0 writes a model after each epoch" {
	mkdir "$T/models"
	learned tensorflow_keras_fit "$T/models"
	[ "$(cd "$T/models" && echo *)" = "$(echo epoch-{1..8}.keras)" ]
}
