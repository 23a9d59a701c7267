#!/usr/bin/env bats
# limit_s: 240
# takes_s: 13
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# lib/python: the package berth, with the ranks of runner and alone.
load common

setup() {
	[ "$(nproc)" != 1 ] || export BERTH_QUIET=1 # ranks that share a core are a warning
	export PYTHONPATH=$ROOT/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
}

# All ranks have passed all tests.
tested() { # NP
	run timeout -k 5 60 "$RUNNER" -q --no-tag --oversubscribe -np "$1" -x PYTHONPATH -x PYTHONDONTWRITEBYTECODE \
		-x BERTH_LIBRARY /usr/bin/python3 -m pytest -q -p no:cacheprovider "$ROOT/lib/python/tests/test_common.py"
	[ "$status $(grep -c '^[0-9]* passed' <<< "$output")" = "0 $1" ] || { echo "$output"; return 1; }
}

@test "the common part, with 1, 2 and 3 ranks" {
	/usr/bin/python3 -c 'import pytest' || skip "no pytest (tests/deps check installs it)"
	for np in 1 2 3; do tested $np; done
}

@test "a program that no launcher started is alone" {
	run -0 /usr/bin/python3 -c 'import berth as hvd; hvd.init(); print(hvd.rank(), hvd.size(), hvd.allgather_object(7))'
	[ "$output" = "0 1 [7]" ]
}

@test "no libberth, or another: what to do" {
	export BERTH_LIBRARY=/nowhere/libberth.so
	run -1 /usr/bin/python3 -c 'import berth; print("imported", flush=True); berth.init()'
	[[ $output == "imported"*"ImportError: no libberth.so.0.2 (/nowhere/libberth.so: cannot open shared object file"* ]]
	[[ $output == *"build it with make, install it with make install, or give its file in BERTH_LIBRARY" ]]
	export BERTH_LIBRARY=libc.so.6
	run -1 /usr/bin/python3 -c 'import berth; berth.init()'
	[[ $output == *"ImportError: no libberth.so.0.2 ("*"undefined symbol: berth_init); "* ||
		$output == *"ImportError: no libberth.so.0.2 ("*"undefined symbol: berth_init): build"* ]]
	echo 'const char *berth_version(void) { return "9.1.0"; }' > "$T/foreign.c"
	grep -oE '"berth_[a-z_]+": \(' "$ROOT/lib/python/berth/clib.py" | grep -oE 'berth_[a-z_]+' | grep -vx berth_version |
		sed 's/.*/void &(void) {}/' >> "$T/foreign.c"
	gcc -w -shared -fPIC -o "$T/foreign.so" "$T/foreign.c"
	export BERTH_LIBRARY=$T/foreign.so
	run -1 /usr/bin/python3 -c 'import berth; berth.init()'
	[[ $output == *"HorovodVersionMismatchError: $T/foreign.so has version 9.1.0, but 0.2 is needed" ]]
}

@test "its version is that of runner" {
	run -0 /usr/bin/python3 -c 'import berth; print("runner", berth.__version__)'
	[ "$output" = "$("$RUNNER" --version)" ]
}

@test "each name of __all__ is there" {
	run -0 /usr/bin/python3 -c 'import berth; print([n for n in berth.__all__ if not hasattr(berth, n)])'
	[ "$output" = "[]" ]
}

@test "in the tree the library is found without a variable" {
	[ "$BUILD" = "$ROOT/build" ] || skip "the library is not in build/"
	unset BERTH_LIBRARY
	run -0 /usr/bin/python3 -c 'import berth; berth.init(); print(berth.size())'
	[ "$output" = 1 ]
}

