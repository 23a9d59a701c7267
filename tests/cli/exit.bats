#!/usr/bin/env bats
# limit_s: 240
# takes_s: 10
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output, stderr and lines
# runner's exit status: common/exits.h and what DESIGN says of endings.
load common

r() { timeout -k 5 30 "$RUNNER" "$@" < /dev/null; }

# runner in the background, with signals as a shell's foreground command has them.
start() {
	env --default-signal "$RUNNER" "$@" < /dev/null > "$T/out" 2> "$T/err" &
	pid=$!
}

teardown() {
	[ -z "${pid-}" ] || kill -KILL "$pid" 2> /dev/null || true
}

said() { grep -qs -- "$1" "$T/out" "$T/err"; }
over() { [ ! -e "/proc/$pid" ]; }

# Status of the runner that start() started.
ended_with() {
	local status=0
	wait_for over || return
	wait "$pid" || status=$?
	[ "$status" = "$1" ] || { echo "ended with $status"; cat "$T/err"; return 1; }
}

# How a parent sees COMMAND end: its code, or minus the signal.
fate() {
	/usr/bin/python3 -c 'import subprocess, sys
print(subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, timeout=30).returncode)' "$@"
}

@test "0 when every rank ends with 0" {
	run -0 --separate-stderr r -np 2 true
	no_stderr
}

@test "a rank's own code, whatever it is" {
	for code in 1 2 3 77 124 125 126 127 128 129 137 200 240 241 255; do
		run "-$code" r -np 2 sh -c "[ \$RANK = 0 ] || exit $code"
		says "rank 1 on " "exited with status $code"
	done
}

