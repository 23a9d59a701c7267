#!/usr/bin/env bats
# limit_s: 400
# takes_s: 45
# all: imports JAX 12 times, and needs it in build/venv-jax (make venv-jax)
# shellcheck disable=SC2154 # bats sets output
# JAX and keras.distribution find all ranks without an argument; berth.jax.  No GPU.
load jobs

JAX=$ROOT/build/venv-jax/bin/python3

setup_file() {
	cluster_up 2
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	[ -e "$ROOT/build/venv-jax/installed" ] || skip "no JAX in build/venv-jax (make venv-jax)"
}

# The sum over all ranks of their numbers plus one, by each rank.
sums() { # CALL
	script sums.py <<- P
		$1
		import jax.numpy as jnp, numpy as np
		from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
		mesh = Mesh(np.array(jax.devices()), ("d",))
		mine = np.full((1, 4), jax.process_index() + 1., np.float32)
		x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("d")), mine)
		total = jax.jit(lambda a: a.sum(0), out_shardings=NamedSharding(mesh, P()))(x).addressable_data(0)
		print("process", jax.process_index(), "of", jax.process_count(), "sum", float(total[0]), flush=True)
	P
}

jax_job() { # OPTION...
	run r -q --no-tag --oversubscribe -x JAX_PLATFORMS=cpu "$@" "$JAX" /vc/t/sums.py
	[ "$status" = 0 ] || { echo "status $status: $output"; return 1; }
}

of() { # NP SUM: what NP processes say
	local i
	for ((i = 0; i < $1; i++)); do
		echo "process $i of $1 sum $2"
	done
}

@test "jax.distributed.initialize() without arguments: on one host, and on two" {
	sums $'import jax\njax.distributed.initialize()'
	jax_job -H n1:2
	[ "$(grep ^process <<< "$output" | sort)" = "$(of 2 3.0)" ]
	jax_job -H n1:2,n2:2
	[ "$(grep ^process <<< "$output" | sort)" = "$(of 4 10.0)" ]
}

@test "berth.jax.initialize(): the same; alone it does nothing" {
	sums $'import berth.jax, jax\nberth.jax.initialize(initialization_timeout=100)'
	jax_job -H n1,n2 -x PYTHONPATH="$ROOT/lib/python" -x PYTHONDONTWRITEBYTECODE=1
	[ "$(grep ^process <<< "$output" | sort)" = "$(of 2 3.0)" ]
	run -0 env JAX_PLATFORMS=cpu PYTHONPATH="$ROOT/lib/python" PYTHONDONTWRITEBYTECODE=1 "$JAX" "$STATE/t/sums.py"
	says "$(of 1 1.0)"
}

@test "keras.distribution.initialize() without arguments: equal weights after fit()" {
	script sums.py <<- 'P'
		import os
		os.environ["KERAS_BACKEND"] = "jax"
		import keras, numpy as np
		keras.distribution.initialize()
		import jax
		assert jax.process_count() == 2
		keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
		keras.utils.set_random_seed(0)
		m = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
		m.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
		r = np.random.RandomState(jax.process_index())
		x, y = r.rand(40, 64).astype("float32"), r.randint(0, 10, 40)
		h = m.fit(x, y, batch_size=20, epochs=2, verbose=0, shuffle=False)
		w = [np.asarray(v.addressable_data(0)) for v in (p.value for p in m.weights)]
		print("weights", sum(float(np.abs(v).sum()) for v in w), flush=True)
	P
	jax_job -H n1,n2
	[ "$(grep -c ^weights <<< "$output")" = 2 ]
	[ "$(grep ^weights <<< "$output" | sort -u | wc -l)" = 1 ] || { echo "$output"; false; }
}