@test "what is built in; timelines in Horovod's form, of rank 0" {
	cat > "$T/timeline.py" <<- 'P'
		import json, os, sys
		import berth as hvd
		path = sys.argv[1]
		for call in (hvd.is_homogeneous, hvd.mpi_threads_supported, hvd.stop_timeline,
		             lambda: hvd.start_timeline(path)):
		    try:
		        call()
		    except ValueError as e:
		        assert "hvd.init()" in str(e)
		    else:
		        raise AssertionError(call)
		hvd.init()
		built = [getattr(hvd, f"{name}_built")() for name in ("gloo", "mpi", "nccl", "ddl", "ccl", "cuda", "rocm")]
		assert built == [True, False, 0, False, False, False, False] and type(built[2]) is int
		assert hvd.is_homogeneous() and hvd.gloo_enabled() and not hvd.mpi_enabled()
		assert hvd.mpi_threads_supported() is False

		def recorded(mark_cycles, end):
		    hvd.start_timeline(path, mark_cycles=mark_cycles)
		    hvd.start_timeline(path)  # goes on
		    hvd.allgather_object(hvd.rank(), name="who")
		    end()
		    if not is_first:
		        assert not os.path.exists(f"{path}.1")
		        return []
		    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
		    events = json.load(open(path))
		    assert all(e["ph"] in "MBEi" for e in events) and events[-1]["ts"] > 0
		    assert sum(e["ph"] == "B" for e in events) == sum(e["ph"] == "E" for e in events)
		    assert {"name": "process_name", "ph": "M", "pid": 3, "args": {"name": "who"}} in events
		    assert sum("start_time_since_epoch_in_micros" in e.get("args", ()) for e in events) == 1
		    return [e.get("name") for e in events]

		is_first = hvd.rank() == 0
		for end in (hvd.stop_timeline, hvd.shutdown):
		    for marked in (True, False):
		        hvd.init()
		        names = recorded(marked, end)
		        if is_first:
		            assert "ALLGATHER" in names and "NEGOTIATE_ALLGATHER" in names, names
		            assert ("CYCLE_START" in names) == marked
		            os.unlink(path)
		hvd.init()
		hvd.stop_timeline()  # there is none
		try:
		    hvd.start_timeline("/nowhere/t")
		except FileNotFoundError:
		    assert is_first
		hvd.shutdown()
		print("ended")
	P
	mkdir "$T/files"
	run -0 timeout -k 5 60 "$RUNNER" -q --no-tag --oversubscribe -np 2 /usr/bin/python3 "$T/timeline.py" "$T/files/t.json"
	[ "$output" = $'ended\nended' ]
}

# ---- python -m berth, berth.run(), installations ----

@test "python -m berth is runner" {
	run -0 /usr/bin/python3 -m berth --version
	[ "$output" = "$("$RUNNER" --version)" ]
	run -3 /usr/bin/python3 -m berth -np 1 sh -c 'exit 3' < /dev/null
	cp -r "$ROOT/lib/python/berth" "$T/berth" # no runner near it
	PYTHONPATH=$T run -0 env PATH="$BUILD/bin:$PATH" /usr/bin/python3 -m berth --version
	PYTHONPATH=$T run -1 env PATH=/usr/bin:/bin /usr/bin/python3 -m berth --version
	[[ $output == "berth: no runner in PATH: build it with make"* ]]
}

@test "berth.run: what each rank returns, in their order; its output is shown" {
	cat > "$T/job.py" <<- 'P'
		import os, sys
		import berth as hvd
		def work(a, big=0):
		    hvd.init()
		    print("here", hvd.rank(), end="")
		    assert sys.stdin.read() == ""
		    return a + sum(hvd.allgather_object(hvd.rank())), b"x" * big, hvd.rank()
		def fails(how):
		    if os.environ["RANK"] == "1":
		        how()
		    hvd.init()
	P
	cd "$T"
	run -0 --separate-stderr timeout -k 5 60 /usr/bin/python3 -c '
import berth, job
got = berth.run(job.work, (10,), {"big": 1000000}, num_proc=2)
print([(a, len(b), c) for a, b, c in got])
print(berth.run(job.work, [1], np=1)[0][0])'
	[ "$(sort <<< "$output")" = "$(printf '%s\n' 1 '[(11, 1000000, 0), (11, 1000000, 1)]' '[0]<stdout>:here 0' \
		'[0]<stdout>:here 0' '[1]<stdout>:here 1' | sort)" ]
	# shellcheck disable=SC2154
	[ -z "$stderr" ]
	run -1 timeout -k 5 60 /usr/bin/python3 -c 'import berth, job; berth.run(job.fails, ({}.popitem,), np=2)'
	says 'RuntimeError: rank 1 raised:' 'in fails' "KeyError: 'popitem(): dictionary is empty'"
	run -1 timeout -k 5 60 /usr/bin/python3 -c 'import berth, job, os; berth.run(job.fails, (os.abort,), np=2)'
	says 'was ended by SIGABRT' 'RuntimeError: runner ended with status 134'
	run -1 timeout -k 5 60 /usr/bin/python3 -c 'import berth, job; berth.run(job.work, (1,), np=2, min_np=3)'
	says "runner: the number of ranks is to be 2, at least 3" 'RuntimeError: runner ended with status 2'
	run -1 timeout -k 5 60 /usr/bin/python3 -c '
import sys
sys.modules["cloudpickle"] = None
import berth
berth.run(lambda: 1, np=1)'
	says "is not importable on the ranks: install cloudpickle"
}

