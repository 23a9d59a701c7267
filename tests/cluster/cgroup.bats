#!/usr/bin/env bats
# limit_s: 300
# takes_s: 25
# more: other kinds of cgroup
# shellcheck disable=SC2016,SC2030,SC2031,SC2053,SC2153,SC2154 # $ is for the hosts' shells; patterns; bats sets output
# Ranks that no longer look like the job's: their environment is overwritten, and their children are
# in sessions of their own, below a subreaper.  Where the agent may make a cgroup, none of them is
# left, whatever was killed; and no cgroup is.
#
#   n1  root: a cgroup of version 2
#   n2  alice: sshd runs in a cgroup that was delegated to her
#   n3  root: version 1 alone
#   n4  cgroups are read-only: none for the ranks
load jobs

setup_file() {
	cluster_up 4
	[ -z "$(why_no_cluster)" ] || return 0
	"$VCLUSTER" delegate n2 alice
	on n3 umount /sys/fs/cgroup/unified
	on n4 sh -c 'for d in /sys/fs/cgroup/*/; do mount -o remount,bind,ro "$d" || exit; done'
	mark_clean n0 n1 n2 n3 n4
	source "$ROOT/tests/cluster/inject.bash"
	script unnamed.py <<- 'S'
		import ctypes, os, signal, time

		def forget(): # as setproctitle does
		    words = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
		    ctypes.memset(int(words[47]), 0, int(words[48]) - int(words[47]))

		def stay(name):
		    forget()
		    os.write(told, b".")
		    while True: time.sleep(1000)

		rank = os.environ["RANK"]
		signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
		tell, told = os.pipe()
		if not os.fork():
		    os.setsid()
		    if os.fork(): os._exit(0)
		    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
		    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) # a subreaper
		    if not os.fork():
		        if os.fork(): os._exit(0)
		        os.setsid()
		    stay("child")
		for _ in range(2): os.read(tell, 1)
		forget()
		print(f"ready{rank} {os.getpid()}", flush=True)
		while True: time.sleep(1000)
	S
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	source "$ROOT/tests/cluster/inject.bash"
	source "$ROOT/tests/cluster/rounds.bash"
	np=2
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
	for h in n1 n2 n3 n4; do
		[ -n "$(why_no_cluster)" ] || on $h pkill -KILL -f unnamed.py || true
	done
}

# Two ranks on HOST, with two more processes each.
begin() { # HOST OPTION...
	local user=root; [ "$1" != n2 ] || user=alice
	truncate -s 0 "$T/out" "$T/err"
	on -u $user n0 timeout -k 5 90 env --default-signal "$RUNNER" "${@:2}" --tag-output -H "$1:2" \
		/usr/bin/python3 /vc/t/unnamed.py < /dev/null > "$T/out" 2> "$T/err" 3>&- &
	pid=$!
	all_ready
	[ "$(ranks "$1" unnamed.py | wc -l)" = 6 ]
	[ -z "$(carriers "$1")" ]
}

carriers() { on "$1" sh -c 'for p in $(pgrep -f unnamed.py); do grep -slzF BERTH_JOB= /proc/$p/environ; done; true'; }
cgroups() { on "$1" find /sys/fs/cgroup -type d -name 'berth-*'; }
members() { on "$1" sh -c 'find /sys/fs/cgroup -path "*/berth-*" -name cgroup.procs -exec cat {} +' | sort; }
none_left() { [ -z "$(ranks "$1" unnamed.py)" ]; }

gone() { # HOST: no rank, no cgroup, and what there was before
	wait_for none_left "$1" || { ranks "$1" unnamed.py; return 1; }
	all_clean n0 "$1"
}

# The folder of all six, and of no agent, is PATTERN.
in_cgroup() { # HOST PATTERN
	# shellcheck disable=SC2053 # a pattern
	[[ $(cgroups "$1") == $2 ]] || { echo "not $2: $(cgroups "$1")"; return 1; }
	[ "$(members "$1")" = "$(ranks "$1" unnamed.py | sort)" ] || { echo "not all are in it"; return 1; }
}

