#!/usr/bin/env bats
# limit_s: 240
# takes_s: 25
# more: 1000 init rounds, 64 ranks, a host that is cut off
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the hosts' shells; bats sets output
# Ranks that use libberth, as their agents see them: who they are, fences over hosts, who is lost,
# who waits for whom.  tests/helpers/joins.c is the rank.
load jobs

setup_file() {
	cluster_up 4
	[ -n "$(why_no_cluster)" ] || mark_clean n0 n1 n2 n3 n4
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	JOINS=$HELPERS/joins
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
}

# How often line LINE is said.
said_by() { # N LINE
	[ "$(plain | grep -cxF -- "$2")" = "$1" ] || { echo "not said $1 times: $2"; echo "$output"; return 1; }
}

@test "who is where: 1, 2 and 4 hosts" {
	run -0 r -np 3 -H n1:3 "$JOINS" way join world memory share fence leave
	said_by 3 agent
	says 'rank 0 of 3, local 0 of 3, cross 0 of 1, on n1 n1 n1, key' 'rank 2 of 3, local 2 of 3, cross 0 of 1'
	said_by 3 'all 3 ranks of this host share it'
	said_by 3 'all: 0 1 2'
	run -0 r -np 5 -H n1:3,n2:2 "$JOINS" join world memory share fence=-x leave
	says 'rank 1 of 5, local 1 of 3, cross 0 of 2, on n1 n1 n1 n2 n2' 'rank 2 of 5, local 2 of 3, cross 0 of 1' \
		'rank 4 of 5, local 1 of 2, cross 1 of 2'
	said_by 3 'all 3 ranks of this host share it'
	said_by 2 'all 2 ranks of this host share it'
	said_by 5 'all: 0-x 1-x 2-x 3-x 4-x'
	[ "$(grep -o 'key .*' <<< "$output" | sort -u | wc -l)" = 1 ]
	run -0 r -np 8 -H n1:2,n2:2,n3:2,n4:2 --map-by node "$JOINS" join world fence leave
	says 'rank 5 of 8, local 1 of 2, cross 1 of 4, on n1 n2 n3 n4 n1 n2 n3 n4'
	said_by 8 'all: 0 1 2 3 4 5 6 7'
	all_clean n0 n1 n2 n3 n4
}

# bats test_tags=all
@test "texts of the most bytes from 64 ranks of 4 hosts" {
	local long
	long=$(printf '%02030d' 0)
	run -0 r -np 64 -H n1:16,n2:16,n3:16,n4:16 "$JOINS" quiet join fence="$long" leave
	run ! grep -v '^runner: warning: .* share ' <<< "$output"
}

# bats test_tags=all
@test "1000 times, and no agent has more descriptors or mappings than after 100" {
	local counts
	run -0 r --mpi=none -np 4 -H n1:2,n2:2 bash -c "
		count() { [ \$BERTH_LOCAL_RANK = 1 ] || ls /proc/\$PPID/fd /proc/\$PPID/map_files | wc -l; }
		$JOINS quiet times=100 join memory fence leave && count &&
		$JOINS quiet times=1000 join memory fence leave && count"
	counts=$(plain | grep -E '^[0-9]+$' | sort -n)
	echo "$counts"
	[ "$(wc -l <<< "$counts")" = 4 ]
	# a connection and a memory may be there or not, at that moment
	[ $(($(tail -1 <<< "$counts") - $(head -1 <<< "$counts"))) -lt 8 ]
}

@test "a rank that ends before the fence is named to all that wait, on every host" {
	run -1 r -np 4 -H n1:1,n2:1,n3:1,n4:1 --keep-going "$JOINS" rank=2 exit=0 all join fence
	for rank in 0 1 3; do
		says "[$rank]<stderr>:joins: fence: rank 2 on 'n3' ended before all ranks had joined"
	done
	run -1 r -np 2 -H n1:2 --keep-going "$JOINS" rank=1 exit=0 all join fence
	says "[0]<stderr>:joins: fence: rank 1 on 'n1' ended before all ranks had joined"
	# who joined, and crashed; who left without waiting; who was there once, and not a second time
	run -137 r -np 3 -H n1:2,n2:1 --keep-going "$JOINS" join rank=2 sleep=200 crash all fence
	says "[0]<stderr>:joins: fence: rank 2 on 'n2'" "[1]<stderr>:joins: fence: rank 2 on 'n2'"
	run -1 r -np 3 -H n1:2,n2:1 --keep-going "$JOINS" join rank=0 leave exit=0 all fence
	says "[1]<stderr>:joins: fence: rank 0 on 'n1'" "[2]<stderr>:joins: fence: rank 0 on 'n1'"
	run -1 r -np 3 -H n1:2,n2:1 --keep-going "$JOINS" join fence leave rank=1 exit=0 all join fence
	says "[0]<stderr>:joins: fence: rank 1 on 'n1'" "[2]<stderr>:joins: fence: rank 1 on 'n1'"
}

