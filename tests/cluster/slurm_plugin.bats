#!/usr/bin/env bats
# limit_s: 420
# takes_s: 80
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the tasks' shells; bats sets output
# Slurm's plugin on four hosts with unequal numbers of tasks, as the site's default, and
# contrib/batch's script for it.
load jobs
load batch
load slurm

setup_file() {
	local host
	[ -n "$(why_no_plugin)" ] && return
	make -s -C "$ROOT" BUILD="$BUILD" spank >&2
	echo "optional $BUILD/lib/berth_spank.so agent=/usr/lib/berth/berth-agent default=on" > "$BATS_FILE_TMPDIR/plugstack.conf"
	slurm_up 4 --gpus 2 --proctrack cgroup --plugstack "$BATS_FILE_TMPDIR/plugstack.conf" SchedulerType=sched/backfill \
		SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
	for host in n1 n2 n3 n4; do
		on "$host" install -D -m 755 "$AGENT" /usr/lib/berth/berth-agent
	done
}

teardown_file() {
	cluster_down
}

setup() {
	local why
	why=$(why_no_plugin | head -1)
	[ -z "$why" ] || skip "$why"
	need_slurm
	hosts=(n1 n2 n3 n4)
	rm -rf "$STATE"/t/*
	mark_clean "${hosts[@]}"
	script show <<-'E'
		#!/bin/sh
		echo "$RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE = $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS at $MASTER_ADDR:$MASTER_PORT on $(uname -n)"
	E
	chmod 755 "$STATE/t/show"
}

why_no_plugin() {
	why_no_slurm
	[ "${SAN:-}" != 1 ] || echo "slurmstepd does not load the sanitizers"
	[ -e /usr/include/slurm/spank.h ] || echo "no slurm/spank.h (tests/deps launchers installs it)"
}

srun() { as "${user:-alice}" n0 timeout -k 5 60 srun "$@" < /dev/null 2>&1; }

# What show said for tasks of one step: each has Slurm's numbers, all have one address.
agree() { # TASKS
	local equal sized
	equal=$(grep -cE '^([0-9]+ [0-9]+ [0-9]+ [0-9]+) = \1 at n[1-4]:[0-9]+ on n[1-4]$' <<< "$output")
	sized=$(grep -c " $1 at " <<< "$output")
	[ "$equal $sized $(addresses | wc -l)" = "$1 $1 1" ] || { echo "$output"; return 1; }
}

addresses() { sed -n 's/.* at \([^ ]*\) on .*/\1/p' <<< "$output" | sort -u; }

# ---- tasks ----

@test "unequal numbers of tasks, in blocks, in cycles and in planes: RANK and the like are Slurm's numbers" {
	local how
	for how in block cyclic plane=2; do
		run -0 srun -N4 -n7 -m $how /vc/t/show
		agree 7
		[ "$(grep -oE 'on n[1-4]$' <<< "$output" | sort | uniq -c | xargs)" = '4 on n1 1 on n2 1 on n3 1 on n4' ]
		[[ $(addresses) == n1:* ]]
	done
}

@test "elements of an array that run at once on the same hosts have ports of their own" {
	submit -a 1-3 -N4 -n5 -o /vc/t/out.%a <<- 'E'
		#!/bin/bash
		touch /vc/t/runs.$SLURM_ARRAY_TASK_ID
		until [ -e /vc/t/runs.1 ] && [ -e /vc/t/runs.2 ] && [ -e /vc/t/runs.3 ]; do sleep 0.1; done
		srun /vc/t/show
	E
	wait_for job_gone
	for k in 1 2 3; do
		run -0 cat "$STATE/t/out.$k"
		agree 5
		addresses >> "$STATE/t/addresses"
	done
	[ "$(sort -u "$STATE/t/addresses" | wc -l)" = 3 ]
}

@test "libberth by --mpi=pmix; without it, the words name srun; as root and as another user" {
	srun --mpi=list | grep -q pmix || skip 'Slurm has no PMIx'
	for user in root alice; do
		run -0 pmix_again srun -N4 -n7 --mpi=pmix "$HELPERS/joins" way join world leave
		[ "$(grep -cx PMIx <<< "$output")" = 7 ]
		[ "$(grep -c '^rank [0-6] of 7, local .* on n1 n1 n1 n1 n2 n3 n4, ' <<< "$output")" = 7 ]
	done
	run -0 srun -N4 -n4 "$HELPERS/joins" way
	[ "$(grep -c 'says that srun started 4 processes.*srun --mpi=pmix' <<< "$output")" = 4 ]
}

# ---- runner ----

# What a rank of runner's says of its agent.
of_agent='agent=$(pgrep -o -x berth-agent)
	echo "agent of $RANK on $(uname -n): $(tr "\0" "\n" < /proc/$agent/environ | grep -cE "^(RANK|MASTER_ADDR|BERTH_CPUS)=") CPUs $(taskset -pc $agent | sed "s/.*: //")"'

@test "beside a step with the plugin, runner's agents are left alone; as root and as another user" {
	local all
	for user in root alice; do
		all=$(on n1 taskset -pc 1 | sed 's/.*: //')
		submit -N4 -n7 --gpus-per-node=2 <<- E
			#!/bin/bash
			srun --overlap sh -c '/vc/t/show; until [ -e /vc/t/go ]; do sleep 0.1; done' &
			$RUNNER -q --no-tag sh -c '$of_agent; echo "rank \$RANK on \$(uname -n): \$WORLD_SIZE \$CUDA_VISIBLE_DEVICES"'
			touch /vc/t/go
			wait
		E
		wait_for job_gone
		run -0 cat "$STATE/t/out"
		[ "$(grep -cE "^agent of [0-6] on n[1-4]: 0 CPUs $all\$" <<< "$output")" = 7 ] || { echo "$output"; return 1; }
		[ "$(grep -cE '^rank ([0-3] on n1|4 on n2|5 on n3|6 on n4): 7 [01]$' <<< "$output")" = 7 ]
		agree 7
		rm -f "$STATE/t/go"
	done
	job_ends_clean
}

@test "sbatch with unequal numbers of tasks: each host has its own; all sum up" {
	submit -N4 -n7 <<- E
		#!/bin/bash
		exec $RUNNER -q --no-tag sh -c 'echo "\$RANK on \$(uname -n): \$LOCAL_RANK of \$LOCAL_WORLD_SIZE"; exec "$HELPERS/joins" join world leave'
	E
	wait_for job_gone
	run -0 cat "$STATE/t/out"
	[ "$(grep -E '^[0-6] on' <<< "$output" | sort | xargs)" = '0 on n1: 0 of 4 1 on n1: 1 of 4 2 on n1: 2 of 4 3 on n1: 3 of 4 4 on n2: 0 of 1 5 on n3: 0 of 1 6 on n4: 0 of 1' ]
	[ "$(grep -c '^rank [0-6] of 7, local .* on n1 n1 n1 n1 n2 n3 n4, ' <<< "$output")" = 7 ]
	job_ends_clean
}

# ---- contrib/batch/slurm_plugin.sbatch ----

# The script is submitted with these options and arguments; $id is the job's.
submit_plugin() { # OPTION... ARGUMENT...
	batch_setup
	id=$(as alice n0 timeout -k 5 60 env -C /vc/t/job "${batch_env[@]}" sbatch --parsable -o out -N2 --ntasks-per-node=2 \
		--gpus-per-node=2 slurm_plugin.sbatch "$@" < /dev/null)
}

@test "slurm_plugin.sbatch: a task for each rank, and a line for each" {
	srun --mpi=list | grep -q pmix || skip 'Slurm has no PMIx'
	submit_plugin --steps 10
	wait_for job_gone
	job_is COMPLETED
	said '4 ranks begin at step 0'
	[ "$(job_file out | grep -c 'berth: rank [0-3] on n[12]: cpus .*: GPU ')" = 4 ]
	[ "$(job_file checkpoint.json)" = "{\"step\": 10, \"total\": $(total 4 10)}" ]
}

# Slurm looks every 30 s whether a job is so near its limit.
@test "slurm_plugin.sbatch: near the time limit SIGTERM to each rank, and a checkpoint" {
	local stopped
	srun --mpi=list | grep -q pmix || skip 'Slurm has no PMIx'
	submit_plugin --steps 10000
	wait_for said '4 ranks begin at step 0'
	on n0 scontrol update JobId="$id" EndTime=now+110
	wait_for job_gone || wait_for job_gone || { job_file out; return 1; }
	job_is COMPLETED
	said 'after SIGTERM'
	stopped=$(step checkpoint.json)
	[ "$stopped" -lt 10000 ]
	[ "$(job_file checkpoint.json)" = "{\"step\": $stopped, \"total\": $(total 4 "$stopped")}" ]
	said "the checkpoint is at step $stopped after SIGTERM, total $(total 4 "$stopped")"
}