@test "what another user could replace is not used: the package of berth.run (E_PACKAGE), libberth, runner" {
	mkdir -m 777 "$T/open" "$T/open/python" "$T/cwd" "$T/cwd/berth"
	cp -r "$ROOT/lib/python/berth" "$T/open/python"
	echo 'def work(): return 7' > "$T/job.py"
	# a folder below /tmp, which nobody named
	cat > "$T/drive.py" <<- P
		import os, sys
		sys.path[:0] = ["$T/open/python", "$T"]
		import berth, job
		print(berth.run(job.work, np=1))
	P
	export PATH=$BUILD/bin:$PATH
	chmod 755 "$T/open/python"
	run -1 env -u PYTHONPATH timeout -k 5 60 /usr/bin/python3 "$T/drive.py"
	says "berth.run() cannot give ranks its package: another user could replace '$T/open/python': '" 'hint: name its folder in PYTHONPATH'
	# named, it is taken; a package of that name in the current folder is not
	echo "open('$T/planted', 'w')" > "$T/cwd/berth/__init__.py"
	cd "$T/cwd"
	PYTHONPATH=$T/open/python run -0 timeout -k 5 60 /usr/bin/python3 "$T/drive.py"
	[ "$output" = "[7]" ]
	[ ! -e "$T/planted" ]
	# three folders above a package there may be anybody's libberth and runner
	cd "$T"
	mkdir -p "$T/open/build/lib" "$T/open/build/bin" "$T/open/lib"
	mv "$T/open/python" "$T/open/lib/python"
	touch "$T/open/build/lib/libberth.so.0.2"
	printf '#!/bin/sh\necho planted\n' > "$T/open/build/bin/runner"
	chmod 755 "$T/open/build/bin/runner"
	export PYTHONPATH=$T/open/lib/python
	unset BERTH_LIBRARY
	run -1 /usr/bin/python3 -c 'import berth; berth.init()'
	says "another user could replace $T/open/build/lib/libberth.so.0.2: $T/open can be written by all users"
	run -0 /usr/bin/python3 -m berth --version
	[ "$output" = "$("$RUNNER" --version)" ]
	chmod 755 "$T/open"
	run -0 /usr/bin/python3 -m berth --version
	[ "$output" = planted ]
}

@test "make install: the package, which finds its own libberth and runner; README; uninstall leaves nothing" {
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/usr LIBDIR=/usr/lib64 install > /dev/null
	unset BERTH_LIBRARY
	export PYTHONPATH=$T/root/usr/share/berth/python
	run -0 /usr/bin/python3 -c 'import berth; berth.init(); print(berth.library.get().library._name, berth.launch.runner_path())'
	[ "$output" = "$PYTHONPATH/berth/libberth.so.0.2 $T/root/usr/bin/runner" ]
	run -0 /usr/bin/python3 -m berth --version
	[ -e "$PYTHONPATH/berth/py.typed" ] # type checkers read its annotations
	diff "$ROOT/README" "$T/root/usr/share/doc/berth/README"
	while read -r path; do
		[ -e "$T/root/usr/share/doc/berth/$path" ] || { echo "README names $path"; false; }
	done < <(grep -oE '(contrib/batch|examples/[a-z_]+\.(py|c))' "$ROOT/README" | sort -u)
	make -s -C "$ROOT" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/usr LIBDIR=/usr/lib64 uninstall
	[ "$(find "$T/root" -mindepth 1)" = "$T/root/usr" ]
}

@test "pip install: version, entry point, no file that is not Python's" {
	PYTHON=$ROOT/build/venv/bin/python3
	[ -e "$ROOT/build/venv/installed" ] || skip "no build/venv (make venv)"
	unset PYTHONPATH BERTH_LIBRARY
	cp -r "$ROOT/lib/python" "$T/source" # setuptools builds beside the sources
	"$PYTHON" -m venv --without-pip "$T/venv"
	"$PYTHON" -m pip install -q --prefix "$T/venv" --no-deps --no-build-isolation --no-index --ignore-installed "$T/source"
	cd "$T"
	run -0 env PATH="$BUILD/bin:$PATH" "$T/venv/bin/python" -m berth --version
	[ "$output" = "$("$RUNNER" --version)" ]
	run -0 "$T/venv/bin/python" -c '
from importlib import metadata
import berth
print(metadata.version("berth"), berth.__version__, berth.__file__)
print([(e.name, e.value) for e in metadata.entry_points(group="torch.backends")])'
	[[ $output == "0.2.0 0.2.0 $T/venv/lib/"*"[('berth', 'berth.torch_backend:register')]" ]]
	for module in $(cd "$ROOT/lib/python" && find berth -name '*.py'); do
		[ -s "$(echo "$T"/venv/lib/python3*/site-packages/"$module")" ] || { echo "no $module"; false; }
	done
	BERTH_LIBRARY=$BUILD/lib/libberth.so run -0 "$T/venv/bin/python" -c 'import berth; berth.init(); print(berth.size())'
	[ "$output" = 1 ]
	LD_LIBRARY_PATH=$BUILD/lib run -0 "$T/venv/bin/python" -c 'import berth; berth.init(); print(berth.size())'
	[ "$output" = 1 ]
	run -0 timeout -k 5 60 "$RUNNER" --no-tag --oversubscribe -np 2 "$T/venv/bin/python" -c 'import berth; berth.init(); print(berth.size())'
	[ "$output" = $'2\n2' ]
}