@test "a rank that was lost before another host used the library is missed there, too" {
	script nothing < /dev/null
	rm -f "$STATE/t/crashed"
	run -0 r -np 2 -H n1:1,n2:1 --keep-going bash -c 'if [ $RANK = 0 ]; then
			$0 join crash
			touch /vc/t/crashed
		else
			until [ -e /vc/t/crashed ]; do sleep 0.01; done
			$0 join fence
		fi
		exec $0 join fence=-again leave' "$JOINS"
	says "[1]<stderr>:joins: fence: rank 0 on 'n1' ended before all ranks had joined"
	said_by 2 'all: 0-again 1-again'
}

@test "a fence that was on its way when a rank was lost is refused, and the next one is not" {
	script nothing < /dev/null
	rm -f "$STATE/t/crashed" "$STATE/t/joined"
	"$VCLUSTER" netem n2 delay 300 > /dev/null 2>&1 3>&-
	run r -np 2 -H n1:1,n2:1 --keep-going bash -c 'if [ $RANK = 1 ]; then
			{ until [ -e /vc/t/crashed ]; do sleep 0.01; done; echo; } | (
				$0 join world line fence | { read -r l; touch /vc/t/joined; cat; }
				exec $0 join fence=-again leave)
			exit
		fi
		{ until [ -e /vc/t/joined ]; do sleep 0.01; done; echo; } | $0 join line crash
		touch /vc/t/crashed
		exec $0 join fence=-again leave' "$JOINS"
	"$VCLUSTER" netem n2 clear
	[ "$status" = 0 ]
	says "[1]<stderr>:joins: fence: rank 0 on 'n1' ended before all ranks had joined"
	said_by 2 'all: 0-again 1-again'
}

told() { # after so many ms, into $told_ms
	local times first last
	start -np 4 -H n1:1,n2:1,n3:1,n4:1 --keep-going "$JOINS" join memory fence \
		rank=1 sleep=300 now crash all lost now sleep=500
	ended_with 137 n1 n2 n3 n4
	run -0 cat "$T/out"
	says '[0]<stdout>:lost: 1' '[2]<stdout>:lost: 1' '[3]<stdout>:lost: 1'
	times=$(plain | sed -n 's/^now \([0-9]*\)$/\1/p' | sort -n)
	first=$(head -1 <<< "$times") last=$(tail -1 <<< "$times")
	told_ms=$((last - first))
	echo "told after $told_ms ms"
	[ "$(wc -l <<< "$times")" = 4 ]
}

@test "a lost rank is told on every host within a second" {
	for _ in 1 2 3; do # a busy machine may have stood still once
		told
		[ $told_ms -ge 1000 ] || return 0
	done
	false
}

# bats test_tags=all
@test "ranks that are lost at about the same time are all told" {
	run r -np 9 -H n1:1,n2:4,n3:4 --keep-going "$JOINS" join memory fence \
		rank=1 crash rank=2 crash rank=3 crash rank=4 crash rank=5 crash rank=6 crash rank=7 crash all lost=7
	[ "$status" = 137 ]
	says '[0]<stdout>:lost: 1 2 3 4 5 6 7' '[8]<stdout>:lost: 1 2 3 4 5 6 7'
}

# bats test_tags=all
@test "a host that is cut off: its ranks are lost to the others" {
	start -np 3 -H n1:1,n2:2 --keep-going --host-timeout 6 bash -c "trap '' TERM
		exec $JOINS join memory fence rank=0 lost exit=0 all sleep=60000"
	wait_for grep -q 'all: 0 1 2' "$T/out"
	"$VCLUSTER" kill n2
	ended_with 241 n1
	grep -qF '[0]<stdout>:lost: 1 2' "$T/out" || { cat "$T/out"; false; }
	"$VCLUSTER" boot n2
}

