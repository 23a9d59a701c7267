#!/usr/bin/env bats
# limit_s: 240
# takes_s: 30
# more: more hosts in trouble
# shellcheck disable=SC2001,SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the hosts' shells; bats sets output
# Many hosts, one or a few of them in trouble: the start ends in time, one line and one hint say what
# is wrong with whom, and no agent is left on the others.  And the line that a terminal shows
# while hosts come up.  tests/soak/scale.sh does the same on 64 and 256.
load jobs
load scale

setup_file() {
	cluster_up 16
	[ -n "$(why_no_cluster)" ] || scale_setup 16
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

teardown() {
	local kind host
	[ ! -e "$T/broken" ] || while read -r kind host; do
		mend_host "$kind" "$host"
	done < "$T/broken"
}

trouble() { # KIND HOST
	echo "$1 $2" >> "$T/broken"
	break_host "$1" "$2"
}

err_is() { # REGEX...: the lines of stderr, one each
	local i=0 line
	mapfile -t line < "$SCALE/err"
	for re; do
		[[ ${line[i]} =~ $re ]] || { printf 'line %d is not %s\n' $i "$re"; cat "$SCALE/err"; return 1; }
		i=$((i + 1))
	done
	[ ${#line[@]} = $i ] || { echo "more than $i lines"; cat "$SCALE/err"; return 1; }
}

@test "all hosts come up, also where each is sent the agent; nothing is left" {
	for h in $(seq -f n%.0f 16); do on "$h" rm -rf /root/.cache/berth; done
	scale_run sh -c 'echo $RANK'
	[ "$status" = 0 ]
	err_is
	[ "$(sed 's/.*>://' "$SCALE/out" | sort -n | tr '\n' ' ')" = "$(echo {0..15}) " ]
	nothing_left
	# shadow memory of sanitizers is not runner's
	[ "${SAN-}" = 1 ] || [ "$(peak_kib)" -lt $(($(memory_limit_mib) * 1024)) ]
}

# bats test_tags=all
@test "a slow host holds up the start, and no more" {
	trouble slow n6
	scale_run true
	[ "$status" = 0 ]
	err_is
	nothing_left
}

# bats test_tags=all
@test "a host that cannot start: one line, one hint, in time, and nothing is left on the others" {
	local kind
	for kind in refusing wrong_key unknown_key full other_agent; do
		trouble $kind n7
		# shellcheck disable=SC2046 # words
		scale_run $(options_of $kind) true
		echo "$kind: status $status after $took_ms ms"
		[ "$status" = 240 ]
		err_is "runner: root@n7:22: .*$(sed 's/[][().*^$?]/\\&/g' <<< "$(said_of $kind)")" '^hint: '
		[ "$took_ms" -lt $((patience_s * 1000 + 8000)) ]
		nothing_left
		mend_host $kind n7
		: > "$T/broken"
	done
}

@test "errors of many hosts are folded: one line and one hint each" {
	local h
	for h in n3 n4 n7; do trouble refusing $h; done
	for h in n5 n9; do trouble wrong_key $h; done
	trouble unknown_key n12
	scale_run -q --start-timeout PATIENCE true
	[ "$status" = 240 ]
	err_is 'root@n\[3-4,7\]:22: cannot connect: Connection refused' '^hint: ' \
		'^runner: n5: ssh-ed25519 SHA256:' '^runner: n9: ssh-ed25519 SHA256:' \
		'root@n\[5,9\]:22: its host key is not the one in known_hosts: ssh-ed25519 SHA256:\.\.\.$' '^hint: .*-keygen -R HOST' \
		'root@n12:22: its host key is not in known_hosts: ssh-ed25519 SHA256:[^.]' '^hint: '
	nothing_left
}

# bats test_tags=all
@test "--start-timeout names who is late, and what for" {
	trouble frozen n2
	trouble off n11
	trouble off n12
	scale_run -q --start-timeout PATIENCE true
	[ "$status" = 240 ]
	[ "$took_ms" -ge $((patience_s * 1000)) ]
	[ "$took_ms" -lt $((patience_s * 1000 + 8000)) ]
	err_is 'root@n2:22: no agent in time: sshd there accepted the connection and sent nothing' '^hint: .*--start-timeout' \
		'root@n\[11-12\]:22: no agent in time: nothing answers at that address' '^hint: '
	nothing_left
}

# bats test_tags=all
@test "^C twice while hosts come up: it ends at once and says nothing of ranks" {
	trouble frozen n2
	start -H 'n[1-16]' sleep 100
	wait_for on n1 pgrep -x berth-agent
	on n0 sh -c 'p=$(cat /run/runner.pid); kill -INT $p; sleep 0.01; kill -INT $p || true'
	status_of_job 20
	[ "$status" = 130 ]
	[ ! -s "$T/err" ] || { cat "$T/err"; return 1; }
	nothing_left
}

# ---- what a terminal shows meanwhile ----

# Run COMMAND on n0 on a terminal of 60 columns; what it writes there goes to $SCALE/tty.
on_terminal() { # fg|bg COMMAND...
	script terminal.py <<- 'P'
		import fcntl, os, pty, struct, sys, termios
		pid, fd = pty.fork()
		if pid == 0:
		    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
		    if sys.argv[1] == "bg": # a job of this shell's that is not in front
		        job = os.fork()
		        if job:
		            os._exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
		        os.setpgid(0, 0)
		    os.execvp(sys.argv[2], sys.argv[2:])
		with open("/vc/t/tty", "wb", buffering=0) as out:
		    try:
		        while data := os.read(fd, 65536):
		            out.write(data)
		    except OSError:
		        pass
		sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
	P
	rm -f "$SCALE/tty"
	on n0 timeout 60 python3 /vc/t/terminal.py "$@" < /dev/null
}

# What stands on that terminal at the end: \r goes back, and what follows covers what was there.
screen() {
	python3 -c '
import sys
for line in sys.stdin.buffer.read().decode().split("\n"):
    seen = ""
    for part in line.split("\r"):
        assert len(part) < 60 or "waiting" not in part, part
        seen = part + seen[len(part):]
    print(seen.rstrip())
' < "$SCALE/tty" | sed -e '$!b' -e '/^$/d'
}

drawn() { grep -sqE "$1" "$SCALE/tty"; }

@test "a terminal shows who is waited for; the line is gone at the end" {
	trouble frozen n2
	on_terminal fg "$BERTH/runner" -np 16 -H 'n[1-16]' true 3>&- &
	wait_for drawn 'runner: 15 of 16 hosts up after [0-9]+ s, waiting for n2' ||
		wait_for drawn 'runner: 15 of 16 hosts up after [0-9]+ s, waiting for n2'
	wait_for drawn 'after [2-9][0-9]* s'
	"$VCLUSTER" thaw n2
	wait $!
	[ -z "$(screen)" ]
}

@test "an error on a terminal stands alone" {
	trouble frozen n2
	trouble wrong_key n3
	run -240 on_terminal fg "$BERTH/runner" --start-timeout "$patience_s" -np 16 -H 'n[1-16]' true
	drawn 'waiting for n2'
	screen > "$SCALE/err"
	err_is '^runner: root@n2:22: no agent in time' '^hint: ' '^runner: root@n3:22: its host key' '^hint: '
}

# bats test_tags=all
@test "nothing is drawn in a log, in the background, with -q, or when the start is quick" {
	local begin=$EPOCHREALTIME
	on_terminal fg "$BERTH/runner" -np 15 -H 'n1,n[3-16]' true
	[ ! -s "$SCALE/tty" ] || [ $((${EPOCHREALTIME/./} - ${begin/./})) -gt 1000000 ]
	trouble frozen n2
	on n0 timeout 60 "$BERTH/runner" --start-timeout 2 -H n1,n2 true 2> "$SCALE/err" || true
	run -1 grep waiting "$SCALE/err"
	run -240 on_terminal bg "$BERTH/runner" --start-timeout 2 -H n1,n2 true
	run -1 drawn waiting
	run -240 on_terminal fg "$BERTH/runner" -q --start-timeout 2 -H n1,n2 true
	run -1 drawn waiting
}

all_up() { [ "$(cat "$SCALE"/up.* 2> /dev/null | wc -c)" = 64 ]; }

# bats test_tags=all
@test "runner --dump: 64 ranks on 16 hosts, one of them elsewhere" {
	local job
	cat > "$SCALE/stuck.py" <<- 'EOF'
		import os, time
		def next_batch():
		    time.sleep(600)
		def waits():
		    time.sleep(600)
		with open("/vc/t/up." + os.environ["RANK"], "w") as f:
		    f.write("1")
		next_batch() if os.environ["RANK"] == "37" else waits()
	EOF
	on n0 timeout -k 5 100 "$BERTH/runner" --oversubscribe --stdin none --kill-grace 1 -np 64 -ppn 4 -H "$SCALE_HOSTS" \
		/usr/bin/python3 /vc/t/stuck.py < /dev/null > "$SCALE/out" 2> "$SCALE/err" 3>&- &
	job=$!
	wait_for all_up
	local begin=$EPOCHREALTIME
	run -0 on n0 "$BERTH/runner" --dump
	echo "took $(((${EPOCHREALTIME/./} - ${begin/./}) / 1000)) ms"
	says "64 ranks, 64 running" "  1 rank  [37]  stuck.py:3 next_batch" "  63 ranks  [0-36,38-63]  stuck.py:5 waits" \
		"on 'n10'" "/vc/t/stuck.py:3 next_batch"
	silent_on "no stack"
	on n0 sh -c 'kill -TERM $(pgrep -x runner)'
	wait $job || true
	nothing_left
	echo "$output"
}
