#!/usr/bin/env bats
# limit_s: 240
# takes_s: 2
# shellcheck disable=SC2016,SC2154 # $ is for the ranks' shells; bats sets output
# --events FILE: what happened, a JSON object a line.
load common

r() { timeout -k 5 30 "$RUNNER" "$@" < /dev/null; }

# python over the file: `ev` is the list of objects, `names` their events.
events() {
	/usr/bin/python3 -c '
import json, sys
ev = [json.loads(line) for line in open(sys.argv[2])]
names = [e["event"] for e in ev]
exec(sys.argv[1])' "$1" "$T/events"
}

@test "a job that goes well: host up, started, ended, end; times rise, one job" {
	run -0 r --events "$T/events" -np 3 true
	events '
assert names[0] == "host up" and names[-1] == "end", names
assert sorted(names[1:-1]) == ["rank ended"] * 3 + ["rank started"] * 3, names
assert len({e["job"] for e in ev}) == 1 and len(ev[0]["job"]) == 32
t = [e["t"] for e in ev]
assert t == sorted(t), t
for rank in range(3):
    mine = [e for e in ev if e.get("rank") == rank]
    assert [e["event"] for e in mine] == ["rank started", "rank ended"], mine
    assert mine[0]["pid"] == mine[1]["pid"] and mine[0]["host"] == ev[0]["host"]
    assert mine[0]["cpus"] and mine[1]["status"] == 0
assert ev[0]["cpus"] > 0 and ev[0]["gpus"] == 0 and ev[-1]["status"] == 0'
}

@test "a failure: the cause comes after its rank's end, and end has the status" {
	run -7 r --events "$T/events" -np 2 sh -c '[ $RANK = 0 ] || exit 7; sleep 20'
	events '
cause = ev[names.index("cause")]
assert cause["rank"] == 1 and cause["status"] == 7 and "exited with status 7" in cause["text"], cause
end = next(i for i, e in enumerate(ev) if e["event"] == "rank ended" and e["rank"] == 1)
assert end < names.index("cause") and ev[end]["status"] == 7
assert names.count("cause") == 1 and names[-1] == "end" and ev[-1]["status"] == 7'
}

@test "a signal is named" {
	run -139 r --events "$T/events" -np 1 sh -c 'ulimit -c 0; kill -SEGV $$'
	events 'e = ev[names.index("rank ended")]; assert e["signal"] == "SIGSEGV" and e["status"] == 139, e'
}

@test "a rank that cannot be started: ended and cause, never started" {
	run -127 r --events "$T/events" -np 1 $'no-such\t"program"\\'
	events '
assert "rank started" not in names, names
assert "no-such\t\"program\"\\" in ev[names.index("cause")]["text"], ev
assert ev[-1]["status"] == 127'
}

@test "the lines come as things happen" {
	mkfifo "$T/go"
	r --events "$T/events" -np 1 sh -c 'read x < "$0"' "$T/go" > /dev/null 2>&1 &
	wait_for grep -q '"rank started"' "$T/events"
	run ! grep -q '"rank ended"' "$T/events"
	echo > "$T/go"
	wait $!
	grep -q '"rank ended"' "$T/events"
}

@test "an events file that cannot be written is refused before anything starts" {
	run -2 r --events /no/such/folder/events -np 1 touch "$T/started"
	says "cannot write --events file '/no/such/folder/events'"
	hinted
	[ ! -e "$T/started" ]
}

@test "--events -: to stdout, a line each, among the output of the ranks" {
	r --events - -np 2 sh -c 'printf half; sleep 0.1; echo x' > "$T/all"
	grep '^{' "$T/all" > "$T/events"
	events 'assert names[0] == "host up" and names[-1] == "end" and names.count("rank ended") == 2, names'
	[ "$(grep -v '^{' "$T/all" | sort)" = $'[0]<stdout>:halfx\n[1]<stdout>:halfx' ]
	[ ! -e - ]
	# to the end, though the reader is slow
	r --events - -np 1 sh -c 'yes | head -c 1000000' | { sleep 0.5; cat; } > "$T/all"
	[ "$(grep -c '"event": "end"' "$T/all")" = 1 ]
	[ "$(grep -c stdout "$T/all")" = 500000 ]
}

@test "--events /dev/fd/N, and a FIFO of one's own" {
	r --events /dev/fd/9 -np 1 true 9> "$T/events"
	events 'assert names[-1] == "end", names'
	mkfifo "$T/fifo"
	cat "$T/fifo" > "$T/events" 3>&- &
	r --events "$T/fifo" -np 1 true
	wait $!
	events 'assert names[-1] == "end", names'
}
