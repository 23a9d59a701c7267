#!/usr/bin/env bats
# limit_s: 900
# takes_s: 7
# more: module sets of build/venv, ranks of PyTorch, an import that hangs
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output and stderr
# --warm: ranks of Python programs are forked from a process that has imported their modules.
load common

# An interpreter whose own folder has modules of ours.
setup_file() {
	local to
	/usr/bin/python3 -m venv --without-pip "$BATS_FILE_TMPDIR/venv"
	to=$(echo "$BATS_FILE_TMPDIR"/venv/lib/python3*/site-packages)
	cat > "$to/counted.py" <<- 'P' # its imports are lines of a file
		import os
		with open(os.environ["MARK"] + "/imports", "a") as f:
		    f.write("1\n")
	P
	module() { cat > "$to/$1.py"; }
	module has_thread <<< 'import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()'
	module reads_rank <<< 'import os; rank = os.environ.get("LOCAL_RANK")'
	module has_child <<< 'import subprocess; child = subprocess.Popen(["sleep", "1000"])'
	module opens_socket <<< 'import socket; s = socket.socket()'
	module opens_device <<< 'import glob; f = [open(p) for p in glob.glob("/dev/nvidiactl") + glob.glob("/dev/dri/card*")]'
	module exits <<< 'import sys; sys.exit(3)'
	module ends <<< 'import os, sys; sys.argv[0] != "-c" or os._exit(3)' # not in a rank
	module raises <<< 'raise RuntimeError("not today")'
	module prints <<< 'print("hello")'
	module writes <<< 'import os; os.write(2, b"hello")'
	module changes_folder <<< 'import os; os.chdir("/")'
	module changes_umask <<< 'import os; os.umask(0o77)'
	module maps_shared <<< 'import mmap; m = mmap.mmap(-1, 4096)'
	module hangs <<< 'import sys, time; sys.argv[0] != "-c" or time.sleep(1000)'
	module sets_variables <<- 'P'
		import os
		os.environ["SET_HERE"] = "1"
		os.environ.setdefault("GIVEN", "default")
		os.environ.pop("TAKEN", None)
	P
	module asks_for_another <<< 'import colorsys'
	gcc -shared -fPIC -fopenmp -o "$to/region.so" -xc - <<- 'C'
		int region(void)
		{
			int n = 0;
		#pragma omp parallel num_threads(2) reduction(+ : n)
			n++;
			return n;
		}
	C
	module computes <<< 'import ctypes, os; n = ctypes.CDLL(os.path.dirname(__file__) + "/region.so").region()'
	module all_here <<- 'P' # of this life
		import os
		here = "here." + os.environ["TORCHELASTIC_RESTART_COUNT"] + "."
		open(here + os.environ["RANK"], "w").close()
		while not all(os.path.exists(here + str(i)) for i in range(int(os.environ["WORLD_SIZE"]))):
		    pass
	P
	module misses <<< 'import nothing_of_this_name'
	module waits <<- 'P'
		import os, time
		if not os.path.exists(os.environ["MARK"] + "/go"):
		    open(os.environ["MARK"] + "/imports", "a").write("1\n")
		    time.sleep(1000)
	P
}

setup() {
	[ "$(nproc)" != 1 ] || export BERTH_QUIET=1 # ranks that share a core are a warning
	PY=$BATS_FILE_TMPDIR/venv/bin/python
	cd "$T" || return
}

# No process of a job is left, neither a rank nor one that waits to become one.
teardown() {
	local left
	[ -z "${pid-}" ] || kill -KILL "$pid" 2> /dev/null || true
	left=$(alive_with "MARK=$T")
	[ -z "$left" ] || { ps -o pid,ppid,pgid,args -p "${left//$'\n'/,}"; return 1; }
}

none_left() { [ -z "$(alive_with "MARK=$T")" ]; }

r() { timeout -k 5 60 "$RUNNER" --no-tag --oversubscribe -x "MARK=$T" "$@"; }

# $output: what ranks print; $notes: what runner says of warm processes.
warm() { # STATUS [OPTION...] COMMAND...
	run "-$1" --separate-stderr r --warm -v "${@:2}" < /dev/null
	notes=$(grep -E '^runner: [^ ]*: (warning: )?(warm: |ranks are started without|.* is left)|^runner: warning: .*without --warm' <<< "$stderr" || true)
}

was_warm() { [[ $notes == *": warm: "* && $notes != *"without --warm"* ]] || { echo "$stderr"; return 1; }; }
was_cold() { # WHY
	[[ $notes == *"ranks are started without --warm: "*"$1"* ]] || { echo "not cold because '$1': $stderr"; return 1; }
}

