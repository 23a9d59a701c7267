#!/usr/bin/env bats
# limit_s: 300
# takes_s: 60
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2086,SC2154 # $ is for the hosts' shells; bats sets output; words of commands
# runner inside jobs of a real Slurm: sbatch, salloc, srun.  Agents go over ssh.
# tests/cli/allocation.bats has the other managers, from made-up environments.
load jobs

setup_file() {
	[ -n "$(why_no_slurm)" ] || "$ROOT/tests/cluster/vslurm" up 3 SchedulerType=sched/backfill >&2
}

teardown_file() {
	cluster_down
}

setup() {
	local why
	why=$(why_no_slurm | head -1)
	[ -z "$why" ] || skip "$why"
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	rm -f "$STATE"/t/*
}

why_no_slurm() {
	local program
	why_no_cluster
	for program in munged slurmctld slurmd sbatch salloc; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
			echo "no $program (tests/deps launchers installs it)"
			return
		}
	done
}

# salloc OPTION... COMMAND..., by a user who is not root.  What salloc itself says is left out.
salloc() {
	as "${user:-alice}" n0 timeout -k 5 60 sh -c 'cd /vc/t; exec salloc -Q "$@"' sh "$@" < /dev/null
}

# The script at stdin as a batch job; its output, and its status.
sbatch() { # OPTION...
	local rc=0 file
	script job
	as "${user:-alice}" n0 timeout -k 5 90 sh -c 'cd /vc/t; exec sbatch -Q -W --chdir=/vc/t -o /vc/t/out.%a "$@" /vc/t/job' sh "$@" < /dev/null || rc=$?
	for file in "$STATE"/t/out.*; do
		cat "$file"
	done
	return $rc
}

# The ranks' hosts, in the order of ranks, of what runner --no-tag printed as "RANK HOST".
in_order() { grep -E '^[0-9]+ n[0-9]$' <<< "$output" | sort -n | cut -d' ' -f2 | xargs; }
where='echo "$RANK $(uname -n)"'

@test "salloc on a login host: uneven tasks, as root and as another user" {
	for user in alice root; do
		run -0 salloc -N3 -n5 "$RUNNER" --no-tag sh -c "$where"
		[ "$(in_order)" = 'n1 n1 n1 n2 n3' ]
	done
	run -0 salloc -N2 -n3 "$RUNNER" -v true
	says 'slots: SLURM_TASKS_PER_NODE' 'n1 is up: ' 'n2 is up: '
}

@test "sbatch: the first host is this one; status of the job; torch's and JAX's variables" {
	run -0 sbatch -N3 -n4 <<- E
		#!/bin/bash
		$RUNNER --no-tag sh -c '$where; echo "= \$SLURM_STEP_NODELIST \$SLURM_STEP_NUM_NODES \$SLURM_NTASKS"'
	E
	[ "$(in_order)" = 'n1 n1 n2 n3' ]
	[ "$(grep -c '^= n\[1-3\] 3 4$' <<< "$output")" = 4 ]
	run -7 sbatch -N2 -n2 <<- E
		#!/bin/bash
		$RUNNER --no-tag sh -c '[ \$RANK = 0 ] || exit 7'
	E
	says 'exited with status 7'
}

@test "no number of tasks: one rank per core, as far as the job's CPUs" {
	run -0 salloc -N2 "$RUNNER" --no-tag sh -c "$where"
	[ "$(in_order)" = 'n1 n2' ]
	run -0 salloc -N2 --ntasks-per-node=1 -c2 "$RUNNER" -q --no-tag -ppn 2 sh -c "$where"
	[ "$(in_order)" = 'n1 n1 n2 n2' ]
	run -2 salloc -N2 --ntasks-per-node=1 -c2 "$RUNNER" -ppn 3 true
	says "-ppn 3 is too many: this Slurm job has 2 CPUs on 'n1'"
}

@test "-H chooses some of the hosts" {
	run -0 salloc -N3 -n4 "$RUNNER" -q --no-tag -H n3,n1 sh -c "$where; echo \"= \$SLURM_STEP_NODELIST\""
	[ "$(in_order)" = 'n3 n1 n1' ]
	says '= n[3,1]'
	# by its address
	run -0 salloc -N2 -n3 "$RUNNER" -q --no-tag -H 10.77.0.1 sh -c "$where; echo \"= \$SLURM_STEP_NODELIST\""
	[ "$(in_order)" = 'n1 n1' ]
	says '= n1'
	run -2 salloc -w n[1-2] -N2 -n2 "$RUNNER" -H n3 true
	says "'n3' is not a host of this Slurm job: it has n[1-2]"
	run -2 salloc -N2 -n3 "$RUNNER" -H n1:5,n2 true
	says "'n1' asks for 5 slots, but this Slurm job has 2 there"
	run -2 salloc -N2 -n3 "$RUNNER" -np 4 true
	says '-np 4 asks for 4 ranks, but SLURM_TASKS_PER_NODE gives 3 slots (n1:2 + n2:1)'
}

@test "arrays: each task is a job of its own" {
	run -0 sbatch -a 1-2 -N1 -n2 <<- E
		#!/bin/bash
		$RUNNER --no-tag sh -c 'echo "\$SLURM_ARRAY_TASK_ID: \$RANK of \$WORLD_SIZE"'
	E
	[ "$(sort <<< "$output")" = $'1: 0 of 2\n1: 1 of 2\n2: 0 of 2\n2: 1 of 2' ]
}

@test "jobs of several components: all their hosts" {
	run -0 salloc -N1 -n2 : -N2 -n3 "$RUNNER" --no-tag sh -c "$where"
	[ "$(in_order)" = 'n1 n1 n2 n2 n3' ]
	run -0 sbatch <<- E
		#!/bin/bash
		#SBATCH -N1 -n1
		#SBATCH hetjob
		#SBATCH -N2 -n4
		$RUNNER --no-tag sh -c '$where'
	E
	[ "$(in_order)" = 'n1 n2 n2 n2 n3' ]
	# Slurm 22.05 gives no host to two components; the unit test has such an environment.
}

@test "beside a step of the user's own, and inside a step of one task" {
	run -0 sbatch -N2 -n2 <<- E
		#!/bin/bash
		srun sleep 60 &
		until [ -n "\$(squeue -h -s -j \$SLURM_JOB_ID -o %i | grep '\.0\$')" ]; do sleep 0.1; done
		$RUNNER --no-tag sh -c '$where'
		kill %1
		wait
		exit 0
	E
	[ "$(in_order)" = 'n1 n2' ]
	run -0 salloc -N2 -n3 srun -N1 -n1 "$RUNNER" -v --no-tag sh -c "$where"
	says 'slots: one per GPU, else per core'
	# that of salloc's LaunchParameters=use_interactive_step
	run -0 salloc -N2 -n3 srun --interactive --preserve-env "$RUNNER" --no-tag sh -c "$where"
	[ "$(in_order)" = 'n1 n1 n2' ]
}

@test "srun with several tasks before runner is refused once; a shell with a terminal is not" {
	run -2 as alice n0 timeout -k 5 60 srun -Q -N2 -n2 "$RUNNER" true < /dev/null
	[ "$(grep -c 'SLURM_STEP_NUM_TASKS=2: srun has started 2 runners' <<< "$output")" = 1 ]
	[ "$(grep -c '^hint: ' <<< "$output")" = 1 ]
	run -2 sbatch -N2 -n4 <<- E
		#!/bin/bash
		srun $RUNNER true
	E
	[ "$(grep -c 'SLURM_STEP_NUM_TASKS=4' <<< "$output")" = 1 ]
	# In the terminal of task 0.  The shells of the other tasks end at once.
	printf '%s\n' "#!/bin/sh" "$RUNNER --no-tag sh -c '$where'" | script shell
	run -0 timeout -k 5 60 script -qec "$VCLUSTER exec -u alice n0 srun -Q -N2 -n3 --pty bash -c '[ \$SLURM_PROCID != 0 ] || sh /vc/t/shell'" /dev/null < /dev/null
	output=${output//$'\r'/}
	output=${output//^@/} # script(1) shows the end of its input
	[ "$(in_order)" = 'n1 n1 n2' ]
}

@test "one task beside 8 GPUs: a line names -ppn" {
	# vslurm's hosts have no GPUs, so this variable is made up.
	run -0 salloc -N2 --ntasks-per-node=1 -c8 env SLURM_GPUS_ON_NODE=8 "$RUNNER" --transport ssh true
	[ "$output" = 'runner: SLURM_TASKS_PER_NODE gives each host 1 rank beside 8 GPUs; for one rank per GPU, use -ppn 8' ]
}

@test "the Kubernetes MPI operator's host file: a name that comes late is looked up again" {
	printf 'n1 slots=1\nlate.job.ns.svc slots=1\n' | script hosts
	on n0 cp /etc/hosts /run/hosts
	for t in ssh openssh; do
		on n0 timeout -k 5 60 env KUBERNETES_SERVICE_HOST=10.0.0.1 OMPI_MCA_orte_default_hostfile=/vc/t/hosts \
			"$RUNNER" --transport $t --accept-new-hosts --no-tag sh -c "$where" < /dev/null > "$T/$t" 2>&1 3>&- &
		wait_for grep -q 'waiting for late.job.ns.svc' "$T/$t"
		on n0 sh -c 'echo "10.77.0.2 late.job.ns.svc" >> /etc/hosts'
		wait $!
		output=$(cat "$T/$t")
		on n0 sh -c 'cat /run/hosts > /etc/hosts'
		[ "$(in_order)" = 'n1 n2' ]
	done
}

@test "a name that only the configuration of ssh knows, and that comes late" {
	on n0 sh -c 'cp /etc/hosts /run/hosts; printf "%s\n" "Host box" "HostName late.job.ns.svc" > ~/.ssh/config'
	on n0 timeout -k 5 60 env KUBERNETES_SERVICE_HOST=10.0.0.1 "$RUNNER" --transport openssh --accept-new-hosts \
		--no-tag -H box:1 sh -c "$where" < /dev/null > "$T/out" 2>&1 3>&- &
	wait_for grep -q 'waiting for box' "$T/out"
	on n0 sh -c 'echo "10.77.0.2 late.job.ns.svc" >> /etc/hosts'
	wait $!
	output=$(cat "$T/out")
	on n0 sh -c 'cat /run/hosts > /etc/hosts; rm ~/.ssh/config'
	[ "$(in_order)" = n2 ]
}

@test "JAX without arguments, in a job of Slurm" {
	[ -e "$ROOT/build/venv-jax/installed" ] || skip "no JAX in build/venv-jax (make venv-jax)"
	script sum.py <<- 'P'
		import jax
		jax.distributed.initialize()
		from jax.experimental import multihost_utils
		ranks = multihost_utils.process_allgather(jax.numpy.array([1. + jax.process_index()]))
		print("process", jax.process_index(), "of", jax.process_count(), "sum", int(ranks.sum()), flush=True)
	P
	run -0 salloc -N2 -n2 "$RUNNER" -q --no-tag -x JAX_PLATFORMS=cpu "$ROOT/build/venv-jax/bin/python3" /vc/t/sum.py
	says 'process 0 of 2 sum 3' 'process 1 of 2 sum 3'
}
