#!/usr/bin/env bats
# takes_s: 1
# more: sockets of others, ranks without a stack, tools
# shellcheck disable=SC2016,SC2030,SC2031,SC2086,SC2154 # $ is for the ranks' shells; bats sets output
# runner --dump, and Ctrl-\ twice: where all ranks of a running job are.
load common
load dump

setup() {
	cd "$T" || return
	tools=
	network_open
	cat > stuck.py <<- 'EOF'
		import os, sys, threading, time
		def next_batch():
		    time.sleep(100)
		def waits():
		    threading.Event().wait(100)
		def main():
		    open("up%s" % os.environ["RANK"], "w").close()
		    print("rank line", file=sys.stderr)
		    next_batch() if os.environ["RANK"] == "2" else waits()
		main()
	EOF
}

teardown() {
	local pid
	for pid in $job; do kill -TERM "$pid" 2> /dev/null; done
	network_close
	wait
	[ -z "$tools" ] || rm -rf "$tools"
}

# A job of which all ranks are up, as JOB.  Its SIGQUIT is not ignored, as that of others behind '&' is.
begins() { # NP ARGUMENT...
	rm -f up*
	"${inside[@]}" /usr/bin/python3 -c 'import os, signal, sys
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$RUNNER" --oversubscribe --stdin none --kill-grace 1 -np "$@" > out 2>&1 3>&- &
	job+=" $!" last=$!
	wait_for up "$1"
}

up() { [ "$(find . -maxdepth 1 -name 'up*' | wc -l)" = "$1" ]; }

dumps() { # TEXT...
	run -0 --separate-stderr "${inside[@]}" "$RUNNER" --dump
	says "$@"
}

same_python() { # PYTHON
	begins 4 "$1" stuck.py
	dumps ": 4 ranks, 4 running" "  1 rank  [2]  stuck.py:3 next_batch  state S in" \
		"  3 ranks  [0-1,3]  stuck.py:5 waits" "stderr: rank line" "/stuck.py:3 next_batch
    $T/stuck.py:9 main
    $T/stuck.py:10 <module>"
	silent_on "no stack"
	dumps "4 ranks, 4 running" # nobody has died of it
	kill -TERM "$last"
	wait "$last" || true
}

@test "a rank that is elsewhere comes first, with its stack: two Pythons" {
	same_python /usr/bin/python3
	[ ! -x "$BUILD/venv/bin/python3" ] || same_python "$BUILD/venv/bin/python3"
}

# bats test_tags=all
@test "--warm: ranks that are forked tell their stacks, too" {
	begins 3 --warm /usr/bin/python3 stuck.py
	dumps "  1 rank  [2]  stuck.py:3 next_batch" "  2 ranks  [0-1]  stuck.py:5 waits" "/stuck.py:3 next_batch
    $T/stuck.py:9 main
    $T/stuck.py:10 <module>"
	silent_on "berth warm"
	run ! grep "without --warm" out
}

@test "Ctrl-\\ twice within 2 s prints the same, and the job goes on" {
	begins 4 /usr/bin/python3 stuck.py
	kill -QUIT "$last"
	wait_for grep -q "rank status: 4 ranks, 0 ended" out
	kill -QUIT "$last"
	wait_for grep -q "1 rank  \[2\]  stuck.py:3 next_batch" out
	kill -0 "$last"
}

@test "E_DUMP_NONE, E_DUMP_JOB, E_DUMP_SEVERAL, E_DUMP_SILENT: which job is meant" {
	run -2 "${inside[@]}" "$RUNNER" --dump
	says "no job of yours runs on this machine"
	hinted
	begins 1 sh -c 'echo $BERTH_JOB > up0; PATH=/none exec /usr/bin/sleep 100'
	first=$(cat up0)
	begins 1 sh -c 'touch up1; exec sleep 100'
	run -2 "${inside[@]}" "$RUNNER" --dump
	says "several jobs run: " "${first:0:8}"
	run -0 "${inside[@]}" "$RUNNER" --dump="${first:0:12}"
	says "dump of job ${first:0:8}: 1 rank, 1 running" "no stack: it is not Python 3.8 or later"
	run -2 "${inside[@]}" "$RUNNER" --dump nosuch
	says "no job 'nosuch' of yours"
	kill -KILL $job # it leaves nothing
	wait $job || true
	job=
	run -2 "${inside[@]}" "$RUNNER" --dump
	says "no job of yours runs on this machine"
	listens 0 0123
	run -2 "${inside[@]}" "$RUNNER" --dump
	says "job 0123 does not answer"
}

# Another program, of user UID, listens by a job's name.
listens() { # UID ID
	rm -f up
	"${inside[@]}" /usr/bin/python3 -c 'import os, socket, sys
s = socket.socket(socket.AF_UNIX)
name = "\0berth-dump-%d-%s" % (os.geteuid(), sys.argv[2])
if sys.argv[1] != "0":
    os.setuid(int(sys.argv[1]))
s.bind(name)
s.listen(1)
os.write(1, b"listens")
c = s.accept()[0]
c.recv(9)' "$@" > up 3>&- &
	job+=" $!"
	wait_for grep -q listens up
}

# bats test_tags=all
@test "another user: neither finds our jobs by its socket, nor asks our job" {
	[ "$(id -u)" = 0 ] || skip "only root can be another user"
	listens 65534 0123
	run -2 "${inside[@]}" "$RUNNER" --dump
	says "no job of yours runs on this machine"
	begins 1 sh -c 'echo $BERTH_JOB > up0; exec sleep 100'
	ask='import os, socket, sys
os.setuid(int(sys.argv[1]))
s = socket.socket(socket.AF_UNIX)
s.connect("\0berth-dump-0-" + sys.argv[2])
s.send(b"dump\n")
print(s.makefile().read())'
	run "${inside[@]}" /usr/bin/python3 -c "$ask" 65534 "$(cat up0)"
	silent_on "dump of job"
	run -0 "${inside[@]}" /usr/bin/python3 -c "$ask" 0 "$(cat up0)"
	says "dump of job"
}