# What ranks wrote to stderr: runner's own reports have pids.
of_ranks() { grep -vE '^(runner: |hint: |  its last lines|   *\| |  ([0-9]+|the) .*(will be ended|failed after it)$)' <<< "$stderr" || true; }

imports() { wc -l < "$T/imports"; }

# The same status, and the same bytes of ranks, with --warm as without.
alike() { # STATUS [OPTION...] COMMAND...
	local cold cold_errors
	run "-$1" --separate-stderr r -v "${@:2}" < /dev/null
	cold=$output cold_errors=$(of_ranks)
	warm "$@"
	was_warm
	diff <(echo "$cold") <(echo "$output")
	[ "$cold_errors" = "$(of_ranks)" ] || { diff <(echo "$cold_errors") <(of_ranks); false; }
}

# ---- ranks are forked ----

@test "modules are imported once for all ranks, and for each life" {
	cat > job.py <<- 'P'
		import sys
		before = [name in sys.modules for name in ("counted", "decimal")]
		import os, decimal, counted
		life = os.environ["TORCHELASTIC_RESTART_COUNT"]
		print(*before, os.environ["RANK"], life)
		__import__("all_here")  # no statement that is looked for
		sys.exit(life != "2")
	P
	warm 0 --restarts 2 -np 4 "$PY" job.py
	was_warm
	says "True True 3 0" "True True 0 1"
	[ "$(grep -c '^True True [0-3] 2$' <<< "$output")" = 4 ]
	[ "$(imports)" = 1 ]
	rm here.*
	run -1 --separate-stderr r -np 4 "$PY" job.py # without
	says "False False "
	[ "$(imports)" -gt 1 ]
}

