#!/usr/bin/env bats
# limit_s: 240
# takes_s: 5
# shellcheck disable=SC2016,SC2154 # $ is for the ranks' shells; bats sets output
# Ranks of this machine that use libberth, as their agent sees them; tests/helpers/joins.c is the
# rank.  tests/cluster/init_round.bats has several hosts.
load common

setup() {
	JOINS=$HELPERS/joins
}

r() { timeout -k 5 60 "$RUNNER" "$@" < /dev/null 2>&1 | grep -v ' share [0-9]* cores*$'; return "${PIPESTATUS[0]}"; }

@test "who they are, one memory, one fence, one key" {
	run -0 r -np 4 "$JOINS" way join world memory share fence=-x leave
	for i in 0 1 2 3; do
		says "[$i]<stdout>:agent" "[$i]<stdout>:rank $i of 4, local $i of 4, cross 0 of 1, on " \
			"[$i]<stdout>:all 4 ranks of this host share it" "[$i]<stdout>:all: 0-x 1-x 2-x 3-x"
	done
	[ "$(grep -o 'key .*' <<< "$output" | sort -u | wc -l)" = 1 ]
}

@test "the key is in no environment, command line or trace" {
	local key
	run -0 r -vv -np 1 bash -c "$JOINS join world fence; tr '\\0' '\\n' < /proc/self/environ; cat /proc/*/cmdline | tr '\\0' ' '"
	key=$(sed -n 's/.*, key //p' <<< "$output")
	[ ${#key} = 8 ]
	[ "$(grep -c "$key" <<< "$output")" = 1 ]
}

@test "a thousand times, alone and together" {
	run -0 r -np 1 "$JOINS" quiet times=1000 join memory fence leave
	run -0 r -np 3 "$JOINS" quiet times=1000 join memory fence leave
	[ -z "$output" ]
}

@test "who ends before the fence is named to those that wait" {
	run -1 r -np 3 --keep-going "$JOINS" rank=1 exit=0 all join fence
	says '[0]<stderr>:joins: fence: rank 1 on ' '[2]<stderr>:joins: fence: rank 1 on ' 'ended before all ranks had joined'
	# the program is a child of the rank's main process
	run -1 r -np 2 --keep-going bash -c "$JOINS rank=1 join sleep=100 crash all join fence; s=\$?; [ \$RANK = 0 ] || sleep 2; exit \$((s && ! RANK))"
	says '[0]<stderr>:joins: fence: rank 1 on '
	# the main process ends, and the program lives on
	run -1 r -np 2 --keep-going bash -c "[ \$RANK = 0 ] || { setsid $JOINS join sleep=5000 & sleep 0.3; exit 0; }; exec $JOINS join fence"
	says '[0]<stderr>:joins: fence: rank 1 on '
	# a program that has no loader never runs
	sed 's,/ld-linux,/no-linux,' "$JOINS" > "$T/program"
	chmod +x "$T/program"
	run -126 r --keep-going -np 1 "$JOINS" join fence : -np 1 "$T/program"
	says '[0]<stderr>:joins: fence: rank 1 on '
}

@test "who is lost is written to the memory, and only those" {
	run -137 r -np 4 --keep-going "$JOINS" join memory fence rank=2 crash all rank=3 leave exit=0 all lost sleep=500
	says '[0]<stdout>:lost: 2' '[1]<stdout>:lost: 2'
	silent_on 'lost: 2 3'
}

@test "a rank that is lost before the memory is prepared is written there afterwards" {
	run -137 r -np 2 --keep-going "$JOINS" join late=300 rank=1 sleep=100 crash all memory lost
	says '[0]<stdout>:lost: 1'
}

@test "a failure's last operation: not of one who left before" {
	run -3 r -np 2 "$JOINS" join memory fence op=grad rank=1 exit=3 all sleep=2000
	[[ $output =~ '  its last operation: allreduce "grad" of 1024 f32, sum, begun '[0-9.]+' s ago' ]]
	run -3 r -np 2 "$JOINS" join memory fence op=grad ends leave sleep=100 rank=1 exit=3 all sleep=2000
	silent_on 'its last operation'
}

@test "a rank may come back: what ends is the program, not the rank" {
	run -0 r -np 2 bash -c "$JOINS quiet join memory fence crash; $JOINS join memory fence=-again leave"
	says '[0]<stdout>:all: 0-again 1-again' '[1]<stdout>:all: 0-again 1-again'
}

@test "without its socket there is no way, and no going alone" {
	export BERTH_MPI=none # PMIx is another way
	run -0 r -np 2 env -u BERTH_AGENT "$JOINS" way
	says 'BERTH_SIZE=2 says that runner started 2 processes' 'BERTH_AGENT'
	run -0 r -np 1 env -u BERTH_AGENT "$JOINS" way
	says '[0]<stdout>:alone'
}

@test "hostile bytes on the socket: the job lives, and so does the agent" {
	run -0 r -np 1 bash -c "$JOINS quiet join memory fence leave
		python3 $ROOT/tests/cli/hostile_rank.py && $JOINS join memory fence leave"
	says 'the socket took' 'all: 0'
}

@test "a rank that asks and never reads keeps nobody waiting" {
	run -0 r -np 64 --oversubscribe bash -c "
		if [ \$RANK != 63 ]; then
			$JOINS quiet join fence=$(printf '%01900d' 0) leave || exit
			: > $T/done.\$RANK
			exit
		fi
		exec python3 -c '
import glob, os, socket, struct, time
s = socket.socket(socket.AF_UNIX)
s.connect(chr(0) + os.environ[\"BERTH_AGENT\"][1:])
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.send(struct.pack(\"=IIIIII\", 16, 1, 6, 63, 0, 0) + struct.pack(\"=II\", 3, 4) + b\"63\\0\")
while len(glob.glob(\"$T/done.*\")) < 63: time.sleep(0.05)'"
}
