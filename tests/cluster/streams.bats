#!/usr/bin/env bats
# limit_s: 300
# takes_s: 15
# more: slow readers and much stdin
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the hosts' shells; bats sets output
# Streams under load: 64 ranks that write at once, readers that are slow or stand still, much
# input.  Every byte is checked, and what runner and the agents keep in memory meanwhile.
load jobs
load streams

setup_file() {
	cluster_up 16
	[ -z "$(why_no_cluster)" ] || return 0
	echo "# SEED=$SEED" >&3
	export SEED
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

teardown() {
	[ -n "$(why_no_cluster)" ] || on n0 pkill -KILL -x runner || true
}

SHAPES=(n1:64 'n[1-2]:32' 'n[1-16]:4')

@test "64 ranks write at once, any kind of bytes: none is lost, changed or out of order" {
	local kind i=$SEED
	for kind in lines short long endless binary crlf bars; do
		flood "${SHAPES[$((++i % 3))]}" $kind 300000 cat
	done
}

# bats test_tags=all
@test "a reader at 1 MB/s" {
	flood 'n[1-16]:4' lines 60000 "$FLOW" slow 1000000
	in_bounds 16
}

# The job stands still: no CPU time goes by in a runner that has written a pipe full.
stands_still() {
	local before
	on n0 sh -c 'awk "/^wchar/ {exit \$2 < 65536}" "/proc/$(pgrep -x runner)/io"' 2> /dev/null || return
	before=$(on n0 sh -c 'cut -d" " -f14,15 /proc/$(pgrep -x runner)/stat')
	sleep 0.3
	[ -n "$before" ] && [ "$before" = "$(on n0 sh -c 'cut -d" " -f14,15 /proc/$(pgrep -x runner)/stat')" ]
}

# READER waits until the file says so.
patient() { head -c 100000; while [ ! -e "$T/go" ]; do sleep 0.1; done; cat; }

# bats test_tags=all
@test "a reader that stands still: all wait, in little memory, and lose nothing" {
	local kind
	for kind in short long; do # short lines, of which labels would make much more, and long ones
		rm -f "$T/go"
		{ flood 'n[1-16]:4' $kind 200000 patient && in_bounds 16; } &
		local flood=$!
		wait_for stands_still
		touch "$T/go"
		wait $flood
	done
}

# bats test_tags=all
@test "--log-dir under a slow reader: the files have every byte" {
	on n0 rm -rf /opt/log
	FLOOD_OPTIONS='--log-dir /opt/log' flood 'n[1-2]:2' binary 1000000 "$FLOW" slow 3000000
	for rank in 0 1 2 3; do
		on n0 cat /opt/log/rank.$rank/stdout | "$FLOW" same binary "$SEED" 1000000 $rank
	done
	on n0 rm -r /opt/log
}

# bats test_tags=all
@test "much stdin to one rank and to all, in little memory" {
	feed 0 'n[1-16]' 50000000
	in_bounds 16
	feed all 'n[1-16]' 5000000
	in_bounds 16
}

@test "stdout and stderr of a rank come in the order in which it wrote" {
	# each is shown before the next is written
	script turns <<- 'S'
		i=0
		while [ $i -lt 30 ]; do
			echo "line $i" >&$((1 + i * 7 % 3 % 2))
			while ! grep -q "line $i\$" /vc/t/turns.out; do sleep 0.005; done
			i=$((i + 1))
		done
	S
	on n0 sh -c 'exec timeout 60 "$@" > /vc/t/turns.out 2>&1' sh "$RUNNER" -q -H n1 sh /vc/t/turns < /dev/null
	[ "$(sed 's/.*>://' "$STATE/t/turns.out")" = "$(seq -f 'line %.0f' 0 29)" ]
	[ "$(grep -c stderr "$STATE/t/turns.out")" -ge 10 ]
	# both at once: as the kernel has it
	script pairs <<- 'S'
		import os, sys, time
		for i in range(60):
		    for fd in (1, 2) if i * 7 % 3 % 2 else (2, 1):
		        os.write(fd, b"%d %d\n" % (i, fd))
		    while not open("/vc/t/pairs.out").read().count("\n") == 2 * i + 2:
		        time.sleep(0.005)
	S
	on n0 sh -c 'exec timeout 60 "$@" > /vc/t/pairs.out 2>&1' sh "$RUNNER" -q -H n1 /usr/bin/python3 /vc/t/pairs < /dev/null
	sed 's/.*>://' "$STATE/t/pairs.out" > "$T/pairs"
	for ((i = 0; i < 60; i++)); do
		((i * 7 % 3 % 2)) && printf '%d 1\n%d 2\n' $i $i || printf '%d 2\n%d 1\n' $i $i
	done | diff - "$T/pairs"
}

@test "the rank status is printed while nobody reads stdout" {
	mkfifo "$T/pipe"
	exec 7<> "$T/pipe"
	on n0 timeout -k 5 60 env --default-signal "$RUNNER" -H 'n[1-2]' yes < /dev/null > "$T/pipe" 2> "$T/err" 3>&- 7>&- &
	wait_for stands_still
	on n0 pkill -QUIT -x runner
	wait_for grep -q 'rank 1  n2  pid .*running' "$T/err"
	on n0 pkill -KILL -x runner
	wait $! || true
	exec 7<&-
}
