#!/usr/bin/env bats
# limit_s: 400
# takes_s: 100
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the hosts' shells; bats sets output
# Agents that srun starts, on a real Slurm: what they see, and what is left when srun, runner, an
# agent or the job ends by force.
load jobs
load slurm

setup_file() {
	slurm_up 3 --gpus 4 --proctrack cgroup SchedulerType=sched/backfill \
		SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
}

teardown_file() {
	cluster_down
}

setup() {
	need_slurm
	hosts=(n1 n2 n3)
	rm -rf "$STATE"/t/*
	mark_clean "${hosts[@]}"
}

srun_runs() { ! none_runs n1 srun; }

# A job of four ranks on n1 and n2 that say that they are up; the batch shell is runner.
start_job() { # RUNNER-OPTION...
	submit -N2 -n4 --ntasks-per-node=2 <<- E
		#!/bin/bash
		exec $RUNNER --no-tag $* sh -c 'echo "up \$RANK"; exec sleep 100'
	E
	wait_for out_has 4 '^up ' || { cat "$STATE/t/out"; return 1; }
}

# The folder of a PMIx server stays if agent, guardian and server are killed at once.
next_job_clears() { # HOST
	run -0 salloc -w "$1" "$RUNNER" sh -c true
	all_clean n1 n2 n3
}

# ---- what ranks see ----

@test "ranks on all hosts, as root and as another user; MASTER_ADDR is the agent's; this host, too" {
	for user in alice root; do
		submit -N2 -n4 --ntasks-per-node=2 <<- E
			#!/bin/bash
			SECRET=of-the-shell $RUNNER -v --no-tag sh -c 'echo "rank \$RANK \$USER \$HOME \$SHELL \$MASTER_ADDR \$SECRET"'
		E
		wait_for job_gone
		run -0 cat "$STATE/t/out"
		says 'n1 is up: ' 'n2 is up: ' '(srun)'
		silent_on '(local)'
		home=$(as "$user" n0 sh -c 'echo ~')
		address=$(on n1 hostname -I | cut -d' ' -f1)
		[ "$(grep -c "^rank [0-3] $user $home /bin/bash $address of-the-shell\$" <<< "$output")" = 4 ] || { echo "$output"; return 1; }
	done
	job_ends_clean
}

gpus_of() { grep -oE '^[0-9]+ n[0-9] [0-9,]+$' <<< "$output" | sort -k2 | cut -d' ' -f2- | xargs; }

@test "each agent sees all GPUs of the job there, however the job asked for them" {
	local show='echo "$RANK $(uname -n) $CUDA_VISIBLE_DEVICES"'
	# a host whose last job is still COMPLETING is passed over
	all_idle() { ! on n0 sinfo -hN -o %t | grep -qvx idle; }
	each() { wait_for all_idle; run -0 salloc -N2 "${@:2}" "$RUNNER" -q --no-tag --gpu-visible node -ppn 1 sh -c "$show"; [ "$(gpus_of)" = "$1" ] || { echo "$output"; return 1; }; }
	each 'n1 0,1,2,3 n2 0,1,2,3' --gpus-per-node=4
	each 'n1 0,1 n2 0,1' --gres=gpu:2
	each 'n1 0,1,2 n2 0' -n4 --gpus-per-task=1
	each 'n1 0,1 n2 0' --gpus=3
	each 'n1 0,1,2,3 n2 0,1,2,3' --exclusive --gpus-per-node=4
}

@test "a heterogeneous job: hosts of all components" {
	run -0 salloc -N1 -n1 : -N2 -n4 "$RUNNER" -q --no-tag sh -c 'echo "$RANK $(uname -n)"'
	[ "$(grep -cE '^[0-4] n[1-3]$' <<< "$output")" = 5 ]
	[ "$(sort -n <<< "$output" | head -1)" = '0 n1' ]
}

@test "a step of the user's own runs beside it; --check; -ppn; srun's own words are kept back" {
	run -0 salloc -N2 -n2 sh -c "srun --overlap sleep 5 & $RUNNER --check true; wait; $RUNNER --no-tag -H n2 -ppn 1 uname -n"
	says n2
	silent_on 'cpu binding'
}

@test "where another user could replace the agent, a copy is sent, and removes itself" {
	mkdir -p "$STATE/t/open"
	chmod 777 "$STATE/t/open"
	cp "$RUNNER" "$AGENT" "$STATE/t/open"
	run -0 salloc -N2 -n2 /vc/t/open/runner --no-tag sh -c 'readlink /proc/$(pgrep -x berth-agent | head -1)/exe'
	[ "$(grep -c '^/tmp/berth-agent-[0-9a-f]* (deleted)$' <<< "$output")" = 2 ] || { echo "$output"; return 1; }
	run -240 salloc -N2 -n2 /vc/t/open/runner --no-push true
	says "n[1-2]: cannot start the agent '/vc/t/open/berth-agent'"
	hinted
	run -240 salloc -N2 -n2 "$RUNNER" --launch-agent /vc/t/open/none true
	says "cannot start the agent '/vc/t/open/none'"
	all_clean n1 n2
}

# ---- what can fail ----

@test "srun cannot start a step; nothing calls: address, port and srun's words" {
	run -240 as alice n0 env SLURM_JOB_ID=999999 SLURM_JOB_NODELIST='n[1-2]' SLURM_NTASKS=2 SLURM_TASKS_PER_NODE='1(x2)' "$RUNNER" true
	says 'n[1-2]: srun ended with status 1 before the agent called: ' 'Expired or invalid job 999999'
	hinted
	on n0 ip address add 192.0.2.7/32 dev lo # the other hosts have no way there
	run -240 salloc -N2 -n2 "$RUNNER" --net 192.0.2.0/24 --start-timeout 2 true
	on n0 ip address del 192.0.2.7/32 dev lo
	says 'no agent in time: nothing called 192.0.2.7 at port '
	run -240 salloc -N2 -n2 "$RUNNER" --net 198.51.100.0/24 true
	says 'no address of this machine is in the ranges of --net'
	run -2 as alice n0 "$RUNNER" --transport srun -H n1 true
	says 'runner is not in a job of Slurm'
}

@test "SrunPortRange" {
	on n0 sh -c 'cp /etc/slurm/slurm.conf /root/conf; echo SrunPortRange=61000-61020 >> /root/conf'
	run -0 salloc -N2 -n2 sh -c "sed 's/^SrunPortRange.*//' /etc/slurm/slurm.conf > /vc/t/conf; echo ' srunportrange = 61000-61020' >> /vc/t/conf
		SLURM_CONF=/vc/t/conf $RUNNER --no-tag sh -c 'ss -Htnp | grep berth-agent | head -1'"
	[[ $output =~ :610[0-2][0-9]\  ]] || { echo "$output"; return 1; }
}

