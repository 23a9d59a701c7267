#!/usr/bin/env bats
# limit_s: 120
# takes_s: 12
# more: ends that take longer
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the ranks' shells; bats sets output, stderr and lines
# --summary: what is printed at the end of a job on real hosts, however it ended.
load jobs

setup_file() {
	cluster_up 3
	[ -z "$(why_no_cluster)" ] || return 0
	script waits <<- 'S'
		echo "ready$RANK"
		trap 'exit 0' TERM
		sleep 1000 &
		wait
	S
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
}

# python over the last line of FILE, one JSON object: `s`, and `h`, its hosts by name.
summary() { # FILE CODE
	tail -n 1 "$1" | /usr/bin/python3 -c '
import json, sys
s = json.load(sys.stdin)
h = {x["host"]: x for x in s["hosts"]}
assert set(s) == {"job", "status", "cause", "wall_s", "restarts", "losses", "losses_left_out", "logs", "hosts", "verdict"}, s
assert len(s["job"]) == 32 and s["wall_s"] >= 0, s
for x in s["hosts"]:
    assert {x["cpu_by"], x["peak_by"]} <= {"wait4", "cgroup"} and x["cpu_s"] >= 0, x
    ends = x["first_end_s"], x["last_end_s"]
    assert ends == (None, None) or 0 < ends[0] <= ends[1] <= s["wall_s"], s
exec(sys.argv[1])' "$2" || { cat "$1"; return 1; }
}

# The same of $stderr.
said() {
	echo "$stderr" > "$T/said"
	summary "$T/said" "$1"
}

ready() { # RANKS
	local i
	for ((i = 0; i < $1; i++)); do
		wait_for grep -q "ready$i\$" "$T/out"
	done
}

@test "a normal end: each host, what its ranks used, where the logs are" {
	run -0 --separate-stderr r --summary=json -H n1:2,n2,n3 -np 3 --output-filename /run/log python3 -c '
import os, time
held = b"x" * (64 << 20) if os.environ["RANK"] == "2" else b""
while time.process_time() < 0.5: pass'
	said '
assert s["status"] == 0 and s["cause"] is None and s["restarts"] == 0 and s["logs"].startswith("/run/log"), s
assert {n: x["ranks"] for n, x in h.items()} == {"n1": 2, "n2": 1}, h
assert 1 <= h["n1"]["cpu_s"] < 10 and 0.5 <= h["n2"]["cpu_s"] < 5, h
assert 64 << 20 < h["n2"]["peak_bytes"] < 1 << 30, h
assert s["wall_s"] > 0.5 and h["n1"]["first_end_s"] > 0.5, s'
	[ "$(grep -vc ' share 1 core$' <<< "$stderr")" = 1 ]
	run -0 --separate-stderr r --summary -H n1:2,n2 true
	[ -z "$output" ]
	grep -qE '^runner: summary: status 0 after [0-9.]+ s, 0 restarts$' <<< "$stderr"
	grep -qE '^  n1 +2 +[0-9.]+ s (wait4|cgroup) +[0-9.]+ MiB (wait4|cgroup) +[0-9.]+ s +[0-9.]+ s$' <<< "$stderr"
	grep -qE '^  n2 +1 ' <<< "$stderr"
	[ "$(grep -vc " share 1 core\$" <<< "$stderr")" = 4 ]
	run -0 --separate-stderr r --summary=none -H n1 true
	[ -z "$stderr" ]
}

@test "a failure, with a restart before it" {
	run -7 --separate-stderr r --summary=json --restarts 1 -H n1,n2 sh -c '[ $RANK = 0 ] || exit 7; sleep 1000 & wait'
	said '
assert s["status"] == 7 and s["restarts"] == 1, s
assert s["cause"].startswith("rank 1 on '"'n2'"' (pid ") and s["cause"].endswith("exited with status 7"), s
assert h["n2"]["first_end_s"] < h["n2"]["last_end_s"], s'
}

@test "a restart that goes well has no cause" {
	run -0 --separate-stderr r --summary=json --restarts 1 -H n1 sh -c '[ $TORCHELASTIC_RESTART_COUNT = 1 ]'
	said 'assert s["status"] == 0 and s["cause"] is None and s["restarts"] == 1, s'
}

@test "^C, TERM and --timeout" {
	start --summary=json -H n1,n2 bash /vc/t/waits
	ready 2
	signal INT
	ended_with 130
	summary "$T/err" 'assert s["status"] == 130 and s["cause"] == "SIGINT" and len(h) == 2, s'
	start --summary=json -H n1,n2 bash /vc/t/waits
	ready 2
	signal TERM
	ended_with 0
	summary "$T/err" 'assert s["status"] == 0 and s["cause"] == "SIGTERM", s'
	run -124 --separate-stderr r --summary=json --timeout 1 -H n1 bash /vc/t/waits
	said 'assert s["status"] == 124 and s["cause"] == "the time limit of 1 s has passed", s'
}

# bats test_tags=all
@test "a third ^C: it is printed all the same" {
	start --summary=json --kill-grace 30 -H n1 sh -c 'trap "" INT TERM; echo ready0; while :; do sleep 1; done'
	ready 1
	"$VCLUSTER" freeze n1
	signal INT
	signal INT
	signal INT
	status_of_job 30
	"$VCLUSTER" thaw n1
	summary "$T/err" 'assert s["status"] == 130 and s["cause"] == "SIGINT", s'
	wait_for on n1 sh -c '! pgrep -x berth-agent > /dev/null'
}

# bats test_tags=all
@test "a lost host" {
	start --summary=json --host-timeout 3 -H n1,n3 bash /vc/t/waits
	ready 2
	"$VCLUSTER" netem n3 down
	"$VCLUSTER" kill n3
	status_of_job 60
	"$VCLUSTER" boot n3
	[ "$status" = 241 ]
	summary "$T/err" '
assert s["status"] == 241 and s["cause"].startswith("n3: "), s
assert h["n3"]["ranks"] == 1 and h["n3"]["last_end_s"] is not None and h["n1"]["ranks"] == 1, s'
}

@test "errors before any rank: no hosts" {
	run -2 --separate-stderr r --summary=json -np 9 -H n1:2 true
	said 'assert s["status"] == 2 and "-np 9 asks for 9 ranks" in s["cause"] and not h, s'
	run -127 --separate-stderr r --summary=json -H n1,n2 /no/such/program
	said 'assert s["status"] == 127 and "there is no program" in s["cause"] and not h, s'
	run -2 --separate-stderr r --summary=json -H n1:gpus true
	said 'assert s["status"] == 2 and "n1 has no GPUs" in s["cause"], s'
}