# What a program may see of its process, but for numbers that no two runs share.
@test "a rank is what it is without --warm" {
	mkdir -m 755 there
	cat > there/facts.py <<- 'P'
		import ctypes, decimal, os, re, resource, signal, stat, sys
		libc, pid = ctypes.CDLL(None), os.getpid()
		death = ctypes.c_int()
		libc.prctl(2, ctypes.byref(death))
		def kind(fd):
		    try:
		        return re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{fd}"))
		    except FileNotFoundError:
		        return "of this list"
		mask = os.umask(0)
		cpus = {c for part in os.environ["BERTH_CPUS"].split(",") for a, _, b in [part.partition("-")]
		        for c in range(int(a), int(b or a) + 1)}
		status = dict(line.split(":", 1) for line in open("/proc/self/status"))
		import __main__
		facts = {
		    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": sys.flags,
		    "words": open("/proc/self/cmdline").read().rstrip("\0").split("\0"),
		    "folder": os.getcwd(), "umask": mask, "group": os.getpgid(0) == pid, "session": os.getsid(0) == pid,
		    "parent": open(f"/proc/{os.getppid()}/comm").read(), "death": death.value, "cpus": os.sched_getaffinity(0) == cpus,
		    "limits": [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT")],
		    "fds": sorted((int(fd), kind(fd), os.get_inheritable(int(fd)) if kind(fd) != "of this list" else 0)
		                  for fd in os.listdir("/proc/self/fd")),
		    "signals": [status[n] for n in ("SigBlk", "SigIgn", "SigCgt", "Threads")],
		    "main": sorted(set(vars(__main__)) - {"__annotations__"}), "file": __file__, "loader": type(__loader__).__name__,
		    "streams": [(s.line_buffering, s.write_through, s.encoding, s.errors, s.fileno(), s.isatty())
		                for s in (sys.stdin, sys.stdout, sys.stderr)],
		    "int": signal.getsignal(signal.SIGINT), "nice": os.nice(0), "root": os.readlink("/proc/self/root"),
		}
		for name, value in facts.items():
		    print(os.environ["RANK"], name, value)
		differs = r"BERTH_(JOB|AGENT|RANK_STACK)|PYTHONPATH|MASTER_PORT|.*RUN_ID|.*ADDRESS(ES)?|.*backing_directory|PMIX_(NAMESPACE|.*(TMPDIR|URI.*))"
		for name in sorted(os.environ):
		    print(os.environ["RANK"], name, "" if re.fullmatch(differs, name) else os.environ[name])
	P
	facts() { # OPTION...
		run -0 r -q --sort-output "$@" -np 2 --wdir "$T/there" -x "ONE=two words" "$PY" -OO -X utf8 -W ignore facts.py "a b" -c x < /dev/null
	}
	(umask 027 && ulimit -Sn 333 && ulimit -c 0 && {
		facts; echo "$output" > "$T/cold"
		facts --warm; echo "$output" > "$T/warm"
		facts --pty; echo "$output" > "$T/cold.pty"
		facts --pty --warm; echo "$output" > "$T/warm.pty"
	})
	[ "$(grep -c ' RANK [01]' cold)" = 2 ]
	grep -q "^1 cpus True" cold
	diff cold warm
	diff cold.pty warm.pty
	grep -q "^0 streams.*True" cold.pty
}

@test "two ranks have two berths: their CPUs are their own" {
	[ "$(nproc)" -gt 1 ] || skip "one CPU"
	cat > job.py <<< 'import decimal, os; print(os.environ["BERTH_CPUS"], sorted(os.sched_getaffinity(0)))'
	alike 0 -np 2 --sort-output "$PY" job.py
	[ "$(sort -u <<< "$output" | wc -l)" = 2 ]
}

@test "stdin: all of it, for rank 0 alone" {
	cat > job.py <<- 'P'
		import counted, os, sys
		print(os.environ["RANK"], [line for line in sys.stdin], sys.stdin.buffer.read())
	P
	seq 30000 > lines
	run -0 r -q --warm -np 2 --sort-output "$PY" job.py < lines
	[ "$output" = "0 $(/usr/bin/python3 -c 'print([f"{i}\n" for i in range(1, 30001)])') b''
1 [] b''" ] || { cut -c 1-200 <<< "$output"; false; }
	[ "$(imports)" = 1 ]
	# nothing is lost if the process that should be warm is not
	unset BERTH_QUIET # that is said
	echo 'word = "own"' > colorsys.py
	cat > job.py <<< 'import asks_for_another, counted, sys; print(len(sys.stdin.read()))'
	run -0 --separate-stderr r --warm -np 1 "$PY" job.py < lines
	[[ $output == 168894 && $stderr == *"without --warm: a file beside"* ]]
}

# ---- modules that ranks may not share ----

@test "what breaks ranks that share it is left to them, and said" {
	cat > job.py <<- 'P'
		import counted, has_thread, reads_rank, has_child, opens_socket, prints, writes, changes_folder, changes_umask
		import maps_shared, computes, decimal
		try:
		    import exits
		except SystemExit:
		    pass
		try:
		    import raises
		except RuntimeError:
		    pass
		try:
		    import misses
		except ImportError:
		    print("misses")
		import ends
		import os
		print(os.getcwd(), reads_rank.rank, has_child.child.poll(), computes.n)
		has_child.child.kill()
	P
	warm 0 -np 2 --sort-output "$PY" job.py
	[ "$output" = $'hello\nmisses\n/ 0 None 2\nhello\nmisses\n/ 1 None 2' ]
	was_warm
	output=$notes
	says "has_thread is left to the ranks: a thread of its own runs on" \
		"reads_rank is left to the ranks: it reads LOCAL_RANK when it is imported" \
		"has_child is left to the ranks: it starts a process when it is imported" \
		"opens_socket is left to the ranks: it opens a socket" \
		"prints is left to the ranks: it prints when it is imported" \
		"writes is left to the ranks: it prints when it is imported" \
		"changes_folder is left to the ranks: it changes the current folder" \
		"changes_umask is left to the ranks: it changes the umask" \
		"maps_shared is left to the ranks: it writes to shared memory: /dev/zero (deleted)" \
		"computes is left to the ranks: a thread of its own runs on" \
		"exits is left to the ranks: its import fails: SystemExit: 3" \
		"raises is left to the ranks: its import fails: RuntimeError: not today" \
		"ends is left to the ranks: its import ends the process"
	silent_on "misses is left"
}

@test "a device that is opened" {
	compgen -G '/dev/dri/card*' > /dev/null || [ -e /dev/nvidiactl ] || skip "this machine has no device of a GPU"
	cat > job.py <<< 'import counted, opens_device'
	warm 0 -np 1 "$PY" job.py
	[[ $notes == *"opens_device is left to the ranks: it opens /dev/"* ]]
}

# As runner --check starts it.
@test "an import that hangs is given up" {
	cat > job.py <<< 'import hangs, decimal'
	sed 's/^IMPORT_S = 60.*/IMPORT_S = 0.3/' "$ROOT/launcher/job/warm.py" > text
	sed -i "1s/^/HEAD = '-1'\n/" text
	grep -qx 'IMPORT_S = 0.3' text
	MARK=$T run -0 timeout 30 "$PY" -c "import sys; exec(sys.stdin.read(), {'__name__': 'berth_warm'})" file job.py < text
	says "hangs is left to the ranks: its import takes longer than 0.3 s" "nothing but Python's own"
}

@test "variables that a module sets or takes away at its import" {
	cat > job.py <<- 'P'
		import sets_variables, os
		print(os.environ["SET_HERE"], os.environ["GIVEN"], os.environ.get("TAKEN"))
	P
	alike 0 -np 1 -x GIVEN=mine -x TAKEN=1 "$PY" job.py
	[ "$output" = "1 mine None" ]
}

# ---- programs ----

@test "a file, -m, -c, a script with #!; options of Python" {
	mkdir -p package
	cat > package/__init__.py <<< 'import decimal'
	cat > package/__main__.py <<- 'P'
		import sys, counted
		from . import other
		print(__name__, __package__, __spec__.name, sys.argv[1:], sys.path[0], other.word)
	P
	cat > package/other.py <<< 'import fractions; word = "own"'
	alike 0 -np 1 "$PY" -m package a -c
	says "__main__ package package.__main__ ['a', '-c'] $T own"
	alike 0 -np 1 "$PY" -c 'import counted, sys; print(sys.argv, repr(sys.path[0]), __name__, "__file__" in vars())' a -m
	[ "$output" = "['-c', 'a', '-m'] '' __main__ False" ]
	{ echo "#!$PY -B"; echo 'import counted, sys; print(sys.argv, __file__, sys.flags.dont_write_bytecode)'; } > script
	chmod +x script
	alike 0 -np 1 ./script a
	[ "$output" = "['./script', 'a'] $T/./script 1" ]
	cat > job.py <<< 'import counted, sys; assert False; print(sys.flags, sys.warnoptions, sys._xoptions, sys.path[0], __doc__)'
	alike 0 -np 1 "$PY" -OO -Wignore -W error::UserWarning -X dev -X utf8=1 job.py
	alike 0 -np 1 "$PY" -OBsu job.py
	rm imports
	alike 1 -np 1 "$PY" -I -c 'import decimal, sys; print(sys.path); raise KeyError(sys.flags)'
}

@test "ends and their words: status, exceptions, signals, no file" {
	program() { cat > job.py; }
	program <<< 'import counted, sys; print("here"); sys.exit(7)'
	alike 7 -np 1 "$PY" job.py
	program <<< 'import counted, sys; sys.exit("no more")'
	alike 1 -np 1 "$PY" job.py
	program <<- 'P'
		import counted
		def deep(n):
		    if n: deep(n - 1)
		    try:
		        {}["key"]
		    except KeyError as e:
		        raise ValueError("two") from e
		deep(3)
	P
	alike 1 -np 1 "$PY" job.py
	[[ $stderr == *"Traceback"*"in deep"*"ValueError: two"* ]]
	program <<< 'import counted, local'
	echo 'raise RuntimeError("of a file beside it")' > local.py
	alike 1 -np 1 "$PY" job.py
	alike 1 -np 1 "$PY" -c 'import counted; 1 / 0'
	program <<< 'import counted; raise KeyboardInterrupt'
	alike 130 -np 1 "$PY" job.py
	program <<< 'import counted, os, signal; signal.raise_signal(signal.SIGSEGV)'
	run -139 r -np 1 --warm "$PY" job.py < /dev/null
	says "Fatal Python error: Segmentation fault" 'job.py", line 1 in <module>' "was ended by SIGSEGV"
	program <<< 'import counted; this is no Python'
	run -1 --separate-stderr r -v -np 1 "$PY" job.py < /dev/null
	cold=$(of_ranks)
	warm 1 -np 1 "$PY" job.py
	was_cold "invalid syntax"
	diff <(echo "$cold") <(of_ranks)
	warm 2 -np 1 "$PY" nothing.py
	was_cold "No such file"
	[[ $stderr == *"can't open file '$T/nothing.py': [Errno 2] No such file or directory"* ]]
}

@test "modules beside the program are read anew by each life, and may hide others: cold" {
	echo 'value = 0' > local.py
	cat > job.py <<- 'P'
		import counted, os, sys, local
		print("value", local.value)
		with open("local.py", "w") as f:
		    f.write(f"value = {local.value + 10}\n")
		sys.exit(local.value < 20)
	P
	PYTHONDONTWRITEBYTECODE=1 warm 0 --restarts 2 -np 1 "$PY" job.py
	was_warm
	[ "$output" = $'value 0\nvalue 10\nvalue 20' ]
	[ "$(imports)" = 1 ]
	# a module that another one imports; one that warm.py itself imports
	for name in colorsys resource; do
		echo 'word = "own"' > $name.py
		cat > job.py <<< 'import asks_for_another, counted, '$name'; print('$name'.word)'
		warm 0 -np 1 "$PY" job.py
		was_cold "a file beside the program hides the module $name"
		[ "$output" = own ]
		rm $name.py
	done
	# OpenMP's threads would be on the CPUs of the warm process
	cat > job.py <<< 'import counted'
	warm 0 -x OMP_PROC_BIND=close -np 1 "$PY" job.py
	was_cold "OMP_PROC_BIND binds threads to the CPUs of the process that imports"
	# no module that ranks may share
	cat > job.py <<< 'import prints'
	warm 0 -np 1 "$PY" job.py
	was_cold "it imports nothing that ranks may share; prints is left to the ranks: it prints when it is imported"
	# a folder that is no package hides nothing
	mkdir counted
	cat > job.py <<< 'import counted; print(counted.__file__)'
	alike 0 -np 1 "$PY" job.py
}

@test "what is no Python program, or is started by another: cold, without a word" {
	cat > job.py <<< 'import sys; print("counted" in sys.modules); import counted'
	for wrapper in env nice "env A=1"; do
		# shellcheck disable=SC2086
		warm 0 -np 1 $wrapper "$PY" job.py
		[ "$output$notes" = False ] || { echo "$stderr"; false; }
	done
	warm 0 -np 1 echo here
	[ "$output$notes" = here ]
	run -0 r -q --warm -np 1 "$PY" - < job.py
	[ "$output" = False ]
	# each app by itself
	warm 0 -np 1 "$PY" job.py : -np 1 echo there
	[ "$(sort <<< "$output")" = $'True\nthere' ]
}

# ---- ends ----

start() {
	env --default-signal "$RUNNER" --no-tag --oversubscribe -x "MARK=$T" --warm -v "$@" < /dev/null > "$T/out" 2> "$T/err" &
	pid=$!
}

over() { [ ! -e "/proc/$pid" ]; }

ended_with() {
	local status=0
	wait_for over || return
	wait "$pid" || status=$?
	[ "$status" = "$1" ] || { echo "ended with $status"; cat "$T/err"; return 1; }
}

@test "the job ends while its modules are still imported: INT, TERM, the time limit" {
	cat > job.py <<< 'import waits'
	start -np 2 "$PY" job.py
	wait_for test -s imports
	SECONDS=0
	kill -INT $pid
	ended_with 130
	none_left
	rm imports
	start -np 2 "$PY" job.py
	wait_for test -s imports
	kill -TERM $pid
	ended_with 143
	none_left
	((SECONDS < 8 * ${SLOW:-1})) # nobody waits for the end of a grace, 10 s
	run -124 r --warm --timeout 0.5 -np 2 "$PY" job.py < /dev/null
	none_left
}

@test "the agent is killed: nothing is left" {
	cat > job.py <<< 'import waits, time; print(file=open("ran", "w")); time.sleep(1000)'
	for event in imports ran; do
		start -np 2 "$PY" job.py
		wait_for test -s $event
		touch go # the next one does not wait
		for process in $(alive_with "MARK=$T"); do
			parent=$(sed 's/.*) //' "/proc/$process/stat" 2> /dev/null | cut -d ' ' -f 2)
			[ "$(cat "/proc/$parent/comm" 2> /dev/null)" != berth-agent ] || agent=$parent
		done
		kill -KILL "$agent"
		wait_for over
		wait "$pid" || true
		wait_for none_left
	done
}

@test "a rank that KILL ended is forked anew" {
	cat > job.py <<- 'P'
		import sys
		before = "counted" in sys.modules
		import os, signal, counted
		__import__("all_here")  # no statement that is looked for
		if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
		    signal.raise_signal(signal.SIGKILL if os.environ["RANK"] == "1" else signal.SIGSTOP)
		print(before)
	P
	warm 0 --restarts 1 -np 3 "$PY" job.py
	was_warm
	[ "$output $(imports)" = $'True\nTrue\nTrue 1' ]
}

# bats test_tags=all
@test "a rank that failed in its world before it did anything: the next life is cold" {
	cat > job.py <<- 'P'
		import sys
		before = "counted" in sys.modules
		import os, counted, berth
		berth.init()
		if sys.argv[1] == "late":
		    berth.broadcast_object(1, 0)
		if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
		    sys.exit(1)
		print(before)
	P
	warm 0 --restarts 1 -np 2 -x "PYTHONPATH=$ROOT/lib/python" -x "BERTH_LIBRARY=$BUILD/lib/libberth.so" "$PY" job.py early
	was_cold "a rank that was forked from it died early"
	[ "$output" = $'False\nFalse' ]
	warm 0 --restarts 1 -np 2 -x "PYTHONPATH=$ROOT/lib/python" -x "BERTH_LIBRARY=$BUILD/lib/libberth.so" "$PY" job.py late
	was_warm
	[ "$output" = $'True\nTrue' ]
}

@test "a rank that a fault soon ended: the next life is cold, and that is said" {
	cat > job.py <<- 'P'
		import sys
		before = "counted" in sys.modules
		import os, signal, counted
		if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
		    signal.raise_signal(getattr(signal, sys.argv[1]))
		print(before)
	P
	for name in SIGSEGV SIGABRT; do
		rm -f imports
		warm 0 --restarts 1 -np 1 "$PY" job.py $name
		was_cold "a rank that was forked from it died early"
		[ "$output $(imports)" = "False 2" ]
	done
}

# The processes between the agent and its ranks: one that forks, and one that waits to become a rank.
@test "the warm process is killed before a restart: all ranks run" {
	cat > job.py <<- 'P'
		import counted, os, signal, sys, time
		def others():
		    """Younger last: it waits for a request."""
		    found = []
		    for p in filter(str.isdigit, os.listdir("/proc")):
		        try:
		            words = open(f"/proc/{p}/stat").read().rpartition(")")[2].split()
		        except OSError:
		            continue
		        if int(words[1]) == os.getppid() and int(words[2]) != int(p) and words[0] not in "ZX":
		            found.append((int(words[19]), int(p)))
		    return [p for _, p in sorted(found)]
		if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
		    __import__("all_here")
		    if os.environ["RANK"] == "0":
		        while len(others()) != 2:
		            time.sleep(0.01)
		        for p in others()[slice(*map(eval, sys.argv[1:]))]:
		            os.kill(p, signal.SIGKILL)
		        sys.exit(1)
		    time.sleep(1000)
		print("ran")
	P
	for which in "0 1" "1 2" "0 2"; do
		rm -f here.*
		# shellcheck disable=SC2086
		warm 0 --restarts 1 -np 3 "$PY" job.py $which
		[ "$output" = $'ran\nran\nran' ] || { echo "$which: $stderr"; false; }
		was_cold "the process that had imported its modules has ended"
		none_left
	done
}

@test "random numbers differ in 16 ranks" {
	cat > job.py <<< 'import random, uuid, counted; print(random.random())'
	warm 0 -np 16 "$PY" job.py
	was_warm
	[ "$(sort -u <<< "$output" | wc -l)" = 16 ]
}

# The stop comes while ranks are still asked for.
# bats test_tags=all
@test "many ranks that fail at once, in each of six lives" {
	cat > job.py <<< 'import counted, os, sys; sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] != "5")'
	for _ in 1 2 3 4 5; do
		SECONDS=0
		warm 0 --restarts 5 -np 8 "$PY" job.py
		none_left
		[ -z "$(of_ranks)" ] || { echo "$stderr"; false; } # of those that come too late
		((SECONDS < 8 * ${SLOW:-1})) || { echo "$SECONDS s: $stderr"; false; } # a stop that waits takes 10 s
	done
}

# ---- module sets: the verdict on each, and ranks that use it ----

# With what `make VENV` installs: CODE in two ranks, each of which prints TEXT.
module_set() { # VENV MODULES VERDICT TEXT [OPTION...] < CODE
	local python=$ROOT/build/$1/bin/python module
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	[ -e "$ROOT/build/$1/installed" ] || skip "no build/$1 (make $1)"
	for module in ${2//,/ }; do
		"$python" -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$module'))" || skip "no $module in build/$1"
	done
	cat > set.py
	warm 0 -np 2 -x OMP_NUM_THREADS=1 "${@:5}" "$python" set.py
	[ "${notes#*: *: }" = "$3" ] || { echo "$notes"; false; }
	[ "$(grep -c "^$4\$" <<< "$output")" = 2 ] || { echo "$output"; false; }
}

# bats test_tags=all
@test "modules: numpy; random numbers of 16 ranks differ" {
	module_set venv numpy "warm: numpy" "27000000.0" <<< 'import numpy as np; print((np.ones((300, 300)) @ np.ones((300, 300))).sum())'
	cat > set.py <<< 'import numpy.random, random; print(numpy.random.rand(), random.random())'
	warm 0 -np 16 "$ROOT/build/venv/bin/python" set.py
	was_warm
	[ "$(cut -d ' ' -f 1 <<< "$output" | sort -u | wc -l) $(cut -d ' ' -f 2 <<< "$output" | sort -u | wc -l)" = "16 16" ]
}

# bats test_tags=all
@test "modules: scipy" {
	module_set venv scipy "warm: scipy, numpy" 7.316 <<- 'P'
		import scipy.linalg, numpy
		print(round(float(scipy.linalg.det(numpy.eye(200) * 1.01)), 3))
	P
}

# bats test_tags=all
@test "modules: scikit-learn, which sets a variable" {
	module_set venv sklearn "warm: sklearn" "True FALSE" <<- 'P'
		from sklearn.datasets import load_digits
		from sklearn.linear_model import LogisticRegression
		import os, warnings
		warnings.simplefilter("ignore")
		x, y = load_digits(return_X_y=True)
		print(LogisticRegression(max_iter=50).fit(x[:500], y[:500]).score(x, y) > 0.8, os.environ.get("KMP_INIT_AT_FORK"))
	P
}

# bats test_tags=all
@test "modules: torch, and what it imports late; random numbers of 16 ranks differ" {
	module_set venv torch "warm: torch" "True True" <<- 'P'
		import sys
		before = "torch._dynamo" in sys.modules
		import torch
		model = torch.nn.Linear(64, 64)
		optimizer = torch.optim.SGD(model.parameters(), 0.01)
		model(torch.randn(4096, 64)).pow(2).sum().backward()
		optimizer.step()
		print(before, bool(model.weight.isfinite().all()))
	P
	cat > set.py <<< 'import torch, numpy; print(torch.rand(1).item(), numpy.random.rand())'
	warm 0 -np 16 "$ROOT/build/venv/bin/python" set.py
	was_warm
	[ "$(cut -d ' ' -f 1 <<< "$output" | sort -u | wc -l) $(cut -d ' ' -f 2 <<< "$output" | sort -u | wc -l)" = "16 16" ]
}

# bats test_tags=all
@test "modules: torchmetrics, which reads a rank's number" {
	module_set venv torch,torchmetrics \
		"warm: torch; torchmetrics is left to the ranks: it reads LOCAL_RANK when it is imported" "tensor(0.5000)" <<- 'P'
		import torch, torchmetrics
		print(torchmetrics.functional.accuracy(torch.tensor([1, 0]), torch.tensor([1, 1]), task="binary"))
	P
}

# bats test_tags=all
@test "modules: lightning, which reads a rank's number: two ranks train" {
	module_set trainers lightning "warm: torch; lightning is left to the ranks: it reads LOCAL_RANK when it is imported" "True 2" <<- 'P'
		import os, torch, lightning
		class Model(lightning.LightningModule):
		    def __init__(self):
		        super().__init__()
		        self.layer = torch.nn.Linear(4, 1)
		    def training_step(self, batch, i):
		        return self.layer(batch[0]).mean()
		    def configure_optimizers(self):
		        return torch.optim.SGD(self.parameters(), 0.1)
		data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), 4)
		trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, devices=2,
		                            enable_progress_bar=False, enable_model_summary=False, strategy="ddp")
		trainer.fit(Model(), data)
		print(trainer.global_rank == int(os.environ["RANK"]), trainer.world_size)
	P
}

