#!/usr/bin/env bats
# limit_s: 180
# takes_s: 20
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for a shell below; bats sets output
# `berth-agent --connect=HOW` without Slurm: what is no call, and launchers that cannot be reached.
load common

setup() {
	TEST_VERSION=$("$AGENT" --version | sed 's/.* //')
	TEST_WIRE=$(sed -n 's/^enum { WIRE_VERSION = \([0-9]*\) };/\1/p' "$ROOT/common/wire.h")
	export TEST_VERSION TEST_WIRE
	unset SLURMD_NODENAME
	cd "$T" || return
}

teardown() {
	[ -z "${listener-}" ] || kill "$listener"
}

py() { /usr/bin/python3 "$ROOT/tests/cli/connect.py" "$@"; }

# stdin to the agent; its stdout and stderr to files.
agent() {
	local status=0
	timeout -k 5 60 "${BY:-$AGENT}" "--connect=${HOW:-clear}" > "$T/out" 2> "$T/err" || status=$?
	cat "$T/err"
	return $status
}

# The agent says why it cannot call, in one line, and nothing on stdout.
cannot() { # TEXT COMMAND...: the command's output is its stdin
	local text=$1 open; shift
	"$@" > "$T/in"
	# a pipe that stays open, as srun's does
	exec 4< <(cat "$T/in"; exec sleep 50 3>&-)
	open=$!
	run -125 agent <&4
	exec 4<&-
	kill "$open"
	says "berth-agent: $text"
	[ "$(wc -l < "$T/err")" -le 2 ] # with a hint
	[ ! -s "$T/out" ]
}

# A launcher that is none; its port is $port.
listens() { # WORD
	[ -z "${listener-}" ] || kill "$listener"
	rm -f "$T/listener"
	/usr/bin/python3 "$ROOT/tests/cli/connect.py" listen "$1" > "$T/listener" 3>&- & # its own pid
	listener=$!
	wait_for test -s "$T/listener"
	port=$(head -1 "$T/listener")
}

@test "a person starts it: it says what it is" {
	for stdin in /dev/null "$AGENT"; do
		run -2 timeout 20 "$AGENT" --connect=munge < "$stdin"
		says "runner starts this program" "not for the command line"
	done
	run -2 timeout 20 script -qec "'$AGENT' --connect=clear" /dev/null < /dev/null
	says "runner starts this program"
	for how in --connect --connect= --connect=other --connect=munge:; do
		run -2 timeout 20 "$AGENT" $how < <(py call)
		says "runner starts this program"
	done
}

@test "E_CALL: what is on stdin is no call" {
	run -125 agent < <(true)
	says "berth-agent: cannot call runner: stdin has ended"
	py call > "$T/call"
	size=$(wc -c < "$T/call")
	for n in 1 4 5 50 $((size - 1)); do
		run -125 agent < <(head -c "$n" "$T/call")
		says "berth-agent: cannot call runner: stdin has ended"
	done
	cannot "cannot call runner: another message on stdin" printf '\0\0\0\0\x12'
	cannot "cannot call runner: stdin has no message of runner's" printf 'garbage\n'
	cannot "cannot call runner: stdin has no message of runner's" printf '\1\0\1\0\x2d'
	cannot "cannot call runner: stdin has no message of runner's" printf '\4\0\0\0\x2dabcd'
	cannot "cannot call runner: stdin has no message of runner's" sh -c 'cat "$1" /dev/urandom | head -c 20000 | sed "s/^./\xff/"' sh "$T/call"
}

@test "a launcher of another version: the agent asks for its copy" {
	local words=(version=0.0.1 wire=$((TEST_WIRE + 1)))
	for word in "${words[@]}"; do
		py call "$word" > "$T/in"
		SLURMD_NODENAME=node-7 run -125 agent < <(cat "$T/in")
		says "node-7: the agent has version $TEST_VERSION (protocol $TEST_WIRE)"
		[ "$(cat "$T/out")" = $'\n:berth: again node-7' ]
	done
	run -125 agent < <(cat "$T/in")
	[ "$(cat "$T/out")" = $'\n'":berth: again $(uname -n)" ]
}

@test "E_CALL: a call without an address, a port, a key" {
	cannot "cannot call runner: no address" py call addresses=
	cannot "cannot call runner: no address" py call addresses=localhost,a.name
	cannot "cannot call runner: no address" py call port=0
	cannot "cannot call runner: no address" py call port=65536
	cannot "cannot call runner: no address" py call port=4294967295
	for n in 0 31 33 4000; do
		cannot "cannot call runner: " py call key=$n
		! grep -q address "$T/err"
	done
}

