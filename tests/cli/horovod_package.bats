#!/usr/bin/env bats
# limit_s: 240
# takes_s: 10
# more: what imports TensorFlow, which takes 5 s and more
# shellcheck disable=SC2001,SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output and stderr
# --horovod: scripts that import horovod run on berth.
load common

setup() {
	[ "$(nproc)" != 1 ] || export BERTH_QUIET=1 # ranks that share a core are a warning
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	export PYTHONDONTWRITEBYTECODE=1
	unset PYTHONPATH
	P=$BUILD/share/berth/python
}

r() { timeout -k 5 60 "$RUNNER" --oversubscribe "$@" < /dev/null; }
# Without tags, and without the entry of PYTHONPATH by which --dump learns stacks.
plain() { sed -E 's/^\[[0-9]*\]<std[a-z]*>://; s,^/proc/[0-9]+/fd/[0-9]+(:|$),,' <<< "$output" | sort; }

# An installation of its own: programs, package, libberth.
install_to() { # PREFIX
	make -s -C "$ROOT" BUILD="$BUILD" PREFIX="$1" DESTDIR=/ install > /dev/null
}

@test "PYTHONPATH begins with berth's directories, and ends as it was" {
	run -0 r --horovod -np 2 -x PYTHONPATH=/a:/b printenv PYTHONPATH
	[ "$(plain)" = "$P/as_horovod:$P:/a:/b
$P/as_horovod:$P:/a:/b" ]
	for given in --horovod --horovod=berth; do
		run -0 r "$given" -np 1 printenv PYTHONPATH
		[ "$(plain)" = "$P/as_horovod:$P" ]
	done
	BERTH_HOROVOD=berth run -0 r -np 1 printenv PYTHONPATH
	[ "$(plain)" = "$P/as_horovod:$P" ]
	run -0 r -np 1 printenv PYTHONPATH
	[ -z "$(plain)" ]
	run -0 r -np 1 --horovod=installed printenv PYTHONPATH
	[ -z "$(plain)" ]
	run -2 r --horovod=mine -np 1 true
	says "--horovod: 'mine' is not one of installed, berth"
}

@test "under the name horovodrun it is the default" {
	ln -s "$RUNNER" "$T/horovodrun"
	RUNNER=$T/horovodrun
	run -0 r -np 1 printenv PYTHONPATH
	[ "$(plain)" = "$P/as_horovod:$P" ]
	run -0 r --horovod=installed -np 1 printenv PYTHONPATH
	[ -z "$(plain)" ]
}

@test "import horovod: berth's functions under Horovod's names" {
	cat > "$T/train.py" <<- 'P'
		import horovod
		from horovod.common.exceptions import HorovodInternalError
		from horovod.common.process_sets import ProcessSet, global_process_set
		from horovod.common.util import env, gloo_built, split_list
		from horovod.runner.common.util.env import get_env_rank_and_size
		from horovod.runner.util.threads import in_thread
		from horovod.common.basics import HorovodBasics
		import berth
		assert horovod.run is berth.run and HorovodInternalError is berth.HorovodInternalError
		assert global_process_set is berth.global_process_set and gloo_built()
		hvd = HorovodBasics(__file__, "mpi_lib")
		hvd.init()
		assert get_env_rank_and_size() == (hvd.rank(), hvd.size())
		assert split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]
		with env(A="1", PATH=None):
		    import os
		    assert os.environ["A"] == "1" and "PATH" not in os.environ
		assert "A" not in os.environ and "PATH" in os.environ
		seen = []
		in_thread(seen.append, (7,)).join()
		assert seen == [7]
		print(horovod.__version__, hvd.rank(), hvd.size(), berth.allgather_object(hvd.rank()))
	P
	run -0 r --horovod -np 2 /usr/bin/python3 "$T/train.py"
	[ "$(plain)" = "0.28.1+berth.$("$RUNNER" --version | cut -d' ' -f2) 0 2 [0, 1]
0.28.1+berth.$("$RUNNER" --version | cut -d' ' -f2) 1 2 [0, 1]" ]
}

@test "horovod.torch: a script of Horovod's, unchanged" {
	PYTHON=$ROOT/build/venv/bin/python3
	[ -e "$ROOT/build/venv/installed" ] || skip "no PyTorch in build/venv (make venv)"
	cat > "$T/train.py" <<- 'P'
		import torch
		import horovod.torch as hvd
		from horovod.torch.mpi_ops import allreduce_async_, synchronize
		from horovod.torch.compression import Compression
		from horovod.torch.elastic.sampler import ElasticSampler
		import perseus.torch.horovod
		assert perseus.torch.horovod is hvd
		hvd.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
		hvd.init()
		model = torch.nn.Linear(2, 1)
		optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
		optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
		                                     compression=Compression.fp16)
		hvd.broadcast_parameters(model.state_dict(), root_rank=0)
		hvd.broadcast_optimizer_state(optimizer, root_rank=0)
		model(torch.full((4, 2), float(hvd.rank()))).sum().backward()
		optimizer.step()
		weights = hvd.allgather(model.weight.detach())
		assert torch.equal(weights[0], weights[1])
		assert hvd.elastic.ElasticSampler is ElasticSampler
		print(synchronize(allreduce_async_(torch.ones(2), op=hvd.Sum)).tolist())
	P
	run -0 r --horovod -np 2 --timeline-filename "$T/t.json" "$PYTHON" "$T/train.py"
	[ "$(plain)" = $'[2.0, 2.0]\n[2.0, 2.0]' ]
	# where Horovod's own test of the timeline looks, and what it looks for
	/usr/bin/python3 - "$T/t.json" <<- 'P'
		import json, sys
		events = json.load(open(sys.argv[1]))
		names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
		assert {"allreduce.weight", "ALLREDUCE"} <= {names[e["tid"]] for e in events if e["ph"] == "X"} | {
		    e["name"] for e in events if e["ph"] == "X"}, events
	P
}