# bats test_tags=all
@test "modules: accelerate: two ranks train" {
	module_set trainers accelerate "warm: torch, accelerate" "True 2" <<- 'P'
		import os, torch
		from accelerate import Accelerator
		accelerator = Accelerator(cpu=True)
		model = torch.nn.Linear(4, 1)
		model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
		accelerator.backward(model(torch.ones(2, 4)).sum())
		optimizer.step()
		print(accelerator.process_index == int(os.environ["RANK"]), accelerator.num_processes)
	P
}

# bats test_tags=all
@test "modules: transformers" {
	module_set trainers transformers "warm: torch, transformers" "torch.Size(\[1, 10, 32\])" <<- 'P'
		import torch
		from transformers import BertConfig, BertModel, Trainer
		model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50))
		print(model(torch.arange(10)[None]).last_hidden_state.shape)
	P
}

# TensorFlow prints a line about oneDNN, unless it is off.
# bats test_tags=all
@test "modules: TensorFlow, as it is and without its first words" {
	module_set venv-tf tensorflow "vm: ranks are started without --warm: it imports nothing that ranks may share; tensorflow is left to the ranks: it prints when it is imported" 8000000.0 <<- 'P'
		import tensorflow as tf
		print(float(tf.reduce_sum(tf.matmul(tf.ones((200, 200)), tf.ones((200, 200))))))
	P
	warm 0 -np 2 -x TF_ENABLE_ONEDNN_OPTS=0 -x TF_CPP_MIN_LOG_LEVEL=3 "$ROOT/build/venv-tf/bin/python" set.py
	was_warm
	[ "$output" = $'8000000.0\n8000000.0' ]
}