# Where MUNGE runs, a process on the network that reads and writes srun's stdin gets nothing.
@test "a key in clear is refused where MUNGE was said, and no address is called" {
	listens silent
	HOW=munge cannot "cannot call runner: runner uses MUNGE, and the message on stdin is not a credential" \
		py call port="$port"
	cp "$AGENT" "$T/copy"
	BY=$T/copy HOW=munge:/run/munge/munge.socket.2 cannot "cannot call runner: runner uses MUNGE" \
		py call port="$port" copy=1
	HOW=munge:/nowhere cannot "cannot call runner: " py call stdin=1 <<< MUNGE:garbage:
	[ -e "$T/copy" ]
	[ "$(wc -l < "$T/listener")" = 1 ] # its port
}

standin() { # what is in the folder of tests/helpers/libmunge.c
	mkdir -p "$T/lib" "$T/munge"
	ln -sf "$HELPERS/libmunge.so" "$T/lib/libmunge.so.2"
	export STANDIN_MUNGE=$T/munge LD_LIBRARY_PATH=$T/lib
	echo 'of the cluster' > "$T/munge/key"
}

# A `call` with a credential.
wrapped() { # NAME=VALUE...
	py door "$@" | "$HELPERS/munge_probe" wrap > "$T/credential"
	py call stdin=1 "$@" < "$T/credential"
}

@test "a credential of MUNGE: what it names is called; not one that was changed, is old, or of another user" {
	standin
	listens silent
	HOW=munge cannot "cannot call runner at 127.0.0.1 (port $port): " wrapped port="$port" within_ms=1000
	grep -q called "$T/listener"
	listens silent
	wrapped port="$port" > "$T/call"
	for n in 6 60 100 150; do
		HOW=munge cannot "cannot call runner: MUNGE: the stand-in did not make it" \
			py call stdin=1 change=$n < "$T/credential"
	done
	echo 4000 > "$T/munge/age"
	HOW=munge cannot "cannot call runner: the credential is 40" cat "$T/call"
	echo -400 > "$T/munge/age"
	HOW=munge cannot "cannot call runner: the clock here is " cat "$T/call"
	rm "$T/munge/age"
	echo 4242 > "$T/munge/uid"
	HOW=munge cannot "cannot call runner: user 4242 made the credential" wrapped port="$port"
	rm "$T/munge/key"
	HOW=munge cannot "cannot call runner: MUNGE: the stand-in is down" cat "$T/call"
	[ "$(wc -l < "$T/listener")" = 1 ] # its port
}

@test "nobody listens: it ends after about 3 s, not before" {
	local begun=$(($(date +%s%N) / 1000000)) ms
	cannot "cannot call runner at 127.0.0.1, 127.0.0.2 (port 1): Connection refused" py call addresses=127.0.0.1,127.0.0.2
	ms=$(($(date +%s%N) / 1000000 - begun))
	[ $ms -ge 2900 ]
	[ $ms -lt 15000 ]
	cannot "cannot call runner at 127.0.0.1 (port 1): Connection refused" py call within_ms=300
	cannot "cannot call runner at 127.0.0.1 (port 1): " py call within_ms=0
}

@test "one that is not runner answers nothing, garbage, or hangs up: it gets no more than a call" {
	for word in silent garbage closed; do
		listens $word
		cannot "cannot call runner at 127.0.0.1 (port $port): " py call port="$port" within_ms=1500
		run -0 cat "$T/listener"
		says called
		silent_on 'what?'
		kill "$listener"
		listener=
	done
}

# With the proof it does: srun.bats.
@test "a copy for this start stays as long as nothing is proved" {
	local name
	name=/tmp/berth-agent-$(printf '%064x' $$)
	cp "$AGENT" "$name"
	BY=$name cannot "cannot call runner: no address" py call addresses= copy=1
	for word in silent garbage closed; do
		listens $word
		BY=$name cannot "cannot call runner at " py call port="$port" within_ms=500 copy=1
	done
	rm "$name" # it is there
}

@test "E_TRANSPORT_SRUN: runner outside Slurm" {
	run -2 timeout 20 "$RUNNER" --transport srun -np 1 true
	says "--transport srun: runner is not in a job of Slurm"
	hinted
	run -2 timeout 20 "$RUNNER" --transport srun -H 192.0.2.1:1 true
	says "--transport srun: runner is not in a job of Slurm"
}