# Each of the ways to end, on HOST, whose cgroup PATTERN fits.
all_ways() { # HOST PATTERN
	local fault
	begin "$1"
	in_cgroup "$1" "$2"
	on n0 pkill -TERM -x runner
	status_of_job 30
	[ "$status" = 143 ]
	none_left "$1" # already when runner ends
	gone "$1"
	for fault in agent_killed guardian_killed both_killed; do
		begin "$1"
		in_cgroup "$1" "$2"
		inject $fault "$1"
		status_of_job 30
		[ "$status" = 241 ] || { echo "$fault: $status"; cat "$T/err"; return 1; }
		none_left "$1" || { echo "$fault"; ranks "$1" unnamed.py; return 1; }
		gone "$1"
	done
	begin "$1"
	on n0 pkill -KILL -x runner
	status_of_job 30
	gone "$1"
}

@test "root: version 2" { all_ways n1 '/sys/fs/cgroup/unified/berth-*.*.1'; }
# bats test_tags=all
@test "an account with a delegated cgroup" { all_ways n2 '/sys/fs/cgroup/unified/alice/berth-*.*.1'; }
@test "version 1: the freezer" { all_ways n3 '/sys/fs/cgroup/freezer/berth-*.*.1'; }

# bats test_tags=all
@test "the launching host loses its power" {
	begin n1 --host-timeout 5
	"$VCLUSTER" netem n0 down
	for _ in 1 2 3; do # an agent gives its launcher up 15 s later than the launcher would it
		wait_for none_left n1 && break
	done
	"$VCLUSTER" netem n0 up
	status_of_job 30
	gone n1
}

@test "runner, guardian and agent: berth-agent --sweep finds the cgroup" {
	local job
	begin n1
	inject runner_and_agent_killed n1
	status_of_job 10
	job=$(cgroups n1 | sed 's/.*berth-\([^.]*\)\..*/\1/')
	[ "$(members n1 | wc -l)" = 4 ] # the main processes die with their agent
	run -0 on n1 "$AGENT" --sweep "$job"
	[ "$output" = 4 ]
	gone n1
}

@test "an empty cgroup whose agent is dead goes with the next job; one with a process or a live agent stays" {
	local live=/sys/fs/cgroup/unified/berth-live.1.1 # as if process 1 were its agent
	begin n1
	inject runner_and_agent_killed n1
	status_of_job 10
	run -0 r -H n1 true
	[ "$(cgroups n1 | wc -l)" = 1 ]
	on n1 pkill -KILL -f unnamed.py
	wait_for none_left n1
	[ "$(cgroups n1 | wc -l)" = 1 ]
	on n1 mkdir "$live"
	run -0 r -H n1 true
	[ "$(cgroups n1)" = "$live" ]
	on n1 rmdir "$live"
	gone n1
}

# Left by a sweep that can only read environments: berth-agent(8) says so.
# bats test_tags=all
@test "no cgroup: the tree is swept; only what has no name and no agent left stays" {
	begin n4
	[ -z "$(cgroups n4)" ]
	on n0 pkill -TERM -x runner
	status_of_job 30
	[ "$status" = 143 ]
	gone n4
	begin n4
	inject both_killed n4
	status_of_job 30
	[ "$status" = 241 ]
	[ "$(ranks n4 unnamed.py | wc -l)" = 4 ]
	on n4 pkill -KILL -f unnamed.py
	gone n4
}

# bats test_tags=all
@test "where there is a cgroup, a process outside it is not the job's" {
	local job outsider
	begin n1
	job=$(cgroups n1 | sed 's/.*berth-\([^.]*\)\..*/\1/')
	on n1 sh -c 'BERTH_JOB=$1 setsid sleep 1000 > /dev/null 2>&1 3>&- & echo $!' sh "$job" > "$T/outsider"
	read -r outsider < "$T/outsider"
	inject both_killed n1
	status_of_job 30
	none_left n1
	on n1 kill -KILL "$outsider" # it was spared
	gone n1
}

# bats test_tags=all
@test "a rank that makes a cgroup of its own, and one that is frozen" {
	script nests <<- 'S'
		d=/sys/fs/cgroup/unified$(sed -n 's/^0:://p' /proc/self/cgroup)/mine
		mkdir "$d" "$d/deeper"
		sh -c 'echo $$ > "$1/deeper/cgroup.procs"; exec sleep 1000' unnamed.py "$d" &
		until grep -q . "$d/deeper/cgroup.procs"; do :; done
		echo 1 > "$d/cgroup.freeze"
		exit 3
	S
	run on n0 timeout -k 5 60 "$RUNNER" -H n1 bash /vc/t/nests
	[ "$status" = 3 ]
	gone n1
}