# bats test_tags=all
@test "modules: JAX" {
	module_set venv-jax jax "warm: jax" 1000000.0 <<- 'P'
		import jax, jax.numpy as jnp
		print(float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((100, 100)))))
	P
}

# bats test_tags=all
@test "modules: berth, and horovod.torch of it" {
	module_set venv torch "warm: berth" "\[0, 1\]" --horovod <<- 'P'
		import berth
		berth.init()
		print(berth.allgather_object(berth.rank()))
	P
	module_set venv torch "warm: horovod, torch" "tensor(\[1., 1., 1.\])" --horovod <<- 'P'
		import horovod.torch as hvd, torch
		hvd.init()
		print(hvd.allreduce(torch.ones(3) * hvd.rank(), average=False))
	P
}

# bats test_tags=all
@test "in a warm rank of PyTorch: pickle, children, workers that load data, torch.compile" {
	module_set venv torch "warm: torch" "True 5 5 5 56 2 False 1.0" <<- 'P'
		import multiprocessing, os, pickle, sys, warnings
		at_start = "torch" in sys.modules
		import torch
		warnings.simplefilter("ignore")

		class Own:
		    def __init__(self, value):
		        self.value = value

		class Data(torch.utils.data.Dataset):
		    def __len__(self):
		        return 8
		    def __getitem__(self, i):
		        return torch.full((2,), i), os.getpid()

		def work(queue, own):
		    queue.put((own.value + 1, os.getpid()))

		def child_says(method):
		    context = multiprocessing.get_context(method)
		    queue = context.Queue()
		    child = context.Process(target=work, args=(queue, Own(4)))
		    child.start()
		    value, pid = queue.get(timeout=100)
		    child.join()
		    assert pid == child.pid and child.exitcode == 0
		    return value

		if __name__ == "__main__":
		    words = pickle.dumps(Own(3))
		    assert pickle.loads(words).value == 3 and b"__main__" in words
		    batches = list(torch.utils.data.DataLoader(Data(), 2, num_workers=2))
		    pids = {int(pid) for _, own in batches for pid in own}
		    compiled = torch.compile(lambda x: torch.sin(x) * 2 + 1)(torch.zeros(4))[0].item() if __import__("shutil").which("g++") else 1.0
		    print(at_start, *map(child_says, ("fork", "spawn", "forkserver")), sum(int(x.sum()) for x, _ in batches),
		          len(pids), os.getpid() in pids, compiled)
	P
}

