#!/usr/bin/env bats
# limit_s: 600
# takes_s: 83
# more: half of the faults
# shellcheck disable=SC2016,SC2030,SC2031,SC2046,SC2086,SC2153,SC2154 # $ is for the hosts' shells; pids are words; bats sets output
# What dies on 2 and on 4 hosts, and however it dies: the status and the first line say it, in
# time, and no process, file, socket or shared memory of the job is left on any host.
#
# Each fault comes once, on a number of hosts and at a moment that SEED chooses (SEED=N tests/run
# cluster/faults does it again); tests/soak/faults.sh does all of them.
load jobs

setup_file() {
	export SEED=${SEED:-$RANDOM}
	echo "# SEED=$SEED" >&3
	cluster_up 6
	[ -z "$(why_no_cluster)" ] || return 0
	mark_clean n0 n1 n2 n3 n4 n5 n6
	source "$ROOT/tests/cluster/inject.bash"
	write_ranks
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	source "$ROOT/tests/cluster/inject.bash"
	source "$ROOT/tests/cluster/rounds.bash"
	RANDOM=$((SEED + BATS_TEST_NUMBER))
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
}

# Two ranks on each host, all of them running.
messy() { # HOSTS OPTION...
	hosts=$1; shift
	hosts_of=$(sed 's/\[1-4\]/1 n2 n3 n4/; s/,/ /g; s/:2//g' <<< "$hosts")
	np=$(($(wc -w <<< "$hosts_of") * 2))
	start -H "$hosts" "$@" bash /vc/t/messy
	all_ready
}

# The job is over with STATUS, the first line says TEXT..., and every host is as it was.
ended_clean() { # STATUS TEXT...
	local status=$1; shift
	ended_with "$status" n0 $hosts_of && first_line_says "$@" && all_clean n0 $hosts_of
}

# A round of tests/cluster/rounds.bash.  What an agent knows at once runner says within a second, or
# does at the second or third time: a busy machine may have stood still; of a silent host it is said
# after --host-timeout.
sampled() { # FAULT [MOMENT [RANKS]]
	local sizes=(2 2 4) moments=(start running ending) size moment
	size=${sizes[RANDOM % 3]} moment=${2:-${moments[RANDOM % 3]}}
	echo "SEED=$SEED: $1 on $size hosts, $moment, ${3:-messy}"
	for _ in 1 2 3; do
		round "$1" "$size" "$moment" "${3:-messy}" || { on n0 pkill -KILL -x runner; mend "$1" "$victim_host"; return 1; }
		echo "the cause was named after ${cause_ms:-no} ms"
		case $1,$moment in
		*,start | disk_full,* | host_cut,* | host_frozen,* | partitioned,* | agent_stopped,*) return ;;
		*) [ "${cause_ms:-0}" -ge 1000 ] || return 0 ;;
		esac
	done
	false
}

# ---- each fault once ----

@test "kill -9 of a rank" { sampled rank_killed; }
@test "kill -9 of an agent" { sampled agent_killed; }
# bats test_tags=all
@test "kill -9 of a guardian" { sampled guardian_killed; }
@test "kill -9 of guardian and agent at once: the host is swept" { sampled both_killed running; }
@test "kill -9 of the sshd session that carries the stream" { sampled session_killed; }
# bats test_tags=all
@test "kill -9 of all of a host's at once" { sampled all_killed running; }
@test "kill -9 of runner" { sampled runner_killed; }
# bats test_tags=all
@test "a rank is stopped: the job ends all the same" { sampled rank_stopped; }
# bats test_tags=all
@test "20 % packet loss: the job lives" { sampled loss; }
# bats test_tags=all
@test "200 ms delay: the job lives" { sampled delay; }
@test "the disk under --output-filename is full: said once, 125, and the terminal has it all" { sampled disk_full; }
@test "out of memory: the limit is named" { sampled oom running; }
@test "an agent is stopped: its host is given up, and cleans up" { sampled agent_stopped running; }

# bats test_tags=all
@test "kill -9 of runner, guardian and agent: ranks die at once, berth-agent --sweep finds the rest" {
	messy n1:2,n2:2
	inject runner_and_agent_killed n2
	status_of_job 10
	all_clean n0 n1
	mains_gone() { ! on n2 test -e "/proc/$(rank_pid 2)/fd/0" && ! on n2 test -e "/proc/$(rank_pid 3)/fd/0"; }
	wait_for mains_gone
	[ -n "$(on n2 sh -c 'grep -slzF BERTH_JOB= /proc/[0-9]*/environ')" ] # what they had daemonised
	grep -q 'the guardian and the agent were killed at the same time' "$ROOT/man/berth-agent.8"
	mend runner_and_agent_killed n2
	all_clean n2
}

