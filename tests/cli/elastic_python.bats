#!/usr/bin/env bats
# limit_s: 900
# takes_s: 12
# more: with PyTorch, which each rank imports
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# lib/python: elastic.run() in worlds that follow, with ranks that are killed (elastic.py says when).
load common

TORCH=$ROOT/build/venv/bin/python3

setup() {
	[ "$(nproc)" != 1 ] || export BERTH_QUIET=1 # ranks that share a core are a warning
	export PYTHONPATH=$ROOT/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so OMP_NUM_THREADS=1
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
}

ranks() { # NP OPTION... COMMAND...
	timeout -k 5 120 "$RUNNER" -q --no-tag --oversubscribe -x PYTHONPATH -x PYTHONDONTWRITEBYTECODE -x BERTH_LIBRARY \
		-np "$@"
}

# All 4 ranks end with the state of the undisturbed training, though some are killed at WHEN.
trained() { # CAME WHEN...
	run -0 --separate-stderr ranks 4 --restarts 20 /usr/bin/python3 "$BATS_TEST_DIRNAME/elastic.py" 20 4 "${@:2}"
	[ "$(grep -c '^4 ranks, the state is that of' <<< "$output") $(grep -c ' came$' <<< "$output")" = "1 $1" ] ||
		{ echo "$output"; return 1; }
}

@test "worlds and elastic.run(), with 1, 2 and 3 ranks" {
	/usr/bin/python3 -c 'import pytest' || skip "no pytest (tests/deps check installs it)"
	for np in 1 2 3; do
		run ranks $np /usr/bin/python3 -m pytest -q -p no:cacheprovider "$ROOT/lib/python/tests/test_elastic.py"
		[ "$status $(grep -c '^[0-9]* passed' <<< "$output")" = "0 $np" ] || { echo "$output"; return 1; }
	done
}

@test "a rank is killed, also rank 0: it comes back, and no step is lost" {
	trained 1 2@7
	trained 1 0@7
	trained 1 3@7+
}

@test "two at once, and three" {
	trained 2 0@7 1@7
	trained 3 0@7 1@7+ 2@8
}

@test "one after the other, until nobody is left who was there at the beginning" { trained 4 1@2 2@4 3@6 0@12; }

@test "others are killed in the world that follows, before they have the state" {
	trained 2 2@7 0@7r
	trained 2 2@7 1@7s
	trained 1 2@7 2@0i
}

@test "with --keep-going the others go on without it" {
	run -137 --separate-stderr ranks 4 --keep-going /usr/bin/python3 "$BATS_TEST_DIRNAME/elastic.py" 20 1 0@7 2@9
	[ "$output" = "2 ranks, the state is that of the undisturbed training" ]
}

@test "without runner the function runs once: a line says so" {
	cat > "$T/once.py" <<- 'P'
		import berth as hvd
		from berth import elastic
		hvd.init()
		print(elastic.run(lambda state: state.epoch)(elastic.ObjectState(epoch=3)))
	P
	run -0 --separate-stderr /usr/bin/python3 "$T/once.py"
	[ "$output" = 3 ]
	[ "$stderr" = "berth: elastic.run: the function runs once, and is not repeated after an error: runner did not start this program" ]
	run -0 --separate-stderr ranks 2 /usr/bin/python3 "$T/once.py"
	[ "$output $stderr" = $'3\n3 ' ]
}

# bats test_tags=all
@test "a model of PyTorch: ranks are killed, also rank 0 and two at once" {
	[ -e "$ROOT/build/venv/installed" ] || skip "no build/venv (make venv)"
	for kills in "2@7 0@30+" "0@7 1@7" "1@5 2@5r"; do
		# shellcheck disable=SC2086 # words
		run -0 --separate-stderr ranks 4 --restarts 20 --warm "$TORCH" "$BATS_TEST_DIRNAME/elastic.py" 40 4 torch $kills
		[ "$(grep -c '^4 ranks, the state is that of' <<< "$output")" = 1 ] || { echo "$output"; false; }
	done
}

# bats test_tags=all
@test "a script with horovod.torch as it is" {
	[ -e "$ROOT/build/venv/installed" ] || skip "no build/venv (make venv)"
	unset PYTHONPATH BERTH_LIBRARY
	cat > "$T/train.py" <<- 'P'
		import os, signal
		import torch
		import horovod.torch as hvd
		hvd.init()
		model = torch.nn.Linear(4, 1)
		optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1 * hvd.size()))
		life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
		@hvd.elastic.run
		def train(state):
		    while state.batch < 20 or hvd.size() < 3:
		        if (hvd.rank(), state.batch, life) == (1, 5, 0):
		            os.kill(os.getpid(), signal.SIGKILL)
		        optimizer.zero_grad()
		        model(torch.randn(8, 4)).square().sum().backward()
		        optimizer.step()
		        state.batch += 1
		        state.commit()
		def on_state_reset():
		    for group in optimizer.param_groups:
		        group["lr"] = 0.1 * hvd.size()
		state = hvd.elastic.TorchState(model, optimizer, batch=0)
		state.register_reset_callbacks([on_state_reset])
		train(state)
		of_all = hvd.allgather(model.weight.detach())
		print("equal", all(torch.equal(w, of_all[0]) for w in of_all), hvd.size(), optimizer.param_groups[0]["lr"])
	P
	run -0 --separate-stderr timeout -k 5 120 "$RUNNER" -q --no-tag --oversubscribe --horovod --restarts 5 --warm -np 3 "$TORCH" "$T/train.py"
	[ "$(grep -c '^equal True 3 0.3' <<< "$output")" = 3 ] || { echo "$output"; false; }
}
