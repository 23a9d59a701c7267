#!/usr/bin/env bats
# limit_s: 1800
# takes_s: 0
# more: all of it, as each rank imports TensorFlow, which takes 5 s and more
# alone: TensorFlow takes all cores while ranks import it, and other suites measure times
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# lib/python/berth/tensorflow over libberth_tf.so: its tests with the ranks of runner.
load common

PYTHON=${TENSORFLOW_PYTHON:-$ROOT/build/venv-tf/bin/python3}
TESTS=$ROOT/lib/python/tests/tensorflow

setup() {
	export OMP_NUM_THREADS=1 TF_CPP_MIN_LOG_LEVEL=3 BERTH_TENSORFLOW=op
	export PYTHONPATH=$ROOT/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
}

need_tensorflow() {
	[ -x "$PYTHON" ] || skip "no TensorFlow in build/venv-tf (make venv-tf)"
}

ranks() { # NP COMMAND...
	timeout -k 5 600 "$RUNNER" -q --no-tag --oversubscribe -np "$1" -x PYTHONPATH -x PYTHONDONTWRITEBYTECODE \
		-x BERTH_LIBRARY -x BERTH_TENSORFLOW "$PYTHON" "${@:2}"
}

# All ranks have passed all tests of FILES.
tested() { # NP FILE...
	run ranks "$1" -m pytest -q -p no:cacheprovider "${@:2}"
	[ "$status $(grep -c '^[0-9]* passed' <<< "$output")" = "0 $1" ] || { echo "$output"; return 1; }
}

@test "the ops need libberth and TensorFlow by their sonames, and show three functions" {
	run -0 readelf -dW "$BUILD/lib/libberth_tf.so"
	says "Shared library: [libtensorflow_framework.so.2]" "Shared library: [libberth.so."
	run -0 nm -D --defined-only --format=just-symbols "$BUILD/lib/libberth_tf.so"
	[ "$(sort <<< "$output")" = $'berth_tf_set\nberth_tf_wrong\nberth_tf_xla' ]
}

