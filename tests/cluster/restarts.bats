#!/usr/bin/env bats
# limit_s: 300
# takes_s: 15
# more: spares, and ^C between epochs
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the hosts' shells; bats sets output
# --restarts over several hosts: those that were lost are left out, spares come in.
load jobs

setup_file() {
	cluster_up 5
	[ -z "$(why_no_cluster)" ] || return 0
	mark_clean n0 n1 n2 n3 n4
	script again <<- 'S'
		setsid sleep 1000 &
		echo "ready$TORCHELASTIC_RESTART_COUNT.$RANK $(uname -n) $MASTER_ADDR:$MASTER_PORT"
		sleep 1000
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
	[ -z "${without-}" ] || "$VCLUSTER" sshd "$without" start
	[ -z "${slow-}" ] || "$VCLUSTER" netem "$slow" clear
}

# All NP ranks of EPOCH run.
ready() { # EPOCH NP
	local rank
	for ((rank = 0; rank < $2; rank++)); do
		wait_for grep -q "ready$1.$rank " "$T/out" || { cat "$T/err"; return 1; }
	done
}

hosts_in() { # EPOCH
	sed -n "s/.*ready$1\.[0-9]* \([^ ]*\) .*/\1/p" "$T/out" | sort -u | tr '\n' ' '
}

masters_in() { # EPOCH
	sed -n "s/.*ready$1\.[0-9]* .* \(.*\)/\1/p" "$T/out" | sort -u
}

@test "a rank dies: all hosts start again, nothing of the first epoch is left" {
	start --restarts 2 -H 'n[1-4]:2' bash /vc/t/again
	ready 0 8
	on n3 pkill -KILL -f /vc/t/again
	ready 1 8
	sleeps() { [ "$(on "$1" pgrep -cx sleep)" -ge 4 ]; } # a child may still be on its way
	for h in n1 n2 n3 n4; do
		wait_for sleeps $h
		[ "$(on $h pgrep -cx sleep)" = 4 ] # two ranks, each with a child in a session of its own
	done
	[ "$(hosts_in 1)" = "n1 n2 n3 n4 " ]
	[ "$(masters_in 1 | wc -l)" = 1 ]
	[ "$(masters_in 0)" != "$(masters_in 1)" ]
	signal TERM
	ended_with 143 n1 n2 n3 n4
	all_clean n0 n1 n2 n3 n4
}

@test "a host of a program with its own -H is lost: only a spare of that list takes its ranks" {
	start --restarts 2 -H n1:2,n4:2 -np 2 bash /vc/t/again : -H n2:2,n3:2 -np 2 bash /vc/t/again
	ready 0 4
	[ "$(hosts_in 0)" = "n1 n2 " ]
	on n2 pkill -KILL -x berth-agent
	ready 1 4
	[ "$(hosts_in 1)" = "n1 n3 " ]
	on n3 pkill -KILL -x berth-agent
	ended_with 241 n1 n2 n3
	err_says "cannot restart on the remaining hosts: app 2: -H gives no slots (n[2-3]:0)"
}

@test "a host is lost: the others take its ranks if they have the slots" {
	start --restarts 1 -np 6 -H 'n1:2,n2:2,n3:4' bash /vc/t/again
	ready 0 6
	on n1 pkill -KILL -x berth-agent # the host of MASTER_ADDR
	ready 1 6
	[ "$(hosts_in 1)" = "n2 n3 " ]
	signal TERM
	ended_with 143 n1 n2 n3
	first_line_says "n1: lost its agent"
	err_says "restart 1 of 1: 6 ranks on 2 hosts"
	all_clean n0 n1 n2 n3
}

@test "a host without ranks is a spare: it gets its first agent when it is needed" {
	start --restarts 1 -np 4 -H 'n1:2,n2:2,n4:2' bash /vc/t/again
	ready 0 4
	[ -z "$(agents n4)" ]
	on n2 pkill -KILL -x berth-agent
	ready 1 4
	[ "$(hosts_in 1)" = "n1 n4 " ]
	signal TERM
	ended_with 143 n1 n2 n4
	all_clean n0 n1 n2 n4
}

@test "no slots are left: 241, and the message counts them" {
	start --restarts 3 -H 'n[1-2]:2' bash /vc/t/again
	ready 0 4
	on n2 pkill -KILL -x berth-agent
	ended_with 241 n1 n2
	first_line_says "n2: lost its agent"
	err_says "cannot restart on the remaining hosts" "hint: name more hosts than -np needs"
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "the spare does not come up: that costs a restart, the next spare is taken" {
	"$VCLUSTER" sshd n3 stop
	start --restarts 2 --start-timeout 2 -np 4 -H 'n1:2,n2:2,n3:2,n4:2' bash /vc/t/again
	ready 0 4
	on n2 pkill -KILL -x berth-agent
	ready 2 4
	"$VCLUSTER" sshd n3 start
	[ "$(hosts_in 2)" = "n1 n4 " ]
	signal TERM
	ended_with 143 n1 n2 n4
	err_says "n3"
	all_clean n0 n1 n2 n4
}

# Agent and guardian of n2 die in one blow, and it takes seconds to clear up there.
between_epochs() {
	slow=n2 without=n3
	"$VCLUSTER" sshd n3 stop
	"$VCLUSTER" netem n2 delay 100 3>&-
	start --restarts 2 -np 4 -H 'n1:2,n2:2,n3:2' bash /vc/t/again
	ready 0 4
	on n2 pkill -KILL -x berth-agent
	wait_for grep -q 'restart 1 of 2' "$T/err"
}

# bats test_tags=all
@test "^C between two epochs ends the job" {
	between_epochs
	signal INT
	ended_with 130 n1 n2
	all_clean n0 n1 n2
}

# bats test_tags=all
@test "^C twice between two epochs: a host that was lost is cleared up all the same" {
	between_epochs
	signal INT
	signal INT || true # it may be over by now
	ended_with 130 n1 n2
	all_clean n0 n1 n2
}

# Last: this host stays dead.
# bats test_tags=all
@test "power cut of a host: the others go on without it" {
	start --restarts 1 --host-timeout 5 -np 4 -H 'n1:2,n2:2,n5:2' --map-by node bash /vc/t/again
	ready 0 4
	"$VCLUSTER" netem n5 down
	"$VCLUSTER" kill n5
	ready 1 4
	[ "$(hosts_in 1)" = "n1 n2 " ]
	signal TERM
	ended_with 143 n1 n2
	first_line_says "n5: no message for"
	err_says "n5 did not confirm"
	all_clean n0 n1 n2
}
