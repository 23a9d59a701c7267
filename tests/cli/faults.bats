#!/usr/bin/env bats
# limit_s: 240
# takes_s: 31
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the ranks' shells; bats sets output
# Whatever dies or is stopped, and however: nothing of the job is left, and the status says it.
#
# Each rank is a bash script without traps, with a child in the background, one in a session of
# its own, one that was forked twice, and one that ignores what can be ignored.
load common

setup() {
	mark=MARK=$T/$RANDOM
	cat > "$T/messy" <<- 'E'
		sleep 1000 &
		setsid sleep 1000 &
		(setsid sleep 1000 & (trap '' HUP INT TERM; exec sleep 1000) &)
		echo "ready$RANK $$"
		wait
		sleep 1000
	E
	cat > "$T/saves" <<- 'E'
		trap 'echo "saved$RANK"; exit 0' TERM
		setsid sleep 1000 &
		echo "ready$RANK $$"
		while :; do wait; done
	E
	cat > "$T/ignores" <<- 'E'
		trap '' TERM INT HUP
		echo "ready$RANK $$"
		while :; do sleep 1000; done
	E
}

teardown() {
	local p
	for p in ${pid-} $(alive_with "$mark"); do
		kill -KILL "$p" 2> /dev/null || true
	done
}

# runner in the background, ranks running.
start() { # SCRIPT OPTION...
	local script=$T/$1 rank; shift
	env --default-signal "$RUNNER" -x "$mark" "$@" -np 2 bash "$script" < /dev/null > "$T/out" 2> "$T/err" &
	pid=$!
	for rank in 0 1; do
		wait_for grep -q "ready$rank" "$T/out"
	done
	guardian=$(pgrep -P "$pid" || true)
	agent=$(pgrep -x -P "${guardian:-0}" berth-agent || true)
}

rank_pid() { sed -n "s/.*ready$1 //p" "$T/out"; }
over() { [ ! -e "/proc/$pid" ]; }
none_left() { [ -z "$(alive_with "$mark")" ]; }
state() { sed 's/.*) \(.\).*/\1/' "/proc/$1/stat"; }

# runner ends with STATUS, and at that moment nothing of the job is left.
ended_with() { # STATUS
	local status=0 left
	wait_for over || return
	left=$(alive_with "$mark")
	wait "$pid" || status=$?
	if [ -n "$left" ] || [ "$status" != "$1" ]; then
		echo "status $status, left: $left"
		cat "$T/err"
		return 1
	fi
}

err_says() { grep -qF -- "$1" "$T/err" || { cat "$T/err"; return 1; }; }

@test "kill -9 of a rank: the rest goes, and the rank is named" {
	start messy
	kill -KILL "$(rank_pid 1)"
	ended_with 137
	err_says "rank 1 on "
	err_says "was ended by SIGKILL"
}

@test "a rank that fails: the other ranks' trees go" {
	start messy --timeout 60
	kill -SEGV "$(rank_pid 0)"
	ended_with 139
	err_says "rank 0 on "
}

@test "a rank that ends with 0 leaves no process behind" {
	sed -i 's/^wait/exit 0/' "$T/messy"
	start messy
	ended_with 0
}

@test "kill -9 of the agent: 241, nothing left" {
	start messy
	kill -KILL "$agent"
	wait_for over
	wait_for none_left
	ended_with 241
	err_says "lost its agent: the stream ended (its status: 137)"
	err_says "hint: "
}

@test "kill -9 of the guardian: 241, nothing left" {
	start messy
	kill -KILL "$guardian"
	wait_for over
	wait_for none_left
	ended_with 241
}

@test "kill -9 of agent and guardian at once: nothing left" {
	start messy
	kill -KILL "$agent" "$guardian"
	wait_for over
	wait_for none_left
	ended_with 241
}

@test "kill -9 of runner: nothing left" {
	start messy
	kill -KILL "$pid"
	wait_for none_left
	wait_for test ! -e "/proc/$agent"
	wait_for test ! -e "/proc/$guardian"
}

