#!/usr/bin/env bats
# limit_s: 300
# takes_s: 8
# more: long ones
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the hosts' shells; bats sets output
# Keys, terminals and the shell's job control, over ssh: a person at an interactive bash on n0.
#
# LONG_S is how long runner, its reader or the whole job stand still, HOST_TIMEOUT the limit
# that must not end it: tests/soak/terminal.sh has the real ones.
load jobs

setup_file() {
	cluster_up 2
	[ -z "$(why_no_cluster)" ] || return 0
	mark_clean n0 n1 n2
	script polite <<< 'trap "echo int$RANK; exit 0" INT; echo "ready$RANK"; while :; do sleep 0.05; done'
	script stubborn <<< 'trap "echo int >> /vc/t/heard" INT; trap "echo term >> /vc/t/heard" TERM
		echo "ready$RANK"; while :; do sleep 0.05; done'
	script clock <<< 'echo "ready$RANK"; while sleep 0.05; do echo "tick$RANK"; done'
	# numbered lines until somebody says that it is enough
	script counts <<- 'S'
		import os, sys, time
		i = 0
		while not os.path.exists(sys.argv[1]):
		    print(i, "." * 60, flush=True)
		    i += 1
		    if len(sys.argv) > 2: time.sleep(float(sys.argv[2]))
		print("end", i)
	S
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	rm -f "$STATE"/t/heard "$STATE"/t/enough*
}

teardown() {
	[ -n "$(why_no_cluster)" ] || on n0 sh -c 'pkill -KILL -x runner; pkill -KILL -f terminal.py' || true
}

# An interactive shell on n0 in a terminal of its own; t gives it steps of tests/helpers/terminal.py.
terminal() {
	rm -f "$T/steps" "$T/answers"
	mkfifo "$T/steps" "$T/answers"
	on n0 env PS1='prompt> ' TERM=xterm NO_COLOR=1 PATH="$BUILD/bin:/usr/bin:/bin" TERMINAL_LOG=/vc/t/shown /usr/bin/python3 \
		"$ROOT/tests/helpers/terminal.py" bash --norc --noprofile -i < "$T/steps" > "$T/answers" 2>&1 3>&- &
	exec 5> "$T/steps" 6< "$T/answers"
	t wait 'prompt>'
	t send 'cd /vc/t; bind "set enable-bracketed-paste off"\r'
	t wait 'prompt>'
}

t() {
	local step=$*
	printf '%s\n' "${step//\\/\\}" >&5
	read -r -t 40 answer <&6 || answer='no answer'
	[[ $answer == ok* ]] || { echo "$step: $answer"; return 1; }
}

leave() {
	exec 5>&- 6<&-
}

types() { t send "$*\\r"; }

# The states of all ranks and their children on both hosts.
states() {
	local h
	for h in n1 n2; do
		on $h sh -c 'for f in $(grep -slzF BERTH_JOB= /proc/[0-9]*/environ); do sed "s/.*) \(.\).*/\1/" ${f%environ}stat; done'
	done 2> /dev/null | sort -u
}
all_are() { [ "$(states)" = "$1" ]; }
none_run() { [ -z "$(states)" ]; }
runs() { on n0 pgrep -x runner > /dev/null; }
runs_not() { ! runs; }
has_keys() { [[ $(on n0 ps -o stat= -C runner) == *+* ]]; } # it is in front
streams() { # both hosts' ranks are at work, and not stopped
	local h
	for h in n1 n2; do [ "$(on $h pgrep -cx flow)" = 2 ] || return; done
	[[ $(states) != *T* ]]
}

# FILE has each of four ranks' numbers from 0 on, and its end.
all_counted() { # FILE
	/usr/bin/python3 - "$1" <<- 'P'
		import re, sys
		at, ended = {}, {}
		for line in open(sys.argv[1]):
		    m = re.fullmatch(r"\[(\d)\]<stdout>:(?:(\d+) \.{60}|end (\d+))\r?\n", line)
		    if not m: sys.exit(f"not a line of a rank: {line!r}")
		    rank, n, end = m[1], m[2], m[3]
		    if int(n or end) != at.get(rank, 0): sys.exit(f"rank {rank}: {line!r} after {at.get(rank, 0)} lines")
		    if end: ended[rank] = True
		    else: at[rank] = int(n) + 1
		if sorted(ended) != list("0123"): sys.exit(f"ended: {ended}, lines: {at}")
		print("lines:", at)
	P
}

@test "^C once: the ranks hear it, the shell's loop stops, the terminal is as it was" {
	terminal
	t modes
	modes=$answer
	types 'for i in 1 2; do echo round $i; runner -H n1:2,n2:2 bash polite; done; echo "status "$?'
	for _ in 1 2 3 4; do t wait ready; done
	t send '\x03'
	t wait 'sent SIGINT to 4 ranks'
	for _ in 1 2 3 4; do t wait '>:int'; done
	t wait 'prompt>'
	t unseen 'round 2'
	types 'echo "status "$?'
	t wait 'status 130'
	t wait 'prompt>'
	t modes
	[ "$answer" = "$modes" ]
	all_clean n0 n1 n2 # but for our own terminal
	leave
}