# bats test_tags=all
@test "horovod.tensorflow, horovod.keras and perseus: their modules, hvd.keras by itself" {
	PYTHON=${TENSORFLOW_PYTHON:-$ROOT/build/venv-tf/bin/python3}
	[ -x "$PYTHON" ] || skip "no TensorFlow in build/venv-tf (make venv-tf)"
	cat > "$T/train.py" <<- 'P'
		import perseus.tensorflow.horovod as hvd
		import horovod.tensorflow
		from horovod.common.elastic import run_fn
		from horovod.common.util import is_version_greater_equal_than
		from horovod.tensorflow.compression import Compression
		from horovod.tensorflow.elastic import TensorFlowState
		from horovod.tensorflow.functions import broadcast_variables
		from horovod.tensorflow.mpi_ops import allreduce
		from horovod.tensorflow.util import _executing_eagerly
		import sys, tensorflow as tf
		assert not [name for name in sys.modules if name.startswith(("berth.", "horovod.")) and "keras" in name]
		assert hvd is horovod.tensorflow and hvd.check_extension("horovod.tensorflow") is None
		hvd.init()
		assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1]}
		assert hvd.util._executing_eagerly() and hvd._executing_eagerly()
		assert is_version_greater_equal_than(tf.__version__, "2.13.0")
		assert not is_version_greater_equal_than("2.16.0-rc1", "2.16.0")
		assert hvd.elastic.TensorFlowState is TensorFlowState and hvd.Compression is Compression
		hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0)
		import horovod.tensorflow.keras as of_tf, horovod.keras as of_keras
		assert hvd.keras is of_tf and of_tf.elastic.KerasState and of_keras.callbacks.MetricAverageCallback
		assert of_tf.callbacks.BestModelCheckpoint and of_keras.elastic.CommitStateCallback
		assert hvd.SyncBatchNormalization and isinstance(hvd.SyncBatchNormalization, type)
		print(hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist())
	P
	TF_CPP_MIN_LOG_LEVEL=3 run -0 --separate-stderr timeout -k 5 200 "$RUNNER" --oversubscribe --horovod -np 2 "$PYTHON" "$T/train.py"
	[ "$(plain)" = $'[2.0, 2.0]\n[2.0, 2.0]' ]
}

@test "horovod.run() in a script that runner did not start" {
	cat > "$T/job.py" <<- 'P'
		def work():
		    import horovod.common.basics as basics
		    hvd = basics.HorovodBasics()
		    hvd.init()
		    return hvd.allgather_object(hvd.rank())
	P
	run -0 --separate-stderr env PYTHONPATH="$T:$P/as_horovod:$P" timeout -k 5 60 /usr/bin/python3 -c '
import horovod, job
print(horovod.run(job.work, num_proc=2, use_gloo=True))'
	[ "$output" = '[[0, 1], [0, 1]]' ]
}