@test "kill -9 of runner while ranks write: nothing left" {
	printf 'echo "ready$RANK"; yes\n' > "$T/writes"
	start writes
	kill -KILL "$pid"
	wait_for none_left
}

@test "TERM to the agent is TERM to its ranks" {
	start saves
	kill -TERM "$agent"
	ended_with 0
	grep -q saved0 "$T/out"
	grep -q saved1 "$T/out"
}

@test "TERM: a rank that traps it cleans up within the grace" {
	start saves
	kill -TERM "$pid"
	ended_with 0
	grep -q saved0 "$T/out"
	grep -q saved1 "$T/out"
}

@test "after a failure, too, a rank that traps TERM cleans up" {
	sed -i '1i [ $RANK = 1 ] && trap "exit 5" USR1' "$T/saves"
	start saves
	kill -USR1 "$(rank_pid 1)"
	ended_with 5
	grep -q saved0 "$T/out"
}

@test "a rank that ignores TERM is killed after --kill-grace" {
	start ignores --kill-grace 1
	kill -TERM "$pid"
	ended_with 143
}

@test "TERM to runner after a failure: the status is the failure's" {
	start ignores --kill-grace 5 # in which TERM comes
	kill -SEGV "$(rank_pid 0)"
	wait_for grep -q "rank 0 on " "$T/err"
	kill -TERM "$pid"
	ended_with 139
}

@test "--kill-grace 0: at once" {
	start ignores --kill-grace 0
	kill -TERM "$pid"
	ended_with 143
}

@test "TERM to messy ranks: 143, nothing left" {
	start messy
	kill -TERM "$pid"
	ended_with 143
}

@test "HUP to messy ranks: 129, nothing left" {
	start messy
	kill -HUP "$pid"
	ended_with 129
}

@test "^C once: ranks get INT; those that stay get TERM, then KILL" {
	start ignores --kill-grace 1
	kill -INT "$pid"
	wait_for grep -q "again ends them now" "$T/err"
	ended_with 130
}

@test "^C twice: at once" {
	start ignores
	kill -INT "$pid"
	wait_for grep -q "again ends them now" "$T/err"
	kill -INT "$pid"
	ended_with 130
}

@test "--timeout ends ranks that ignore TERM" {
	start ignores --timeout 4 --kill-grace 1
	ended_with 124
}

@test "^Z and fg: ranks and their children stop and go on" {
	start messy
	kill -TSTP "$pid"
	stopped() { # all but setsid's and the like: the whole tree
		local p
		for p in "$pid" $(alive_with "$mark"); do
			[ "$(state "$p")" = T ] || return
		done
	}
	wait_for stopped
	kill -CONT "$pid"
	going_on() {
		local p
		for p in "$pid" $(alive_with "$mark"); do
			[ "$(state "$p")" = S ] || return
		done
	}
	wait_for going_on
	kill -TERM "$pid"
	ended_with 143
}

@test "stopped by ^Z, then killed: nothing left" {
	start messy
	kill -TSTP "$pid"
	is_stopped() { [ "$(state "$(rank_pid 0)")" = T ]; }
	wait_for is_stopped
	kill -KILL "$pid"
	wait_for none_left
}

@test "a rank that is stopped is ended all the same" {
	start saves
	kill -STOP "$(rank_pid 0)"
	kill -KILL "$(rank_pid 1)"
	ended_with 137
	grep -q saved0 "$T/out"
}

@test "QUIT: the rank status, and the job goes on" {
	start messy
	kill -QUIT "$pid"
	wait_for grep -q "rank 1 .*running" "$T/err"
	err_says "rank status: 2 ranks, 0 ended"
	err_says "pid $(rank_pid 0) "
	run ! over
	kill -TERM "$pid"
	ended_with 143
}