@test "what srun sends has no variable of the user's, and nobody reads a key in ps" {
	submit -N2 -n2 <<- E
		#!/bin/bash
		export SECRET=of-the-shell
		$RUNNER --no-tag sh -c 'echo "up \$RANK \$SECRET"; exec sleep 100'
	E
	wait_for out_has 2 '^up [01] of-the-shell'
	run -0 on n1 sh -c 'p=$(pgrep -x srun | head -1); tr "\0" "\n" < /proc/$p/environ | cut -d= -f1 | sort | xargs'
	[ "$output" = 'BERTH_STEP_OF_RUNNER HOME PATH SLURM_CLUSTER_NAME SLURM_CONF SLURM_JOBID SLURM_JOB_ID SLURM_WORKING_CLUSTER' ] || { echo "$output"; return 1; }
	on n0 scancel "$id"
	job_ends_clean
}

@test "the network of runner's host carries no variable and no output of the ranks in clear" {
	nobody_hears n1 n2
}

# ---- ends ----

@test "srun is killed: agents and ranks go on" {
	start_job
	on n1 pkill -KILL -x srun
	wait_for none_runs n1 srun
	[ "$(ranks n2 'sleep 100' | wc -l)" = 2 ]
	on n1 pkill -TERM -x runner
	job_ends_clean
}

@test "runner is killed: nothing is left" {
	start_job
	on n1 pkill -KILL -x runner
	job_ends_clean
	none_runs n1 srun
}

@test "runner is killed while srun waits for the controller" {
	local held
	submit -N2 -n2 <<- E
		#!/bin/bash
		until [ -e /vc/t/go ]; do sleep 0.05; done
		echo up; exec $RUNNER true
	E
	wait_for on n1 pgrep -f slurm_script
	held=$(on n0 pgrep -x slurmctld)
	on n0 kill -STOP "$held"
	touch "$STATE/t/go"
	wait_for srun_runs
	on n1 pkill -KILL -x runner
	wait_for none_runs n1 srun
	on n0 kill -CONT "$held"
	job_ends_clean
}

@test "an agent is killed, and an agent with its guardian: 241, nothing is left" {
	start_job
	# shellcheck disable=SC2046 # a number
	on n2 kill -KILL $(agents n2 | tail -1)
	wait_for out_has 1 'n2: lost its agent'
	job_ends_clean
	start_job
	on n2 pkill -KILL -x berth-agent
	wait_for out_has 1 'n2: lost its agent'
	wait_for job_gone
	[[ $(on n0 scontrol show job "$id") == *ExitCode=241:0* ]]
	next_job_clears n2
}

@test "--restarts: the next start is a step on the hosts that are left" {
	submit -N3 --ntasks-per-node=1 <<- E
		#!/bin/bash
		exec $RUNNER --no-tag --restarts 1 -np 2 -H n1,n2,n3 sh -c 'echo "up \$RANK \$(uname -n) \$TORCHELASTIC_RESTART_COUNT"
			[ \$TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 100'
	E
	wait_for out_has 2 '^up [01] n[12] 0'
	on n2 pkill -KILL -x berth-agent
	wait_for out_has 2 '^up [01] n[13] 1'
	wait_for job_gone
	next_job_clears n2
	[[ $(on n0 scontrol show job "$id") == *ExitCode=0:0* ]]
}

start_saving() {
	submit -N2 -n4 --ntasks-per-node=2 <<- E
		#!/bin/bash
		exec $RUNNER --no-tag bash -c '$saving'
	E
	wait_for out_has 4 '^up '
}

@test "scancel, and scancel -s TERM: each rank gets TERM once, and time to save" {
	local flag
	for flag in '' '-s TERM'; do
		rm -f "$STATE"/t/said.*
		start_saving
		# shellcheck disable=SC2086 # no word or two
		on n0 scancel $flag "$id"
		job_ends_clean
		each_saved 0 1 2 3
	done
}

@test "scancel -s KILL: nothing is left" {
	start_job
	on n0 scancel -s KILL "$id"
	job_ends_clean
}

@test "a host's power is cut: the job ends, nothing is left on the others" {
	start_job --host-timeout 5
	"$VCLUSTER" kill n2
	wait_for out_has 1 'n2: .* given up\|n2: no message for\|n2: lost its agent'
	wait_for job_gone
	all_clean n1
}
