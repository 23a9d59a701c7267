#!/usr/bin/env bats
# limit_s: 600
# takes_s: 60
# all: imports TensorFlow 8 times, and needs it in build/venv-tf
# shellcheck disable=SC2154 # bats sets output
# TensorFlow's own strategies by --tf-config, on one host and on two.  No GPU.
load jobs

TF=${TENSORFLOW_PYTHON:-$ROOT/build/venv-tf/bin/python3}

setup_file() {
	cluster_up 2
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	[ -x "$TF" ] || skip "no TensorFlow in build/venv-tf"
}

tf() { # OPTION...: runner on n0; four ranks import TensorFlow, perhaps beside other suites
	run on n0 timeout -k 5 200 "$RUNNER" -q --no-tag --oversubscribe -x TF_CPP_MIN_LOG_LEVEL=3 -x PYTHONDONTWRITEBYTECODE=1 "$@" < /dev/null
	[ "$status" = 0 ] || { echo "status $status: $output"; return 1; }
}

# fit() under this strategy is not for Keras 3.
@test "MultiWorkerMirroredStrategy: all ranks sum, and train alike" {
	script workers.py <<- 'P'
		import os
		import tensorflow as tf
		strategy = tf.distribute.MultiWorkerMirroredStrategy()
		@tf.function
		def total():
		    def f():
		        mine = tf.constant(float(os.environ["RANK"]) + 1)
		        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, mine)
		    return strategy.run(f)
		print("sum", strategy.num_replicas_in_sync, float(total()), flush=True)
		if tf.keras.version().startswith("2") if hasattr(tf.keras, "version") else tf.__version__ < "2.16":
		    with strategy.scope():
		        m = tf.keras.Sequential([tf.keras.layers.Dense(10, input_shape=(64,))])
		        m.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
		    x, y = tf.random.stateless_uniform((80, 64), (1, 2)), tf.range(80) % 10
		    h = m.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(40), verbose=0)
		    print("loss", h.history["loss"], flush=True)
	P
	for hosts in n1:2 n1,n2 n1:3 n1:2,n2; do
		tf --tf-config -H $hosts "$TF" /vc/t/workers.py
		case $hosts in n1:3 | n1:2,n2) sums='3 6.0' ;; *) sums='2 3.0' ;; esac
		[ "$(grep -c "^sum $sums$" <<< "$output")" = "${sums%% *}" ] || { echo "$output"; false; }
		[ "$(grep '^loss' <<< "$output" | sort -u | wc -l)" -le 1 ] || { echo "$output"; false; }
	done
}

@test "ParameterServerStrategy: the ps ends once chief and workers have ended" {
	script roles.py <<- 'P'
		import os, time
		os.environ["GRPC_FAIL_FAST"] = "use_caller"
		import tensorflow as tf
		resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
		if resolver.task_type != "chief":
		    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id)
		    while resolver.task_type == "ps" or not os.path.exists("/vc/t/trained"):
		        time.sleep(0.05)
		    os._exit(0)
		strategy = tf.distribute.ParameterServerStrategy(resolver)
		coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
		with strategy.scope():
		    v = tf.Variable(0.0)
		@tf.function
		def step():
		    v.assign_add(1.0)
		for _ in range(10):
		    coordinator.schedule(step)
		coordinator.join()
		print("steps", float(v), flush=True)
		open("/vc/t/trained", "w").close()
		os._exit(0)
	P
	rm -f "$STATE/t/trained"
	tf -H n1:2,n2:2 --tf-config=chief -np 1 "$TF" /vc/t/roles.py : -np 2 "$TF" /vc/t/roles.py : \
		--tf-config=ps -np 1 "$TF" /vc/t/roles.py
	says 'steps 10.0'
}