@test "--check says what would be imported" {
	unset BERTH_QUIET
	cat > job.py <<< 'import counted, decimal, reads_rank'
	run -0 env MARK="$T" timeout 30 "$RUNNER" --check --warm -x "MARK=$T" -np 2 "$PY" job.py
	grep -qE '^ok +warm +[^ ]*: counted; reads_rank is left to the ranks: it reads LOCAL_RANK when it is imported$' <<< "$output"
	cat > job.py <<< 'import prints'
	run -0 timeout 30 "$RUNNER" --check --warm -np 2 "$PY" job.py
	grep -qE '^warn +warm +[^ ]*: it imports nothing that ranks may share; prints is left' <<< "$output"
}

# bats test_tags=all
@test "--replace alone: the rank is forked again, and input is granted once" {
	cat > job.py <<- 'P'
		import counted, os, sys
		life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
		print("life", life, "read", len(sys.stdin.read()))
		sys.exit(life < 3)
	P
	run -0 env MARK="$T" timeout 30 "$RUNNER" -q --no-tag --warm -x "MARK=$T" --restarts 3 --replace alone \
		-np 1 "$PY" job.py < <(head -c 3000000 /dev/zero | tr '\0' x)
	[ "$output" = $'life 0 read 3000000\nlife 1 read 0\nlife 2 read 0\nlife 3 read 0' ]
	[ "$(imports)" = 1 ]
}