# bats test_tags=all
@test "--check-build and --check name TensorFlow and Keras, and how its operations are done" {
	need_tensorflow
	PATH=${PYTHON%/*}:$PATH run -0 "$RUNNER" --check-build
	says "Found by ${PYTHON%/*}/python3:" '    Keras '
	grep -qE '^    TensorFlow 2\.[0-9.]+: libberth_tf.so loads$' <<< "$output"
	printf 'import tensorflow as tf\nimport berth.tensorflow as hvd\n' > "$T/train.py"
	checked() { BERTH_TENSORFLOW=$1 run -0 "$RUNNER" --check --start-timeout 100 -np 1 "$PYTHON" "$T/train.py"; }
	checked op
	grep -qE "2 imports of $T/train.py, TensorFlow [0-9.]+ with libberth_tf.so, Keras [0-9.]+" <<< "$output"
	checked numpy
	says ' without libberth_tf.so (BERTH_TENSORFLOW=numpy), Keras '
}

# bats test_tags=all
@test "berth.tensorflow, with 2 ranks" {
	need_tensorflow
	tested 2 "$TESTS"
}

# bats test_tags=all
@test "berth.tensorflow, alone" {
	need_tensorflow
	tested 1 "$TESTS"
}

# bats test_tags=all
@test "the same by numpy_function, with 2 ranks" {
	need_tensorflow
	BERTH_TENSORFLOW=numpy tested 2 "$TESTS"
}

# bats test_tags=all
@test "ops that do not load: one line, and the same by numpy_function; an error, if they have to" {
	need_tensorflow
	mkdir "$T/lib"
	cp "$BUILD"/lib/libberth.so* "$T/lib"
	echo 'no library' > "$T/lib/libberth_tf.so"
	cat > "$T/sums.py" <<- 'P'
		import tensorflow as tf
		import berth.tensorflow as hvd
		hvd.init()
		print("sum", hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist())
	P
	BERTH_LIBRARY=$T/lib/libberth.so BERTH_TENSORFLOW='' run -0 ranks 2 "$T/sums.py"
	[ "$(grep -c '^sum \[2.0, 2.0\]$' <<< "$output") $(grep -c 'tensors go by numpy_function' <<< "$output")" = "2 1" ]
	BERTH_LIBRARY=$T/lib/libberth.so run -1 "$PYTHON" "$T/sums.py"
	says "ImportError: libberth_tf.so can't be used"
}

# bats test_tags=all
@test "each public name is in the reference, with an example that runs" {
	need_tensorflow
	export REFERENCE=$BUILD/man/berth.tensorflow.3
	make -s -C "$ROOT" "${REFERENCE#"$ROOT"/}"
	tested 1 "$ROOT/lib/python/tests/test_tensorflow_reference.py"
}

# bats test_tags=all
@test "a rank dies: the others get an error; a script with an operation in flight ends" {
	need_tensorflow
	cat > "$T/dies.py" <<- 'P'
		import os, signal, sys, time
		import tensorflow as tf
		import berth.tensorflow as hvd
		hvd.init()
		calls = {"eager": lambda x: hvd.allreduce(x), "graph": tf.function(lambda x: hvd.allreduce(x, name="w"))}
		call = calls[sys.argv[1]]
		call(tf.ones(3))
		if hvd.rank() == 1:
		    os.kill(os.getpid(), signal.SIGKILL)
		began = time.monotonic()
		try:
		    call(tf.ones(3))
		except tf.errors.UnknownError as e:
		    print("told in time" if time.monotonic() - began < 2 else "told late", str(e))
		made = hvd.elastic.run(lambda state: call(tf.ones(3)))(hvd.elastic.ObjectState())
		print("in elastic.run", hvd.size(), made.numpy().tolist())
	P
	for way in eager graph; do
		run -137 timeout -k 5 200 "$RUNNER" -q --no-tag --oversubscribe --keep-going -np 3 "$PYTHON" "$T/dies.py" $way
		[ "$(grep -c 'told in time.*rank 1 on .* has ended' <<< "$output")" = 2 ] || { echo "$output"; false; }
		[ "$(grep -cx 'in elastic.run 2 \[1.0, 1.0, 1.0\]' <<< "$output")" = 2 ]
	done
	cat > "$T/leaves.py" <<- 'P'
		import threading
		import tensorflow as tf
		import berth.tensorflow as hvd
		hvd.init()
		call = tf.function(lambda x: hvd.allreduce(x, name="w"))
		call(tf.ones(3))
		if hvd.rank() == 0:
		    begins = threading.Event()
		    threading.Thread(target=lambda: (begins.set(), call(tf.ones(3))), daemon=True).start()
		    begins.wait()
		print("left")
	P
	run -0 ranks 2 "$T/leaves.py"
	[ "$(grep -c '^left$' <<< "$output")" = 2 ]
}

# bats test_tags=all
@test "a rank dies in fit() of Keras: elastic.run of the others goes on in time, from the last commit" {
	need_tensorflow
	cat > "$T/fit.py" <<- 'P'
		import os, signal, time
		import numpy as np
		import tensorflow as tf
		import berth.tensorflow.keras as hvd
		hvd.init()
		class Dies(tf.keras.callbacks.Callback):
		    def on_train_batch_begin(self, batch, logs=None):
		        self.began = time.monotonic()
		        if (hvd.rank(), hvd.size(), batch) == (1, 3, 3):
		            os.kill(os.getpid(), signal.SIGKILL)
		model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
		model.build((None, 4))
		model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
		x, dies = np.ones([20, 4], np.float32), Dies()
		@hvd.elastic.run
		def train(state):
		    if hvd.size() == 2:
		        in_time = time.monotonic() - dies.began < 2
		        print("went on", in_time, state.batch, int(model.optimizer.iterations), hvd.size())
		    model.fit(x, x[:, :1], batch_size=2, verbose=0, callbacks=[
		        hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.CommitStateCallback(state), dies])
		state = hvd.elastic.KerasState(model, batch=0)
		train(state)
	P
	run -137 timeout -k 5 200 "$RUNNER" -q --no-tag --oversubscribe --keep-going -np 3 "$PYTHON" "$T/fit.py"
	[ "$(grep -c 'went on True 2 3 2' <<< "$output")" = 2 ] || { echo "$output"; false; }
}