# bats test_tags=all
@test "ranks without a stack: -S, -I, a handler of their own, stopped; none of them dies" {
	cat > catches.py <<- 'EOF'
		import os, signal, time
		def handler(*_):
		    open("caught", "w").close()
		if os.environ["RANK"] == "0":
		    signal.signal(59, handler)
		    time.sleep(0.2)
		open("up" + os.environ["RANK"], "w").close()
		while True:
		    time.sleep(1)
	EOF
	begins 4 sh -c 'export PATH=/none; case $RANK in 0) exec /usr/bin/python3 catches.py;;
		1) exec /usr/bin/python3 -S catches.py;; 2) exec /usr/bin/python3 -I catches.py;;
		*) /usr/bin/python3 catches.py & kill -STOP $$;; esac'
	dumps ": 4 ranks, 4 running" "  2 ranks  [1-2]  state S" "  rank 3 is stopped (state T)" \
		"no stack: it is not Python 3.8 or later, or one without" "no stack: it does not answer"
	[ -e caught ]
	kill -0 "$last"
}

# bats test_tags=all
@test "the sitecustomize that ours hides runs, and its errors are said as before" {
	mkdir own bad
	echo 'print("mine ran")' > own/sitecustomize.py
	echo 'import nothere' > bad/sitecustomize.py
	PYTHONPATH=$T/own run -0 --separate-stderr "$RUNNER" --no-tag -np 1 python3 -c 'import sys
print(sys.modules["sitecustomize"].__file__, [p for p in sys.path if "/fd/" in p])'
	[ "$output" = "mine ran
$T/own/sitecustomize.py []" ]
	PYTHONPATH=$T/bad python3 -c 'print(1)' > alone 2>&1
	PYTHONPATH=$T/bad "$RUNNER" --no-tag -np 1 python3 -c 'print(1)' > inside 2>&1
	grep -v "share 2 cores" inside | diff alone -
	# and one that is started without the agent
	run -0 --separate-stderr "$RUNNER" --no-tag -np 1 sh -c 'env -u BERTH_RANK_STACK python3 -c "print(2)"'
	[ "$output" = 2 ]
}

# bats test_tags=all
@test "the report of a hang holds the same" {
	begins 4 --hang-timeout 0.5 --on-hang report /usr/bin/python3 stuck.py
	wait_for grep -q "all ranks hang: none has used a CPU" out
	wait_for grep -q "1 rank  \[2\]  stuck.py:3 next_batch" out
}

# A folder in PATH that nobody else can change: the tests' own may lie below /tmp.
own_folder() {
	tools=$(mktemp -d "$ROOT/build/tools.XXXXXX")
	chmod 755 "$tools"
	printf '#!/bin/sh\n%s\n' "$1" > "$tools/eu-stack"
	chmod 755 "$tools/eu-stack"
}

# bats test_tags=all
@test "eu-stack: where a program in C is" {
	command -v eu-stack > /dev/null || skip "no eu-stack (package elfutils)"
	cat > reads.c <<- 'EOF'
		#include <stdio.h>
		#include <stdlib.h>
		#include <unistd.h>
		static int p[2];
		__attribute__((noinline)) static int next_batch(void) { char c; return (int)read(p[0], &c, 1) + 1; }
		__attribute__((noinline)) static int train(void) { return (int)sleep(100) + 1; }
		int main(void)
		{
			char name[32];
			snprintf(name, sizeof name, "up%s", getenv("RANK"));
			if (pipe(p) || !fopen(name, "w")) return 1;
			return *getenv("RANK") == '1' ? next_batch() : train();
		}
	EOF
	gcc -g -O0 -o reads reads.c
	begins 3 ./reads
	wait_for dumps "  1 rank  [1]  reads.c:5 next_batch" "  2 ranks  [0,2]  reads.c:6 train" \
		"/reads.c:5 next_batch
    $T/reads.c:12 main"
	run ! grep -q eu-stack /proc/[0-9]*/comm
	dumps "  1 rank  [1]  reads.c:5 next_batch"
}

# bats test_tags=all
@test "py-spy: a Python that does not load our file" {
	spy=$(command -v py-spy || ls "$ROOT/build/venv/bin/py-spy" 2> /dev/null) || skip "no py-spy"
	own_folder "exit 1"
	ln -s "$spy" "$tools/py-spy"
	PATH=$tools:$PATH begins 3 /usr/bin/python3 -I stuck.py
	dumps "  1 rank  [2]  stuck.py:3 next_batch" "  2 ranks  [0-1]  stuck.py:5 waits" "/stuck.py:9 main"
}

# bats test_tags=all
@test "a tool that takes long, or that another user could change: nothing of it is left" {
	own_folder 'kill -STOP $7; exec /usr/bin/sleep 77'
	begins 1 sh -c "touch up0; PATH=$tools exec /usr/bin/sleep 100"
	begin=$(date +%s%N)
	dumps "no stack: it is not Python 3.8 or later"
	((($(date +%s%N) - begin) / 1000000 < 1500 * ${SLOW:-1}))
	[ -z "$(pgrep -x -f '/usr/bin/sleep 77')" ]
	rank=$(pgrep -x -f '/usr/bin/sleep 100')
	grep -q "^State:	S" "/proc/$rank/status" # it was stopped, and goes on
	chmod 777 "$tools"
	printf '#!/bin/sh\ntouch %s/ran\n' "$T" > "$tools/eu-stack"
	dumps "no stack: "
	[ ! -e ran ]
}