@test "128 + signal when a signal ended it, which is named" {
	for sig in HUP:1 ABRT:6 KILL:9 USR1:10 SEGV:11 TERM:15 PIPE:13; do
		run -$((128 + ${sig#*:})) r -np 2 sh -c "ulimit -c 0; [ \$RANK = 0 ] || kill -${sig%:*} \$\$"
		says "rank 1 on " "was ended by SIG${sig%:*}"
	done
}

@test "the first failure decides, not what it drags along" {
	run -3 r -np 4 sh -c '[ $RANK = 2 ] && exit 3; trap "exit 9" TERM; sleep 20 & wait'
	says "rank 2 on " "exited with status 3"
	silent_on "status 9"
}

@test "a signal goes before the non-zero exits that came with it" {
	run -139 r -np 3 /usr/bin/python3 -c '
import os, signal, time
while time.time() % 1 > 0.01: pass
os.environ["RANK"] == "1" and os.kill(os.getpid(), signal.SIGSEGV)
os._exit(1)' || true
	# The ranks' clocks are one clock here: the SIGSEGV is the cause when it is no later.
	[ "$status" = 139 ] || [ "$status" = 1 ]
}

@test "a failed rank's last lines on stderr are in the report, its stdout is delivered first" {
	run -7 --separate-stderr r -np 2 sh -c '[ $RANK = 0 ] && sleep 20; echo out; echo why >&2; exit 7'
	[ "$output" = "[1]<stdout>:out" ]
	[[ $stderr == *"its last lines on stderr:"*"  | why"* ]]
	[[ $stderr == *"the other rank will be ended"* ]]
}

@test "a failed rank's last lines come again only where they were not shown on a terminal" {
	run -7 r -q -np 1 sh -c 'echo why >&2; exit 7'
	says "its last lines on stderr:" "  | why"
	on_terminal() { # OPTION...: runner's words on a terminal
		script -qec "'$RUNNER' $* -np 2 sh -c 'echo why >&2; exit 7'" "$T/typescript" < /dev/null || true
	}
	run -0 on_terminal
	says "why" "exited with status 7"
	[[ $output != *"last lines"* ]]
	run -0 on_terminal --show none
	says "its last lines on stderr:" "  | why"
	run -0 on_terminal --show errors
	[[ $output != *"last lines"* ]]
}

@test "the line that names an exception is in the report, also if a long stack follows it" {
	run -1 --separate-stderr r -np 1 /usr/bin/python3 -c '
import sys, traceback
def hook(kind, value, trace):
    traceback.print_exception(kind, value, trace)
    print("\nAt:", *("  /lib/frame.py(%d): f" % i for i in range(30)), sep="\n", file=sys.stderr)
sys.excepthook = hook
class LostError(RuntimeError): pass
raise LostError("rank 1 left the set")'
	[[ $stderr == *"its last lines on stderr:"$'\n'"  | LostError: rank 1 left the set"$'\n'"  | ..."$'\n'"  |   /lib/frame.py(20): f"$'\n'* ]]
	[[ $stderr == *"  |   /lib/frame.py(29): f" ]]
	# It is there once where the last lines show it.
	run -1 --separate-stderr r -np 1 /usr/bin/python3 -c 'raise ValueError("why")'
	[ "$(grep -c "^  | ValueError: why" <<< "$stderr")" = 1 ]
	[[ $stderr != *"  | ..."* ]]
}

@test "the others of a failure: those that failed after it, those that will be ended" {
	others() { # RANKS PROGRAM
		r -np "$1" sh -c "$2" 2>&1 > /dev/null | grep -E 'other|remaining'
	}
	[ "$(others 2 'sleep $((20 * RANK)); exit 7')" = "  the other rank will be ended" ]
	[ "$(others 4 'sleep $((20 * (RANK > 0))); exit 7')" = "  the other 3 ranks will be ended" ]
	run others 3 '[ $RANK = 2 ] && sleep 20; exit 7'
	[[ $output = $'  1 other rank failed after it\n  the remaining rank will be ended' || $output = "  the other 2 ranks will be ended" ]]
}

@test "TERM every 0.2 s does not put off KILL" {
	local i
	start --kill-grace 1 -np 1 bash -c 'trap "" TERM; echo ready0; while :; do sleep 1000; done'
	wait_for said ready0
	for i in {1..50}; do
		kill -TERM "$pid" 2> /dev/null || break
		sleep 0.2
	done
	[ "$i" -lt 50 ]
	ended_with 143
	[ "$(grep -c 'received SIGTERM' "$T/err")" = 1 ]
}

@test "2 for wrong usage, with a hint" {
	run -2 r -np 0 true
	run -2 r -np x true
	run -2 r --nonsense -np 1 true
	says "unknown option '--nonsense'"
	hinted
	run -2 r -np 1
	says "no program to run"
	hinted
	run -2 r -np 9 -H localhost:2 true
	hinted
}

@test "124 when the time is over, even if ranks then return 0" {
	run -124 r --timeout 0.5 -np 2 sh -c 'trap "exit 0" TERM; sleep 20 & wait'
	says "the time limit of 0.5 s has passed"
	hinted
}

@test "a time limit that is not reached changes nothing" {
	run -5 r --timeout 20 -np 1 sh -c 'exit 5'
	run -0 r --timeout 1m -np 1 true
}

@test "127 for a program that is not there, 126 for one that cannot be executed" {
	run -127 r -np 2 no-such-program
	says "there is no program 'no-such-program'"
	hinted
	run -127 r -np 1 /no/such/program
	run -127 r -np 1 ''
	echo 'echo x' > "$T/plain"
	run -126 r -np 2 "$T/plain"
	says "cannot execute"
	hinted
	run -126 r -np 1 /tmp
	printf '#!/no/such/interpreter\n' > "$T/bad"
	chmod +x "$T/bad"
	run -126 r -np 1 "$T/bad"
	printf '\0\1\2' > "$T/garbage"
	chmod +x "$T/garbage"
	run -126 r -np 1 "$T/garbage"
}

@test "127 for what is near to a program: the hint says what to write" {
	cd "$T"
	mkdir bin
	echo 'print()' | tee train.py > bin/train.py
	chmod +x bin/train.py # here, and the ranks have another PATH
	PATH=$T/bin:$PATH run -127 r -np 1 -x PATH=/usr/bin:/bin train.py
	says "hint: it is not in PATH: write ./train.py or python train.py"
	run -127 r -np 1 "echo hi"
	says "hint: drop the quotes: echo hi"
	run -127 r -np 1 A=1 env
	says "hint: set a variable with -x: -x A=1"
	printf '#!/bin/sh\n' > she.sh
	chmod +x she.sh
	run -127 r -np 1 --wdir /usr ./she.sh
	says "hint: a relative path starts in /usr, the --wdir: give the whole path of './she.sh'"
	run -0 r -np 1 --wdir /usr "$T/she.sh"
	run -127 r -np 1 -x PATH="$(printf '/a/folder%s:' {1..40})/end" no-such-program
	says "no folder of PATH has it: /a/folder1:" ":/a/folder5 and 36 more"
	[ "$(grep '^hint:' <<< "$output" | wc -c)" -lt 140 ]
}

@test "a Python script in place of a program: python3 starts it, and --check tries its imports" {
	cd "$T"
	mkdir bin
	printf '#!/bin/sh\necho "python3 $*"\n' > bin/python3
	chmod +x bin/python3
	PATH=$T/bin:$PATH
	echo 'import nosuch' > train.py
	run -0 r --no-tag -np 1 train.py --lr 1
	[ "$output" = "python3 train.py --lr 1" ]
	run -0 r --no-tag -np 1 ./train.py : -np 1 "$T/train.py"
	says "python3 ./train.py" "python3 $T/train.py"
	(cd / && run -0 r --no-tag -np 1 --wdir "$T" train.py; [ "$output" = "python3 train.py" ])
	chmod +x train.py # without "#!" a shell would read it
	run -0 r --no-tag -np 1 ./train.py
	[ "$output" = "python3 ./train.py" ]
	printf '#!/bin/echo itself\n' > train.py
	run -0 r --no-tag -np 1 ./train.py
	[ "$output" = "itself ./train.py" ]
	cp train.py bin
	run -0 r --no-tag -np 1 train.py
	[ "$output" = "itself $T/bin/train.py" ]
	rm bin/*
	echo 'import nosuch' > train.py
	run -240 r --check -np 1 train.py
	says "train.py:1: ModuleNotFoundError: No module named 'nosuch'"
	run -127 r -np 1 ./missing.py
}

@test "126 when there is no such --wdir" {
	run -126 r --wdir /no/such/folder -np 2 true
	says "cannot run in directory '/no/such/folder'"
	hinted
	run -126 r --wdir /etc/passwd -np 1 true
}

@test "125 when runner itself fails: the log disk is full; output still arrives" {
	full() { # no file may grow
		run "$1" bash -c 'trap "" XFSZ; ulimit -f 0; exec timeout -k 5 30 "$@" < /dev/null' bash "$RUNNER" -np 2 --output-filename "${@:2}"
	}
	full -125 "$T/log" sh -c 'echo a$RANK; echo b$RANK'
	[ "$(grep '^\[' <<< "$output" | sort)" = "[0]<stdout>:a0
[0]<stdout>:b0
[1]<stdout>:a1
[1]<stdout>:b1" ]
	[ "$(grep -c "cannot write" <<< "$output")" = 1 ]
	full -4 "$T/log" sh -c 'echo a; exit 4'
}

@test "240 when an agent cannot be started" {
	run -240 r -np 1 --launch-agent /no/such/agent true
	says "cannot start the agent '/no/such/agent'"
	hinted
	run -240 r -np 1 --launch-agent /bin/false true
	hinted
}

@test "stdout gone: the job ends as by TERM, runner by SIGPIPE" {
	run -0 fate bash -c 'set -o pipefail
		"$0" -np 2 bash -c "trap \"echo term > $1.\$RANK; exit\" TERM
			: > $1.ready.\$RANK
			until [ -e $1.ready.0 ] && [ -e $1.ready.1 ]; do :; done
			while :; do echo y; done" 2> "$1.err" | head -1 > /dev/null
		[ "${PIPESTATUS[0]}" = 141 ]' "$RUNNER" "$T/ends"
	[ "$output" = 0 ]
	[ -e "$T/ends.0" ]
	[ -e "$T/ends.1" ]
}

@test "TERM: 0 if every rank ended with 0, else 143" {
	start -np 2 bash -c 'trap "echo saved; exit 0" TERM; echo ready$RANK; sleep 20 & wait'
	wait_for said ready0
	wait_for said ready1
	kill -TERM "$pid"
	ended_with 0
	[ "$(grep -c saved "$T/out")" = 2 ]
	grep -x 'runner: received SIGTERM: sent SIGTERM to 2 ranks, SIGKILL follows in 10 s' "$T/err"
	start -np 2 bash -c 'echo ready$RANK; sleep 20 & wait'
	wait_for said ready0
	wait_for said ready1
	kill -TERM "$pid"
	ended_with 143
}

@test "HUP: 129, even if every rank ended with 0" {
	start -np 1 bash -c 'trap "exit 0" HUP; echo ready; sleep 20 & wait'
	wait_for said ready
	kill -HUP "$pid"
	ended_with 129
	grep -x 'runner: received SIGHUP: sent SIGHUP to 1 rank, SIGKILL follows in 10 s' "$T/err"
}

@test "a signal that runner was started to ignore stays ignored (nohup)" {
	env --default-signal --ignore-signal=HUP "$RUNNER" -np 1 bash -c 'echo ready; read -r -t 20 x; echo done' \
		< <(wait_for said go; echo) > "$T/out" 2> "$T/err" &
	pid=$!
	wait_for said ready
	kill -HUP "$pid"
	echo go >> "$T/err"
	ended_with 0
	said 'done'
}

@test "INT: ranks get SIGINT, runner dies by it" {
	run -0 fate bash -c '{ until grep -q ready "$1" 2> /dev/null; do :; done; kill -INT $$; } &
		trap - INT
		exec "$0" -np 1 bash -c "trap \"echo int; exit 0\" INT; echo ready; sleep 20 & wait" > "$1" 2> "$1.err"' \
		"$RUNNER" "$T/out"
	[ "$output" = -2 ]
	said int
}

@test "a shell's loop stops at ^C" {
	cat > "$T/loop" <<- 'E'
		for i in 1 2 3; do
			echo "turn $i"
			"$1" -np 1 bash -c 'echo ready; sleep 20 & wait' < /dev/null 2> /dev/null
		done
		echo after
	E
	env --default-signal setsid bash "$T/loop" "$RUNNER" > "$T/out" &
	pid=$!
	wait_for said ready
	# to the foreground group, as a terminal does it
	kill -INT -- "-$pid"
	ended_with 130
	[ "$(grep -c turn "$T/out")" = 1 ]
	run ! said after
}

@test "TERM, HUP and INT before the ranks run" {
	printf '#!/bin/sh\ntouch %s/started\nexec cat > /dev/null\n' "$T" > "$T/slow"
	chmod +x "$T/slow"
	for sig in TERM:143 HUP:129 INT:130; do
		rm -f "$T/started"
		start -np 1 --launch-agent "$T/slow" true
		wait_for test -e "$T/started"
		kill "-${sig%:*}" "$pid"
		ended_with "${sig#*:}"
	done
}

@test "USR1 and USR2 go to the ranks, the job goes on" {
	start -np 2 bash -c 'trap "echo one$RANK" USR1; trap "echo two\$RANK; exit 0" USR2; echo ready$RANK
		while :; do sleep 20 & wait; done'
	wait_for said ready0
	wait_for said ready1
	kill -USR1 "$pid"
	wait_for said one0
	wait_for said one1
	kill -USR2 "$pid"
	ended_with 0
}

@test "--keep-going: the others run to their end, the status is the first failure's" {
	run -3 --separate-stderr r --keep-going -np 3 bash -c '
		await() { until [ -s "$1" ] && [ ! -e "/proc/$(cat "$1")" ]; do sleep 0.02; done; }
		echo $$ > "$0.new.$RANK" && mv "$0.new.$RANK" "$0.$RANK"
		[ $RANK = 0 ] && exit 3
		[ $RANK = 1 ] && { await "$0.0"; exit 4; }
		await "$0.1"; echo done' "$T/pid"
	[ "$output" = "[2]<stdout>:done" ]
	[[ $stderr == *"rank 0 on "*"exited with status 3"* ]]
}

@test "without --keep-going the others are ended" {
	run -3 r -np 2 sh -c '[ $RANK = 0 ] && exit 3; sleep 20; echo done'
	silent_on "done"
}

@test "what a rank's children have written when it ends arrives; then they are gone" {
	run -0 r -np 1 --no-tag sh -c '(echo late; : > "$0"; sleep 1000) &
		until [ -e "$0" ]; do :; done; echo early' "$T/written"
	says late early
}

# ---- hints ----

@test "-H with an IPv6 address without brackets: the hint has what was meant" {
	run -2 r -H ::1:2 true
	says "hint: write '[::1]:2', or '[::1:2]' if that is the whole address"
	run -2 r -H fe80::1:abcd true
	says "hint: write '[fe80::1:abcd]' or '[fe80::1:abcd]:SLOTS'"
}

@test "too few descriptors for the ranks: the hint says how to get more" {
	run -125 bash -c 'ulimit -n 64; exec timeout 30 "$0" --oversubscribe -np 64 true' "$RUNNER" < /dev/null
	says "Too many open files" "hint: raise 'ulimit -Hn' on that host"
}

@test "--check: the size of /dev/shm, and too little of it, as in a container" {
	run -0 r --check -np 1 true
	grep -E '^ok +shm .*: [0-9]+ MiB$' <<< "$output" || { echo "$output"; return 1; }
	unshare -Ur --mount mount -t tmpfs none /dev/shm 2> /dev/null || skip "no mount namespace of its own"
	run -240 unshare -Ur --mount sh -c 'mount -t tmpfs -o size=64m none /dev/shm && exec timeout 30 "$0" --check -np 1 true' "$RUNNER"
	says '/dev/shm has 64 MiB' 'of a container: --shm-size'
}

@test "--check: a program that imports berth needs a libberth that can be loaded" {
	[ "${SAN:-}" != 1 ] || skip "a sanitized library cannot be loaded into Python"
	echo 'import berth' > "$T/train.py"
	export PYTHONPATH=$ROOT/lib/python
	BERTH_LIBRARY=/nowhere/libberth.so run -240 r --check -np 1 python3 "$T/train.py"
	says 'FAIL  imports' 'no libberth.so.'
	BERTH_LIBRARY=$BUILD/lib/libberth.so run -0 r --check -np 1 python3 "$T/train.py"
	says '1 import of'
}