@test "another epoch has another socket and another key" {
	run -0 r -np 2 -H n1:1,n2:1 --restarts 1 bash -c "echo \$BERTH_AGENT
		$JOINS join world fence leave
		[ \$TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1"
	[ "$(plain | grep -c '^@berth-')" = 4 ]
	[ "$(plain | grep '^@berth-' | sort -u | wc -l)" = 4 ]
	[ "$(plain | grep -o 'key .*' | sort | uniq -c | grep -c '^ *2 key')" = 2 ]
	all_clean n0 n1 n2
}

@test "a name taken twice, another's name, another user" {
	run -1 r -np 2 -H n1:1,n2:1 --keep-going bash -c "coproc $JOINS join world line fence
		read -r <&\${COPROC[0]} # it has joined
		[ \$RANK = 1 ] || $JOINS join
		echo >&\${COPROC[1]}
		wait; exit 1"
	says '[0]<stderr>:joins: join: rank 0 has joined already, as another process'
	run -1 r -np 2 -H n1:1,n2:1 env BERTH_RANK=7 "$JOINS" join
	says "joins: join: rank 7 is not on this host"
	start -np 1 -H n1:1 bash -c 'echo $BERTH_AGENT; sleep 60'
	wait_for grep -q @berth "$T/out"
	run as nobody n1 env BERTH_AGENT="$(sed 's/.*:@/@/' "$T/out")" BERTH_RANK=0 "$JOINS" join fence
	[ "$status" = 1 ]
	silent_on 'all:'
	signal TERM
	status_of_job 10
}

@test "hostile bytes on the socket: the job lives, and so does the agent" {
	run -0 r -np 1 -H n1:1 bash -c "$JOINS quiet join memory fence leave
		python3 $ROOT/tests/cli/hostile_rank.py && $JOINS join memory fence leave"
	says 'the socket took' 'all: 0'
	all_clean n0 n1
}

# 60 s, and who waits, are the library's to say.
stall='stall=60 s in allreduce "grad" of 1024 f32'

stalls() { # what runner says in $output
	start "$@"
	wait_for grep -q '^hint: ' "$T/err"
	output=$(cat "$T/err")
	signal TERM
	ended_with 143
}

@test "E_STALL: which rank keeps which waiting, in what, and what it did last" {
	stalls -np 4 -H n1:2,n2:2 "$JOINS" join memory fence rank=3 op=x ends all \
		rank=0 op=x ends op=grad sleep=200 "$stall" all \
		rank=1 op=x ends op=grad sleep=400 "$stall" all rank=2 op=x ends op=grad all sleep=60000
	says "runner: warning: rank 3 on 'n2' keeps ranks 0-2 waiting, 60 s in allreduce \"grad\" of 1024 f32 (its last operation: allreduce \"x\" of 1024 f32, sum, done "
	says "hint: run 'kill -QUIT $(on n0 cat /run/runner.pid)' on this machine to see the status of every rank"
	[ "$(grep -c 'runner: warning: rank' <<< "$output")" = 1 ]
	hinted
	stalls -np 2 -H n1:1,n2:1 "$JOINS" join memory fence rank=0 op=y sleep=300 "$stall" all sleep=60000
	says "runner: warning: rank 1 on 'n2' keeps rank 0 on 'n1' waiting, 60 s in allreduce \"grad\" of 1024 f32 (its last operation: no operation yet)"
}

@test "the rank status says who waits for whom" {
	start -np 3 -H n1:2,n2:1 "$JOINS" join memory fence rank=0 op=x ends op=grad all rank=1 op=x ends all line=x sleep=60000
	wait_for grep -q 'all: 0 1 2' "$T/out"
	shown() { # once all are that far
		signal QUIT
		grep -q '^    allreduce "grad" of 1024 f32, sum, begun [0-9.]* s ago; waits for ranks 1-2' "$T/err" &&
			grep -q '^    allreduce "x" of 1024 f32, sum, done [0-9.]* s ago' "$T/err" &&
			grep -q '^    no operation yet' "$T/err"
	}
	wait_for shown
	signal TERM
	status_of_job 10
}

@test "the report of a failure names the last operation" {
	start -np 2 -H n1:1,n2:1 "$JOINS" join memory fence op=x ends op=grad rank=1 crash all sleep=5000
	ended_with 137 n1 n2
	err_says "runner: rank 1 on 'n2' (pid " '  its last operation: allreduce "grad" of 1024 f32, sum, begun '
}