# ---- what ranks are ----

@test "ranks that ignore TERM: KILL after the grace" { sampled nothing ending stubborn; }
# bats test_tags=all
@test "ranks that close their stdout and live on" { sampled nothing ending mute; }
@test "ranks with children that nobody reaps" { sampled rank_killed running zombies.py; }
# bats test_tags=all
@test "ranks with System V shared memory" { sampled all_killed running sysv; }
# bats test_tags=all
@test "a fork bomb that ulimit -u bounds" { sampled rank_killed running bomb; }

# bats test_tags=all
@test "ranks in a PID namespace of their own" {
	command -v bwrap > /dev/null || skip "no bwrap (tests/deps check installs it)"
	sampled all_killed running contained
}

# bats test_tags=all
@test "PyTorch ranks with DataLoader workers: one is killed, all go" {
	need_torch
	sampled rank_killed running worker.py
}

# ---- more of these ----

@test "kill -9 of all agents and guardians on all hosts at once" {
	messy 'n[1-4]:2'
	local h
	for h in n1 n2 n3 n4; do
		on $h pkill -KILL -x berth-agent || true & # it may be over there by then
	done
	wait $(jobs -p | grep -vx "$pid")
	ended_clean 241 "lost its agent"
}

# bats test_tags=all
@test "kill -9 of runner while ranks write" {
	script writes <<< 'echo "ready$RANK"; exec yes "$RANK"'
	start -H n1,n2 bash /vc/t/writes
	wait_for grep -q ready1 "$T/out"
	signal KILL
	all_clean n0 n1 n2
	pid=
}

# bats test_tags=all
@test "sshd is stopped while a job runs: the job does not notice" {
	messy n1:2,n2:2
	"$VCLUSTER" sshd n2 stop
	on n2 kill -TERM $(rank_pid 3)
	ended_with 143 n1 n2
	"$VCLUSTER" sshd n2 start
	first_line_says "rank 3 on 'n2'"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "agents dead and sshd stopped: runner says who did not confirm, and its hint cleans up" {
	messy n1:2,n2:2
	"$VCLUSTER" sshd n2 stop
	inject both_killed n2
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

# bats test_tags=all
@test "^C while runner waits for a host that may have failed first: the cause is said" {
	local victim
	messy n1:2,n2:2 --events /vc/t/events
	victim=$(rank_pid 0)
	on n2 pkill -STOP -x berth-agent
	on n1 kill -KILL "$victim"
	wait_for grep -q '"rank ended"' "$STATE/t/events"
	signal INT
	on n2 pkill -CONT -x berth-agent
	status_of_job 30
	[ "$status" = 130 ]
	grep -qF "runner: rank 0 on 'n1' (pid $victim) was ended by SIGKILL" "$T/err" || { cat "$T/err"; return 1; }
	all_clean n0 n1 n2
}

# bats test_tags=all
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

# bats test_tags=all
@test "a host hangs, then comes back: it is given up, the others end, and it cleans up itself" {
	messy n1:2,n2:2 --host-timeout 5
	"$VCLUSTER" freeze n2
	status_of_job 30
	"$VCLUSTER" thaw n2
	[ "$status" = 241 ] || { cat "$T/err"; return 1; }
	first_line_says "n2: no message for "
	err_says "n2 did not confirm"
	all_clean n0 n1 n2
}

@test "a short --host-timeout does not end a job whose hosts are alive" {
	run -0 r --host-timeout 4 -H n1,n2 sleep 6
	[ -z "$output" ]
}

@test "the network to a host is cut: 241; the host ends its ranks by itself" {
	messy n5:2,n6:2 --host-timeout 5
	"$VCLUSTER" netem n6 down
	ended_with 241 n5
	first_line_says "n6: no message for "
	all_clean n0 n5
	for _ in 1 2 3; do # an agent gives its launcher up 15 s later than the launcher would it
		wait_for clean n6 && break
	done
	all_clean n6
	"$VCLUSTER" netem n6 up
}

# Last: these hosts stay dead.
# bats test_tags=all
@test "power cut of a host: 241, it is named, the others end" {
	power_cut() { # HOSTS VICTIM
		messy "$1" --host-timeout 5
		"$VCLUSTER" netem "$2" down # first, or its kernel would say goodbye
		"$VCLUSTER" kill "$2"
		ended_with 241 ${hosts_of/$2/}
		first_line_says "$2: no message for "
		err_says "with it ranks "
		all_clean n0 ${hosts_of/$2/}
	}
	power_cut 'n[1-4]:2' n4
	power_cut n1:2,n2:2 n2
}