# bats test_tags=all
@test "^C once, and ranks that stay: TERM after the grace, then KILL; twice: at once" {
	terminal
	types 'runner --kill-grace 1 -H n1,n2 bash stubborn'
	t wait ready
	t wait ready
	t send '\x03'
	t wait 'prompt>'
	none_run
	[ "$(sort "$STATE/t/heard" | uniq -c | tr -s ' ')" = $' 2 int\n 2 term' ]
	rm "$STATE/t/heard"
	types 'runner --kill-grace 1000 -H n1,n2 bash stubborn'
	t wait ready
	t wait ready
	t send '\x03'
	t wait 'again ends them now'
	t send '\x03'
	t wait 'ending 2 ranks now'
	t wait 'prompt>'
	none_run
	run ! grep -qs term "$STATE/t/heard" # whether bash got to its trap for INT is open
	types 'echo "status "$?'
	t wait 'status 130'
	leave
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "^C while hosts come up" {
	"$VCLUSTER" freeze n2
	terminal
	types 'runner -H n1,n2 true; echo "status "$?'
	wait_for runs
	t send '\x03'
	t wait 'prompt>'
	"$VCLUSTER" thaw n2
	types 'echo "status "$?'
	t wait 'status 130'
	leave
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "a host that refuses: the terminal says so at once, and until --start-timeout" {
	"$VCLUSTER" sshd n2 stop
	terminal
	types 'runner -H n1,n2 true; echo "status "$?'
	t wait 'runner: 1 of 2 hosts up after '
	t wait 's, waiting for n2 (connection refused)'
	"$VCLUSTER" sshd n2 start
	t wait 'status 0'
	t unseen 'hint:'
	t wait 'prompt>'
	"$VCLUSTER" sshd n2 stop
	types 'runner --start-timeout 3 -H n1,n2 true; echo "status "$?'
	t wait 'waiting for n2 (connection refused)'
	t wait 'runner: root@n2:22: cannot connect: Connection refused'
	t wait 'hint: check that sshd runs there'
	t unseen 'hint:'
	t wait 'status 240'
	"$VCLUSTER" sshd n2 start
	leave
	all_clean n0 n1 n2
}

@test "^Z, jobs, fg, bg, kill: the shell's job control works, on all hosts" {
	terminal
	t modes
	modes=$answer
	types 'runner -H n1:2,n2:2 bash clock'
	for rank in 0 1 2 3; do t wait tick$rank || t wait tick; done
	before=${EPOCHREALTIME/./}
	t send '\x1a'
	t wait Stopped
	t wait 'prompt>'
	((${EPOCHREALTIME/./} - before < 8000000)) # it waits for no host: agents are heard each 5 s
	wait_for all_are T
	types jobs
	t wait 'Stopped'
	t unseen tick
	types fg
	t wait tick3
	t wait tick0
	t send '\x1a'
	t wait Stopped
	types bg
	t wait tick2
	types jobs
	t wait Running
	types fg
	wait_for has_keys
	t wait tick1
	t send '\x1a'
	t wait Stopped
	types 'kill %1'
	wait_for runs_not
	none_run
	types 'wait %1; echo "status "$?'
	t wait 'status 143'
	t wait 'prompt>'
	t modes
	[ "$answer" = "$modes" ]
	leave
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "the terminal closes: nothing is left; stopped by ^Z before: nor then" {
	terminal
	types 'runner -H n1:2,n2:2 bash clock'
	t wait tick3
	t close
	leave
	wait_for runs_not
	all_clean n0 n1 n2
	terminal
	types 'runner -H n1:2,n2:2 bash clock'
	t wait tick3
	t send '\x1a'
	t wait Stopped
	wait_for all_are T
	t close
	leave
	wait_for runs_not
	all_clean n0 n1 n2
}

@test "a progress bar moves with each update, before the next one comes" {
	script bars <<- 'S'
		for i in 10 20 30; do
			[ "$1" = tqdm ] && printf '\r %d%%|' $i >&2 || printf '%d%%|\r' $i >&2
			until [ -e /vc/t/enough.$1.$i ]; do sleep 0.05; done
		done
		echo >&2
	S
	terminal
	for style in tqdm pip; do
		types "runner -q -H n1 sh bars $style"
		for i in 10 20 30; do
			t wait "$i%|"
			t unseen "$((i + 10))%|"
			touch "$STATE/t/enough.$style.$i"
		done
		t wait 'prompt>'
	done
	leave
}

@test "what is typed goes to rank 0; in the background nothing is read, and fg reads on" {
	terminal
	types 'runner -q -H n1,n2 cat'
	wait_for runs
	types 'one'
	t wait '<stdout>:one'
	t send '\x1a'
	t wait Stopped
	types fg
	wait_for has_keys
	types 'two'
	t wait '<stdout>:two'
	t send '\x04'
	t wait 'prompt>'
	types 'runner -q -H n1,n2 cat &'
	wait_for runs
	types 'echo to the "shell"'
	t wait 'to the shell'
	types jobs
	t wait Running # not: Stopped (tty input)
	types fg
	wait_for has_keys
	types 'three'
	t wait '<stdout>:three'
	t send '\x04'
	t wait 'prompt>'
	leave
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "in the background of a script, and in nohup: a terminal that closes does not end it" {
	script background <<< 'runner -q -H n1,n2 /usr/bin/python3 counts /vc/t/enough 0.05 > out & wait; echo "status $?" > status'
	rm -f "$STATE"/t/status "$STATE"/t/nohup.*
	terminal
	types 'setsid bash background &'
	types 'nohup runner -q -H n1:2,n2:2 /usr/bin/python3 counts /vc/t/enough 0.05 > nohup.out'
	wait_for grep -qs '3.*:10 ' "$STATE/t/nohup.out"
	wait_for grep -qs '1.*:10 ' "$STATE/t/out"
	t close
	leave
	sleep 0.5
	[ "$(on n0 pgrep -cx runner)" = 2 ]
	touch "$STATE/t/enough"
	wait_for runs_not
	all_counted "$STATE/t/nohup.out"
	wait_for grep -qx 'status 0' "$STATE/t/status"
	all_clean n0 n1 n2
}

@test "stdin closed; stdout a broken pipe: the job ends, and runner by SIGPIPE" {
	run -0 on n0 sh -c '"$1" -q -H n1,n2 sh -c "cat; echo end" <&-' sh "$RUNNER"
	[ "$(plain)" = $'end\nend' ]
	for also in '' '2>&1'; do
		run -0 on n0 bash -c '"$1" -q -H n1:2,n2:2 yes < /dev/null '"$also"' | head -1; echo ${PIPESTATUS[0]}' bash "$RUNNER"
		[ "${lines[1]}" = 141 ]
		none_run
	done
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "^Z while stdin floods: all stop, all go on, every byte arrives" {
	local bytes=24000000 # for 60 s, unless somebody says that it is enough
	script slowly <<< "set -o pipefail; $HELPERS/flow slow 400000 /vc/t/enough | $HELPERS/flow same binary 5 $bytes 0"
	RANK=0 "$HELPERS/flow" write binary 5 $bytes > "$STATE/t/flow"
	terminal
	types "runner -q --stdin all -H n1,n2 bash slowly < flow"
	wait_for streams
	for _ in 1 2; do
		t send '\x1a'
		t wait Stopped
		t wait 'prompt>'
		wait_for all_are T
		types fg
		wait_for has_keys
		wait_for streams
	done
	touch "$STATE/t/enough"
	t wait 'prompt>'
	types 'echo "status "$?'
	t wait 'status 0'
	leave
	rm "$STATE/t/flow"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "^Z, a reader that stands still, kill -STOP of runner: long ones; the job lives and no byte is lost" {
	local long=${LONG_S:-24} stop=${STOP_S:-8} timeout=${HOST_TIMEOUT:-6} stop_timeout=${STOP_TIMEOUT:-6}
	# its reader waits so long
	{ on n0 timeout -k 5 $((long + 60)) "$RUNNER" --host-timeout "$timeout" -H n1:2,n2:2 /usr/bin/python3 /vc/t/counts /vc/t/enough.1 < /dev/null 2> "$T/err.1" |
		{ head -c 1000; sleep "$long"; cat; } > "$T/out.1"; } 3>&- &
	# stopped by ^Z
	terminal
	types "runner --host-timeout $timeout -H n1:2,n2:2 /usr/bin/python3 counts /vc/t/enough.2 0.01 > out.2 2> err.2"
	wait_for grep -qs '3.*:10 ' "$STATE/t/out.2"
	t send '\x1a'
	t wait Stopped
	t wait 'prompt>'
	# stopped by force
	on n0 timeout -k 5 $((long + 60)) "$RUNNER" --host-timeout "$stop_timeout" -H n1:2,n2:2 /usr/bin/python3 /vc/t/counts /vc/t/enough.3 0.01 \
		< /dev/null > "$T/out.3" 2> "$T/err.3" 3>&- &
	wait_for grep -q '3.*:10 ' "$T/out.3"
	on n0 pkill -STOP -xf "$RUNNER .* /vc/t/enough.3 .*"
	sleep "$stop"
	on n0 pkill -CONT -xf "$RUNNER .* /vc/t/enough.3 .*"
	count=$(wc -l < "$T/out.3")
	wait_for_more() { [ "$(wc -l < "$T/out.3")" -gt $((count + 400)) ]; }
	wait_for wait_for_more
	touch "$STATE/t/enough.3"
	sleep $((long > stop ? long - stop : 0))
	types fg
	t wait 'runner --host'
	touch "$STATE/t/enough.1" "$STATE/t/enough.2"
	t wait 'prompt>'
	types 'echo "status "$?'
	t wait 'status 0'
	leave
	wait
	for n in "$T/out.1" "$STATE/t/out.2" "$T/out.3"; do
		all_counted "$n"
	done
	run ! grep -h 'no message for' "$T/err.1" "$STATE/t/err.2" "$T/err.3"
	all_clean n0 n1 n2
}