@test "what berth has not says so" {
	for name in mxnet spark ray; do
		run -1 r --horovod -np 1 /usr/bin/python3 -c "import horovod.$name"
		says "horovod.${name%%.*} is not part of Berth" "runner --horovod=installed"
	done
}

@test "an installed Horovod is hidden: one line of rank 0 says so" {
	mkdir -p "$T/site/horovod"
	echo '__version__ = "its own"' > "$T/site/horovod/__init__.py"
	export PYTHONPATH=$T/site
	run -0 --separate-stderr r --horovod -np 2 /usr/bin/python3 -c 'import horovod; print(horovod.__version__)'
	[[ $output == *0.28.1+berth* && $output != *own* ]]
	# shellcheck disable=SC2154
	[ "$stderr" = "[0]<stderr>:berth: horovod is Berth here, and hides the one in $T/site/horovod; --horovod=installed takes that one" ]
	run -0 --separate-stderr r --horovod=installed -np 2 /usr/bin/python3 -c 'import horovod; print(horovod.__version__)'
	[ "$(plain)" = $'its own\nits own' ]
	[ -z "$stderr" ]
	# its DataLoader's workers are no news
	cat > "$T/spawns.py" <<- 'P'
		import multiprocessing
		import horovod
		if __name__ == "__main__":
		    p = multiprocessing.get_context("spawn").Process(target=print)
		    p.start()
		    p.join()
	P
	run -0 --separate-stderr r --horovod -np 1 /usr/bin/python3 "$T/spawns.py"
	[ "$(wc -l <<< "$stderr")" = 1 ]
}

