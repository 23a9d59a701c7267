#!/usr/bin/env bats
# limit_s: 240
# takes_s: 10
# shellcheck disable=SC2015,SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output
# What the library tells of itself: stalls, the timeline, parameters.
load common

PROGRAM=$BUILD/helpers/diagnosis

S=${SLOW:-1} STALL_S=$((3 * S / 10)).$((3 * S % 10))

setup() { cd "$BATS_TEST_TMPDIR" || return; }

has() { # TEXT: the output has it
	[[ $output == *"$1"* ]] || { echo "no '$1' in: $output"; return 1; }
}
lacks() { [[ $output != *"$1"* ]] || { echo "'$1' in: $output"; return 1; }; }

reported_again() {
	run -0 "$RUNNER" --no-tag -np 3 "$PROGRAM" $((1100 * S)) &&
		[[ $output =~ 'log 1: allreduce "grad" of 1024 f32, sum: waits '[0-9]' s for rank 2 on ' ]] &&
		has '(rank 2: broadcast "first" of 4 u8, done ' &&
		has 'rank 2: 0 stalls' || return
	[[ $output =~ 'rank 0: '[23]' stalls' ]] || { echo "$output"; return 1; } # 3 if it was slow
}

@test "a stall is reported, then again when it has lasted twice as long, with the rank's last operation" {
	export HOROVOD_STALL_CHECK_TIME_SECONDS=$STALL_S
	thrice reported_again
}

@test "a stall is an error where that is wished, and nothing where the check is off" {
	export HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=$((2 * S)) # of all operations: none is held up so long
	run -1 "$RUNNER" --no-tag -np 2 "$PROGRAM" $((20000 * S))
	has 'call_allreduce: allreduce "grad" of 1024 f32, sum: rank 1 on '
	has 'did not come in time'
	HOROVOD_STALL_CHECK_DISABLE=1 HOROVOD_STALL_CHECK_TIME_SECONDS=0.1 \
		run -0 "$RUNNER" --no-tag -np 2 "$PROGRAM" 800
	has 'rank 0: 0 stalls'
	lacks 'log 1'
}

@test "a rank that does not call berth_init is named, in the log and by runner" {
	local waits='[ "$RANK" != 2 ] || until grep -q "rank 2 on .* waiting, .* s in berth_init" out; do sleep 0.05; done'
	HOROVOD_STALL_CHECK_TIME_SECONDS=$STALL_S timeout -k 5 60 "$RUNNER" --no-tag -np 3 \
		bash -c "$waits; exec $PROGRAM 0" > out 2>&1
	output=$(< out)
	[[ $output =~ 'log 1: berth_init: waits '[0-9]+' s for rank 2 on ' ]] || { echo "$output"; return 1; }
	[[ $output =~ "runner: warning: rank 2 on '".*"' keeps rank".*' waiting, '[0-9]+' s in berth_init' ]] || { echo "$output"; return 1; }
}

told_apart() {
	run -0 "$RUNNER" --no-tag -np 3 "$PROGRAM" apart $((1000 * S)) &&
		[ "$(grep -c 'log 1: allreduce "grad" of 1024 f32, sum: waits [0-9] s for rank 2 on ' <<< "$output")" -ge 2 ] &&
		[[ $output =~ '(rank 2: allreduce "odd" of 1024 f32, sum, '(queued|begun)' '[0-9]'.'[2-9]' s ago)' ]] &&
		lacks 'sum, done' || { echo "$output"; return 1; }
}

@test "asynchronous operations whose names differ: who waits, and for whom, who waits too" {
	export HOROVOD_STALL_CHECK_TIME_SECONDS=$STALL_S
	thrice told_apart
}

# FILE... have only whole events, and PYTHON has nothing against their list "e" of lists.
timelines() { # PYTHON FILE...
	python3 -c '
import json, sys
e = []
for rank, name in enumerate(sys.argv[2:]):
    events = json.load(open(name))
    rows = {v["tid"]: v["args"]["name"] for v in events if v["name"] == "thread_name"}
    assert all(v["pid"] == rank for v in events)
    e.append([(rows[v["tid"]], v["name"], v["ts"], v["ts"] + v["dur"]) for v in events if v["ph"] == "X"])
print(e)
exec(sys.argv[1])' "$@"
}

one_clock() {
	HOROVOD_TIMELINE=$PWD/whole run -0 "$RUNNER" --no-tag -np 2 "$PROGRAM" 500 &&
		timelines 'for x in e: assert [v[:2] for v in x] == [("first", "BROADCAST"), ("grad", "ALLREDUCE")]
a, b = e[0][1], e[1][1]
assert a[3] - a[2] > 450e3 > b[3] - b[2]
assert a[2] < b[2] < a[3] and abs(a[3] - b[3]) < 200e3' whole whole.1
}

@test "a timeline for each rank, all on one clock, from the beginning or from any time on" {
	thrice one_clock
	run -0 "$RUNNER" --no-tag -np 2 "$PROGRAM" 0 "$PWD/part"
	timelines 'for x in e: assert [v[:2] for v in x] == [("grad", "ALLREDUCE")]' part part.1
	[ ! -e whole.0 ] && [ ! -e part.0 ]
}

@test "a timeline that can't be written is an error, at the beginning and later" {
	HOROVOD_TIMELINE=/nonexistent/t run -1 "$RUNNER" --no-tag -np 1 "$PROGRAM" 0
	has "berth_init: HOROVOD_TIMELINE: the timeline \"/nonexistent/t\" can't be written: No such file"
	run -1 "$RUNNER" --no-tag -np 1 "$PROGRAM" 0 /nonexistent/t
	has "berth_timeline_start: the timeline \"/nonexistent/t\" can't be written: No such file"
	HOROVOD_TIMELINE=$PWD/t run -1 "$RUNNER" --no-tag -np 1 "$PROGRAM" 0 "$PWD/t"
	has "berth_timeline_start: a timeline is being written, \"$PWD/t\""
}

@test "Horovod's variables that mean nothing here have a line each, those that can't be are an error" {
	HOROVOD_AUTOTUNE=1 HOROVOD_CYCLE_TIME=5 run -0 "$RUNNER" --no-tag -np 1 "$PROGRAM" 0
	has 'log 2: HOROVOD_AUTOTUNE does nothing here: '
	has 'log 2: HOROVOD_CYCLE_TIME does nothing here: there are no cycles'
	HOROVOD_FUSION_THRESHOLD=much run -1 "$RUNNER" --no-tag -np 1 "$PROGRAM" 0
	has 'berth_init: HOROVOD_FUSION_THRESHOLD="much" is no size, such as 16777216 or 16M'
}
