#!/usr/bin/env bats
# limit_s: 200
# shellcheck disable=SC2016,SC2030,SC2031,SC2046,SC2086,SC2153,SC2154 # $ is for the hosts' shells; pids are words; bats sets output
# What dies on 2 and on 4 hosts, and however it dies: the status and the first line say it, and
# no process, file or socket of the job is left on any host.
#
# Each rank is a bash script with a child in the background, one in a session of its own, one
# that was forked twice, and one that ignores what can be ignored.
load jobs

setup_file() {
	cluster_up 6
	[ -z "$(why_no_cluster)" ] || return 0
	mark_clean n0 n1 n2 n3 n4 n5 n6
	script messy <<- 'S'
		sleep 1000 &
		setsid sleep 1000 &
		(setsid sleep 1000 & (trap '' HUP INT TERM; exec sleep 1000) &)
		echo "ready$RANK $$"
		wait
		sleep 1000
	S
	script worker.py <<- 'S'
		import os, torch, torch.distributed as dist
		from torch.utils.data import DataLoader, Dataset

		class Numbers(Dataset):
		    def __len__(self): return 1 << 30
		    def __getitem__(self, i): return torch.ones(8) * (i % 7)

		dist.init_process_group("gloo")
		for step, batch in enumerate(DataLoader(Numbers(), batch_size=4, num_workers=2)):
		    dist.all_reduce(batch)
		    if step == 20: print(f"ready{os.environ['RANK']} {os.getpid()}", flush=True)
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

# Two ranks on each host, all of them running.
messy() { # HOSTS OPTION...
	local rank
	hosts=$1; shift
	hosts_of=$(sed 's/\[1-4\]/1 n2 n3 n4/; s/,/ /g; s/:2//g' <<< "$hosts")
	n=$(wc -w <<< "$hosts_of")
	start -H "$hosts" "$@" bash /vc/t/messy
	for ((rank = 0; rank < 2 * n; rank++)); do
		wait_for grep -q "ready$rank " "$T/out" || { cat "$T/err"; return 1; }
	done
}

rank_pid() { sed -n "s/.*ready$1 //p" "$T/out"; }

on_2_and_4() { # TEST
	local h
	for h in n1:2,n2:2 'n[1-4]:2'; do
		echo "# with $h"
		"$1" "$h" # no || here: it would let every command in there but the last fail
	done
}

# The job is over with STATUS, the first line says TEXT..., and every host is as it was.
ended_clean() { # STATUS TEXT...
	local status=$1; shift
	ended_with "$status" n0 $hosts_of && first_line_says "$@" && all_clean n0 $hosts_of
}

@test "kill -9 of a rank" {
	rank_killed() {
		messy "$1"
		local victim
		victim=$(rank_pid 2)
		on n2 kill -KILL "$victim"
		ended_clean 137 "rank 2 on 'n2' (pid $victim) was ended by SIGKILL"
	}
	on_2_and_4 rank_killed
}

@test "kill -9 of an agent" {
	agent_killed() {
		messy "$1"
		on n2 kill -KILL $(agents n2 | tail -1)
		ended_clean 241 "n2: lost its agent"
		err_says "with it ranks 2-3"
	}
	on_2_and_4 agent_killed
}

@test "kill -9 of a guardian" {
	guardian_killed() {
		messy "$1"
		on n2 kill -KILL $(agents n2 | head -1)
		ended_clean 241 "n2: lost its agent"
	}
	on_2_and_4 guardian_killed
}

@test "kill -9 of guardian and agent at once: the host is swept" {
	both_killed() {
		messy "$1"
		on n2 kill -KILL $(agents n2)
		ended_clean 241 "n2: lost its agent"
		run ! grep "did not confirm" "$T/err"
	}
	on_2_and_4 both_killed
}

@test "kill -9 of all agents and guardians on all hosts at once" {
	messy 'n[1-4]:2'
	local h
	for h in n1 n2 n3 n4; do
		on $h pkill -KILL -x berth-agent &
	done
	wait $(jobs -p | grep -vx "$pid")
	ended_clean 241 "lost its agent"
}

@test "kill -9 of runner" {
	runner_killed() {
		messy "$1"
		signal KILL
		all_clean n0 $hosts_of
		pid=
	}
	on_2_and_4 runner_killed
}

@test "kill -9 of runner while ranks write" {
	script writes <<< 'echo "ready$RANK"; exec yes "$RANK"'
	start -H n1,n2 bash /vc/t/writes
	wait_for grep -q ready1 "$T/out"
	signal KILL
	all_clean n0 n1 n2
	pid=
}

@test "kill -9 of the sshd session that carries the stream" {
	session_killed() {
		messy "$1"
		on n2 sh -c 'kill -KILL $(pgrep -f "^sshd: root@notty")'
		ended_clean 241 "n2"
		run ! grep "did not confirm" "$T/err"
	}
	on_2_and_4 session_killed
}

@test "sshd is stopped while a job runs: the job does not notice" {
	messy n1:2,n2:2
	"$VCLUSTER" sshd n2 stop
	on n2 kill -TERM $(rank_pid 3)
	ended_with 143 n1 n2
	"$VCLUSTER" sshd n2 start
	first_line_says "rank 3 on 'n2'"
	all_clean n0 n1 n2
}

@test "agents dead and sshd stopped: runner says who did not confirm, and its hint cleans up" {
	messy n1:2,n2:2
	"$VCLUSTER" sshd n2 stop
	on n2 kill -KILL $(agents n2)
	ended_with 241 n1
	first_line_says "n2: lost its agent"
	err_says "n2 did not confirm that the job's processes are gone"
	"$VCLUSTER" sshd n2 start
	run -0 on n2 "$BUILD"/bin/$(sed -n 's/.*run `\(berth-agent --sweep [^`]*\)`.*/\1/p' "$T/err")
	[ "$output" -gt 0 ]
	all_clean n0 n1 n2
}

@test "TERM, HUP: nothing is left" {
	messy 'n[1-4]:2'
	signal TERM
	ended_with 143 n0 $hosts_of
	all_clean n0 $hosts_of
	messy n1:2,n2:2
	signal HUP
	ended_with 129 n0 $hosts_of
	all_clean n0 $hosts_of
}

@test "^C while runner waits for a host that may have failed first: the cause is said" {
	local victim
	messy n1:2,n2:2
	victim=$(rank_pid 0)
	on n2 pkill -STOP -x berth-agent
	on n1 kill -KILL "$victim"
	signal INT
	on n2 pkill -CONT -x berth-agent
	status_of_job 30
	[ "$status" = 130 ]
	grep -qF "runner: rank 0 on 'n1' (pid $victim) was ended by SIGKILL" "$T/err" || { cat "$T/err"; return 1; }
	all_clean n0 n1 n2
}

@test "a rank with DataLoader workers is killed: its workers and the other ranks go" {
	local h victim
	start -H n1,n2 "$PYTHON" /vc/t/worker.py
	for h in 0 1; do
		wait_for grep -q "ready$h " "$T/out" || wait_for grep -q "ready$h " "$T/out" || { cat "$T/err"; return 1; }
	done
	for h in n1 n2; do
		[ "$(on $h pgrep -cf /vc/t/worker.py)" -ge 3 ] # main and two workers
	done
	victim=$(rank_pid 1)
	on n2 kill -KILL "$victim"
	ended_with 137 n1 n2
	first_line_says "rank 1 on 'n2' (pid $victim) was ended by SIGKILL"
	on n1 sh -c 'rm -rf /tmp/pymp-*' # Python's own, which a killed worker leaves
	on n2 sh -c 'rm -rf /tmp/pymp-*'
	all_clean n0 n1 n2
}

@test "^Z and fg over ssh: all hosts stop and go on" {
	messy n1:2,n2:2
	states() { # every process of the job, on both hosts
		local h
		for h in n1 n2; do
			on $h sh -c 'for f in $(grep -slzF BERTH_JOB= /proc/[0-9]*/environ); do sed "s/.*) \(.\).*/\1/" ${f%environ}stat; done'
		done | sort -u
	}
	all_are() { [ "$(states)" = "$1" ]; }
	signal TSTP
	wait_for all_are T
	signal CONT
	wait_for all_are S
	signal TERM
	ended_with 143 n1 n2
	all_clean n0 n1 n2
}

@test "a host hangs, then comes back: it is given up, the others end, and it cleans up itself" {
	messy n1:2,n2:2 --host-timeout 2
	"$VCLUSTER" freeze n2
	status_of_job 30
	"$VCLUSTER" thaw n2
	[ "$status" = 241 ] || { cat "$T/err"; return 1; }
	first_line_says "n2: no sign of life for "
	err_says "n2 did not confirm"
	all_clean n0 n1 n2
}

@test "a short --host-timeout does not end a job whose hosts are alive" {
	run -0 r --host-timeout 1 -H n1,n2 sleep 3
	[ -z "$output" ]
}

@test "the network to a host is cut: 241; the host ends its ranks by itself" {
	messy n5:2,n6:2 --host-timeout 2
	"$VCLUSTER" netem n6 down
	ended_with 241 n5
	first_line_says "n6: no sign of life for "
	all_clean n0 n5
	for _ in 1 2 3; do # an agent gives its launcher up 15 s later than the launcher would it
		wait_for clean n6 && break
	done
	all_clean n6
	"$VCLUSTER" netem n6 up
}

# Last: these hosts stay dead.
@test "power cut of a host: 241, it is named, the others end" {
	power_cut() { # HOSTS VICTIM
		messy "$1" --host-timeout 2
		"$VCLUSTER" netem "$2" down # first, or its kernel would say goodbye
		"$VCLUSTER" kill "$2"
		ended_with 241 ${hosts_of/$2/}
		first_line_says "$2: no sign of life for "
		err_says "with it ranks "
		all_clean n0 ${hosts_of/$2/}
	}
	power_cut 'n[1-4]:2' n4
	power_cut n1:2,n2:2 n2
}