@test "an installation: its own package and libberth; without them no rank starts (E_HOROVOD)" {
	install_to "$T/opt"
	RUNNER=$T/opt/bin/runner
	run -0 r -np 1 printenv PYTHONPATH BERTH_LIBRARY
	[ "$(plain)" = "
$T/opt/share/berth/python/berth/libberth.so.0.2" ]
	BERTH_LIBRARY=/own.so run -0 r -np 1 printenv BERTH_LIBRARY
	[ "$(plain)" = /own.so ]
	run -0 r --horovod -np 1 printenv PYTHONPATH BERTH_LIBRARY
	[ "$(plain)" = "$T/opt/share/berth/python/as_horovod:$T/opt/share/berth/python
$T/opt/share/berth/python/berth/libberth.so.0.2" ]
	run -0 r --horovod -np 1 /usr/bin/python3 -c 'import horovod.common.basics as b, berth; berth.init(); print(berth.library.get().library._name)'
	[ "$(plain)" = "$T/opt/share/berth/python/berth/libberth.so.0.2" ]
	mv "$T/opt/lib" "$T/opt/gone"
	run -240 r --horovod -np 2 touch "$T/ran"
	says "could not start: --horovod needs berth's Python package and libberth: there is no '$T/opt/lib/libberth.so.0.2'"
	hinted
	mv "$T/opt/gone" "$T/opt/lib"
	mv "$T/opt/share/berth" "$T/opt/gone"
	run -240 r --horovod -np 2 touch "$T/ran"
	says "there is no '$T/opt/share/berth/python/as_horovod'" 'hint: install berth on that host'
	run -240 r --check --horovod -np 2 true
	says 'FAIL  program' "there is no '$T/opt/share/berth/python/as_horovod'"
	[ ! -e "$T/ran" ]
	run -0 r -np 1 printenv BERTH_LIBRARY
	[ "$(plain)" = "$T/opt/lib/libberth.so.0.2" ]
	rm "$T/opt/lib/libberth.so.0.2"
	run -1 r -np 1 printenv BERTH_LIBRARY
	silent_on "$T/opt"
}

@test "a package that others can write is not used: E_HOROVOD says by whom" {
	local prefix=$T/opt on
	install_to "$prefix"
	RUNNER=$prefix/bin/runner
	for on in share share/berth/python share/berth/python/berth/__init__.py lib/libberth.so.0.2; do
		chmod o+w "$prefix/$on"
		run -240 r --horovod -np 1 touch "$T/ran"
		says "could not start: --horovod needs berth's Python package and libberth: another user could replace '$prefix/" \
			"'$prefix/$on" "' can be written by all users"
		hinted
		chmod o-w "$prefix/$on"
	done
	run -0 r --horovod -np 1 true
	chmod o+w "$prefix/share" # what the user names is taken
	run -0 r -x PYTHONPATH="$prefix/share/berth/python" -np 1 /usr/bin/python3 -c 'import berth'
	[ ! -e "$T/ran" ]
}

@test "Horovod's own gloo, without horovodrun: the hint is --horovod" {
	local python=$ROOT/build/peers/torch/bin/python
	# What its rendezvous says after HOROVOD_GLOO_TIMEOUT_SECONDS (30).
	cat > "$T/says.py" <<- 'P'
		import os, sys
		sys.stderr.write("  what():  [gloo/memory_store.cc:52] Wait timeout after 30 seconds for key(s): 0. "
		                 "You may want to increase the timeout via HOROVOD_GLOO_TIMEOUT_SECONDS\n")
		os.abort()
	P
	run -134 r -np 1 sh -c "ulimit -c 0; exec /usr/bin/python3 $T/says.py"
	says 'hint: ' '--horovod'
	hinted
	run -134 r --horovod -np 1 sh -c "ulimit -c 0; exec /usr/bin/python3 $T/says.py"
	silent_on 'hint:'
	[ -x "${python%/*}/horovodrun" ] || skip "no Horovod to compare (make bench builds it)"
	run -134 r -np 2 -x HOROVOD_GLOO_TIMEOUT_SECONDS=1 sh -c "ulimit -c 0; exec $python -c 'import horovod.torch as h; h.init()'"
	says 'HOROVOD_GLOO_TIMEOUT_SECONDS' 'hint: Horovod' '--horovod'
}

@test "--check-build: the table of horovodrun" {
	LD_LIBRARY_PATH=$BUILD/standin r --check-build | grep -qx '    \[X\] NCCL' # where the loader finds it
	export BERTH_NCCL=$T/none
	run -0 r --check-build
	[ "${lines[0]}" = "Berth v$("$RUNNER" --version | cut -d' ' -f2):" ]
	says '    [X] PyTorch' '    [X] TensorFlow' 'Available Controllers:' '    [ ] MPI' '    [ ] NCCL' '    [X] Berth'
	[ "$(r -cb)" = "$output" ]
	cp "$RUNNER" "$T/runner" # without a package
	run -0 "$T/runner" -cb
	[[ $output != *'[X]'* && $output != *TensorFlow' '[0-9]* ]]
}

@test "--check-build: TensorFlow and Keras of the python3 in PATH, which imports neither" {
	mkdir -p "$T/bin" "$T/site/tensorflow" "$T"/site/{tensorflow_cpu-2.99.0,keras-3.99.0,tf_keras-2.99.1}.dist-info
	echo 'raise SystemExit("imported")' | tee "$T/site/keras.py" "$T/metadata.py" > "$T/site/tensorflow/__init__.py"
	for package in tensorflow_cpu-2.99.0 keras-3.99.0 tf_keras-2.99.1; do
		printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "${package%-*}" "${package#*-}" > "$T/site/$package.dist-info/METADATA"
	done
	ln -s /usr/bin/python3 "$T/bin/python3"
	export PATH=$T/bin:$PATH PYTHONPATH=$T/site
	cd "$T"
	run -0 r --check-build
	says "Found by $T/bin/python3:" '    TensorFlow 2.99.0: libberth_tf.so does not load: ' "$T/site/tensorflow/libtensorflow_framework.so.2" \
		'    Keras 3.99.0' '    tf-keras 2.99.1'
	PYTHONPATH='' run -0 r --check-build
	says '    no TensorFlow' '    no Keras'
	printf '#!/bin/sh\nexit 1\n' | install /dev/stdin "$T/bin/python3"
	run -0 r --check-build
	says '[X] Berth' "Not known: TensorFlow and Keras of python3: it has failed"
	run -0 timeout -k 5 60 env PATH=/nowhere "$RUNNER" --check-build
	says 'Not known: TensorFlow and Keras of python3: No such file or directory'
}