@test "a fork bomb's worth of children is gone too" {
	printf 'for i in {1..150}; do setsid sleep 1000 & done; echo "ready$RANK $$"; sleep 1000\n' > "$T/many"
	start many
	kill -KILL "$(rank_pid 0)"
	ended_with 137
}

@test "children without the job's environment are found as well" {
	local secs=1000.$RANDOM$RANDOM
	printf '(env -i setsid sleep %s &)\necho "ready$RANK $$"\nsleep 1000\n' "$secs" > "$T/bare"
	start bare
	wait_for pgrep -f "sleep $secs"
	kill -KILL "$(rank_pid 0)"
	ended_with 137
	run ! pgrep -f "sleep $secs"
}

# SO_REUSEADDR lets any process take the port that the agent holds for rank 0.
@test "rank 0 fails, and another process listens on MASTER_PORT: the hint names it" {
	mkfifo "$T/port" "$T/go"
	cat > "$T/binds" <<- E
		echo "ready\$RANK \$\$"
		[ "\$RANK" = 0 ] || exec sleep 1000
		echo "\$MASTER_PORT" > "$T/port"
		read -r _ < "$T/go"
		exec python3 "$T/bind.py" "\$MASTER_PORT" /dev/null
	E
	cat > "$T/bind.py" <<- 'E'
		import socket, sys, time
		s = socket.socket()
		s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		s.bind(("", int(sys.argv[1])))
		s.listen()
		open(sys.argv[2], "w").write("go\n")
		time.sleep(1000)
	E
	start binds
	read -r port < "$T/port"
	python3 "$T/bind.py" "$port" "$T/go" 3>&- &
	local other=$!
	ended_with 1
	kill "$other"
	grep -qF 'Address already in use' "$T/err"
	grep -qxF "hint: run it again with another MASTER_PORT: uid $(id -u), pid $other (python3) listens on $port" "$T/err"
}

@test "berth-agent --sweep kills what carries the job's name, and no other" {
	BERTH_JOB=sweep$$ sleep 1000 3>&- &
	local one=$!
	BERTH_JOB=sweep$$x sleep 1000 3>&- &
	local other=$!
	wait_for grep -qz "sweep$$" "/proc/$one/environ"
	wait_for grep -qz "sweep$$" "/proc/$other/environ"
	run -0 "$AGENT" --sweep "sweep$$"
	[ "$output" = 1 ]
	wait_for test ! -e "/proc/$one"
	kill "$other"
}

# A terminal and an interactive shell: keys as people press them, steps of terminal.py.
# The prompt begins with the status: a ^C that comes late is the shell's own, which drops
# what is typed then.
keys() { # STEPS, RANKS' SCRIPT
	PS1='$? prompt> ' NO_COLOR=1 RUN="$RUNNER -x $mark -np 2 bash $T/${2-messy}" \
		/usr/bin/python3 "$ROOT/tests/helpers/terminal.py" bash --norc --noprofile -i <<< "$1"
}

@test "in a terminal: ^C ends the job, and the shell sees 130" {
	keys 'wait prompt>
		send $RUN\r
		wait ready0
		send \x03
		wait SIGINT to 2 ranks
		send \x03
		wait 130 prompt>'
	none_left
}

@test "in a terminal: ^Z, then fg, then ^\\ and ^C" {
	printf 'echo "ready$RANK $$"; while sleep 0.05; do echo "tick$RANK"; done\n' > "$T/ticks"
	keys 'wait prompt>
		send $RUN\r
		wait tick0
		send \x1a
		wait Stopped
		wait prompt>
		send fg\r
		wait tick0
		wait tick1
		send \x1c
		wait rank status
		wait tick0
		send \x03
		wait SIGINT to 2 ranks
		wait prompt>' ticks
	wait_for none_left
}

@test "in a terminal: closing it ends the job" {
	keys 'wait prompt>
		send $RUN\r
		wait ready
		wait ready'
	wait_for none_left
}
