#!/usr/bin/env bats
# takes_s: 0
# shellcheck disable=SC2154 # bats sets output
# runner --lint: mistakes in training scripts.  tests/cli/lint.py has the mistakes.
load common

setup() {
	cd "$T" || return
	printf 'import torch\n' > clean.py
	cat > 'bad one.py' <<- 'P'
		import os
		import torch.distributed as dist
		os.environ["MASTER_PORT"] = "29500"
		dist.init_process_group("gloo")
		if dist.get_rank() == 0:
		    dist.barrier()
	P
	cat > note.py <<- 'P'
		import horovod.torch as hvd
		hvd.init()
		model = make().cuda()
	P
}

@test "12 mistakes in three spellings each, and without the mistake" {
	run -0 /usr/bin/python3 "$ROOT/tests/cli/lint.py" "$ROOT/lib/python/berth/lint.py"
	[ -z "$output" ]
}

@test "nothing is found in the examples" {
	run -0 "$RUNNER" --lint "$ROOT"/examples/*.py
	[ -z "$output" ]
}

@test "line, finding and remedy; the status is 1, and 0 for a note" {
	run -1 --separate-stderr "$RUNNER" --lint clean.py 'bad one.py'
	[ -z "$stderr" ]
	[ "$output" = "bad one.py:3: MASTER_PORT is set to 29500, in place of the free port that runner chooses: two jobs on\
 one host meet at it
    fix: leave the line out, or use os.environ.setdefault() for starts without runner
bad one.py:6: barrier() waits for all ranks, and only some ranks call it: they hang
    fix: call it on every rank, outside of the test of the rank" ]
	run -0 "$RUNNER" --lint=note.py
	says "note.py:3: note: no rank chooses a GPU"
}

@test "files that cannot be read or parsed: 2, and the others are looked at" {
	printf 'if True\n' > broken.py
	printf 'x = 1\0\n' > zero.py
	printf '\377\376' > bytes.py
	head -c 20000 /dev/zero | tr '\0' '(' > deep.py
	run -2 "$RUNNER" --lint nowhere.py . broken.py zero.py bytes.py deep.py 'bad one.py'
	says "runner: --lint 'nowhere.py': cannot read it: No such file or directory" "--lint '.': cannot read it: Is a dir" \
		"--lint 'broken.py': cannot parse it: " "(line 1)" "--lint 'zero.py': cannot parse it" \
		"--lint 'bytes.py': cannot parse it" "--lint 'deep.py': cannot parse it" "bad one.py:6: "
	silent_on Traceback
}

@test "a script's name and the modules beside it: nothing of them runs" {
	printf 'open("ran", "w")\n' | tee ast.py re.py > sitecustomize.py
	printf 'open("ran", "w")\nimport ast\n' > $'a\n\033[1m.py'
	PYTHONPATH=$T run -0 "$RUNNER" --lint $'a\n\033[1m.py' ast.py
	[ ! -e ran ]
	printf '(' > $'a\n\033[1m.py'
	run -2 "$RUNNER" --lint $'a\n\033[1m.py'
	says "--lint 'a??[1m.py'"
}

@test "E_LINT: no python3 in PATH, no package" {
	PATH=$T run -2 "$RUNNER" --lint clean.py
	says "runner: --lint: cannot run python3: No such file or directory"
	hinted
	mkdir -p copy/bin
	cp "$RUNNER" copy/bin/runner
	run -2 copy/bin/runner --lint clean.py
	says "runner: --lint: there is no '$T/copy/share/berth/python" "install berth with its Python package"
	hinted
	run -2 "$RUNNER" --lint
	says "--lint"
}
