#!/usr/bin/env bats
# limit_s: 240
# takes_s: 3
# shellcheck disable=SC2001,SC2016,SC2154 # $ is for the ranks' shells; bats sets output and stderr
# Launcher defects of horovodrun 0.28.1 that runner must not have.  Not here: L9 (jsrun, LSF),
# L10 (horovod.run()), L12 (interfaces: nothing of the kind is chosen), L14 and L15 (ssh).
load common

r() { timeout -k 5 30 "$RUNNER" "$@"; }
out() { r "$@" 2> "$T/err" < /dev/null; }
plain() { sed 's/^\[[0-9]*\]<std[a-z]*>://' <<< "$output" | sort; }

@test "L1: no rank outlives the job, whichever way it ends" {
	local mark="MARK=$T/l1"
	run -3 r -x "$mark" -np 2 --allow-same-host -H localhost:1,127.0.0.1:1 bash -c \
		'[ $RANK = 0 ] && exit 3; (setsid sleep 1000 &); sleep 1000 & wait' < /dev/null
	[ -z "$(alive_with "$mark")" ]
	for sig in TERM KILL; do
		env --default-signal "$RUNNER" -x "$mark" -np 2 --allow-same-host -H localhost:1,127.0.0.1:1 bash -c \
			'(setsid sleep 1000 &); echo ready$RANK; sleep 1000' < /dev/null > "$T/out" 2>&1 &
		wait_for grep -q ready0 "$T/out"
		wait_for grep -q ready1 "$T/out"
		kill "-$sig" $!
		wait $! || true
		none_left() { [ -z "$(alive_with "$mark")" ]; }
		wait_for none_left
	done
}

@test "L2: the exit code is the rank's own, and no traceback is shown" {
	run -7 r -np 2 sh -c '[ $RANK = 0 ] || exit 7; sleep 20' < /dev/null
	silent_on Traceback
	run -139 r -np 1 sh -c 'ulimit -c 0; kill -SEGV $$' < /dev/null
}

@test "L3: -np less than the slots starts -np ranks" {
	run -0 out -np 2 -H localhost:4 sh -c 'echo $HOROVOD_SIZE'
	[ "$(plain)" = $'2\n2' ]
}

@test "L4: bytes that are no UTF-8 do not hang the job" {
	run -0 out -np 2 /usr/bin/python3 -c '
import sys
sys.stdout.buffer.write(b"\xff\xfe\n" + b"x" * 80 + b"\n" + b"line\n" * 20000)'
	[ "$(grep -c ':line$' <<< "$output")" = 40000 ]
}

@test "L5: -np 1 with --output-filename" {
	run -0 out -np 1 --output-filename "$T/log" echo x
	[ "$(cat "$T/log/rank.0/stdout")" = x ]
}

@test "L6: neither the environment nor a key is on a command line" {
	run -0 env A_SECRET_TOKEN=l6-4711 timeout 30 "$RUNNER" -np 1 sh -c 'echo started; sleep 0.1
		for p in /proc/[0-9]*; do
			case $(cat $p/comm 2> /dev/null) in
			runner | berth-agent | ssh*) tr "\0" "\n" < $p/cmdline | grep -F "$A_SECRET_TOKEN" ;;
			esac
		done; true' < /dev/null
	says started
	silent_on l6-4711
}

@test "L7: comments and blank lines in a hostfile, slots=, user@, IPv6, ranges" {
	printf '# nodes\n\nlocalhost slots=2 max_slots=4   # me\n\t\n' > "$T/hosts"
	run -0 out -np 2 --hostfile "$T/hosts" sh -c 'echo $LOCAL_RANK'
	[ "$(plain)" = $'0\n1' ]
	run -0 out --allow-same-host -H "$(id -un)@localhost:1,[::1]:1" sh -c 'echo $NODE_RANK'
	[ "$(plain)" = $'0\n1' ]
	/usr/bin/python3 "$ROOT/tests/machines/mkmachine.py" "$T" no-gpu-4pu > /dev/null
	run -0 out --plan --topology "$T/no-gpu-4pu.xml" -H 'gpu[01-04,9]:2'
	says "10 ranks on 5 hosts" "gpu[01-04,9]: 2 ranks each"
}

@test "L8: a host that is named twice is one host" {
	run -0 out -H localhost:1,localhost:2 sh -c 'echo $LOCAL_RANK/$LOCAL_WORLD_SIZE'
	[ "$(plain)" = $'0/3\n1/3\n2/3' ]
}

@test "L11, L13: ranks are bound, and a report says to what; -- and -x are there" {
	[ "$(nproc)" -ge 2 ] || skip "one CPU"
	run -0 --separate-stderr r --report-bindings -np 2 -x A='b c' -- sh -c 'echo "$A"; grep Cpus_allowed_list /proc/self/status' < /dev/null
	[ "$(grep -c ':b c$' <<< "$output")" = 2 ]
	[ "$(grep -o 'Cpus_allowed_list.*' <<< "$output" | sort -u | wc -l)" = 2 ]
	[ "$(grep -c 'cpus [0-9,-]*, numa' <<< "$stderr")" = 2 ]
}

@test "and: a missing folder is an error, the last update is a line, each rank reads stdin as said" {
	run -126 out --wdir /no/such/folder -np 1 true
	out -np 1 printf '1%%\r2%%\r' > "$T/got"
	printf '[0]<stdout>:2%%\n' | cmp - "$T/got"
	run -0 bash -c 'echo DATA | "$0" -np 2 cat 2> /dev/null' "$RUNNER"
	[ "$output" = "[0]<stdout>:DATA" ]
}
