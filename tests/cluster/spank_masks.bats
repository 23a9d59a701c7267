#!/usr/bin/env bats
# limit_s: 400
# takes_s: 60
# all: starts Slurm
# shellcheck disable=SC2001,SC2016,SC2030,SC2031,SC2154 # $ is for the tasks' shells; bats sets output
# srun --berth, where Slurm chooses a task's CPUs or GPUs itself: --cpu-bind, --gpus-per-task,
# --gpu-bind, cgroups.  TaskPluginParam has a binding, which is not the user's.
load jobs
load spank

setup_file() {
	[ -n "$(why_no_slurm)" ] && return
	two_sockets_up 1 TaskPluginParam=autobind=cores
}

teardown_file() {
	cluster_down
}

setup() {
	need_slurm
	use_stack
	tools
}

tools() {
	script show <<-'E'
		#!/bin/sh
		for i in 0 1 2 3; do [ ! -w /dev/nvidia$i ] || open="$open$i"; done
		echo "$SLURM_PROCID: $(taskset -pc $$ | sed 's/.*: //') berth $BERTH_CPUS numa $BERTH_NUMA threads $OMP_NUM_THREADS gpu ${CUDA_VISIBLE_DEVICES-none} $BERTH_GPU${OPENS:+ opens $open}"
	E
	chmod 755 "$STATE/t/show"
}

show() { srun -N1 "$@" /vc/t/show | sort; }

# The masks alone.
masks() { sed 's/ berth .*//' <<< "$1"; }

# Of four tasks that have the masks of KIND, on the sockets in turn.
turns() { show -n4 -c12 -m block:cyclic --gpus-per-node=8 --cpu-bind="$1" "${@:2}"; }

is() { # LINE...
	[ "$output" = "$(printf '%s\n' "$@")" ] || { echo "$output"; echo "not:"; printf '%s\n' "$@"; return 1; }
}

@test "--cpu-bind=cores, threads: masks stay, and each task has a GPU of its socket" {
	local kind
	for kind in cores threads verbose,cores; do
		run -0 turns "$kind" --berth
		output=$(grep -v ^cpu-bind <<< "$output") is \
			'0: 0-5,48-53 berth 0-5,48-53 numa 0 threads 6 gpu 0 0000:10:00.0' \
			'1: 24-29,72-77 berth 24-29,72-77 numa 1 threads 6 gpu 4 0000:3c:00.0' \
			'2: 6-11,54-59 berth 6-11,54-59 numa 0 threads 6 gpu 1 0000:1b:00.0' \
			'3: 30-35,78-83 berth 30-35,78-83 numa 1 threads 6 gpu 5 0000:47:00.0'
	done
}

@test "--cpu-bind=sockets: tasks that share a mask share its cores" {
	run -0 turns sockets --berth
	is '0: 0-11,48-59 berth 0-11,48-59 numa 0 threads 6 gpu 0 0000:10:00.0' \
		'1: 24-35,72-83 berth 24-35,72-83 numa 1 threads 6 gpu 4 0000:3c:00.0' \
		'2: 0-11,48-59 berth 0-11,48-59 numa 0 threads 6 gpu 1 0000:1b:00.0' \
		'3: 24-35,72-83 berth 24-35,72-83 numa 1 threads 6 gpu 5 0000:47:00.0'
}

@test "--cpu-bind=rank, of which Slurm has no list of masks" {
	run -0 show -n32 -c3 --exclusive --gpus-per-node=8 --cpu-bind=rank --berth
	says '0: 0 berth 0 numa 0 threads 1 gpu 0 ' '25: 25 berth 25 numa 1 threads 1 gpu '
	# four tasks each; of the 24 on the first socket, 8 must go to the second's GPUs
	[ "$(grep -o 'gpu [0-7]' <<< "$output" | sort | uniq -c | grep -c ' 4 gpu')" = 8 ]
	[ "$(grep 'numa 1' <<< "$output" | grep -c 'gpu [4-7]')" = 8 ]
}

@test "--cpu-bind=none: no task is bound, and each has a GPU near the step's CPUs" {
	run -0 show -n2 -c24 --gpus-per-node=8 -m block:block --cpu-bind=none
	masks=$(masks "$output")
	run -0 show -n2 -c24 --gpus-per-node=8 -m block:block --cpu-bind=none --berth
	[ "$(masks "$output")" = "$masks" ]
	[ "$(grep -o 'gpu [0-7]' <<< "$output" | sort -u | wc -l)" = 2 ]
}

@test "--hint=nomultithread is a binding of the user's" {
	run -0 show -n2 -c24 --gpus-per-node=8 --hint=nomultithread --berth
	is '0: 0-23 berth 0-23 numa 0 threads 8 gpu 0 0000:10:00.0' '1: 24-47 berth 24-47 numa 1 threads 8 gpu 4 0000:3c:00.0'
}

@test "Slurm's own binding, without the user's, gives way" {
	run -0 show -n2 -c4 --gpus-per-node=1
	masks=$(masks "$output")
	[ "$masks" = $'0: 0,1,48,49\n1: 2,3,50,51' ]
	run -0 show -n4 -c4 --gpus-per-node=4 --berth=bind-to=core:1
	is '0: 0,48 berth 0,48 numa 0 threads 1 gpu 0 0000:10:00.0' \
		'1: 1,49 berth 1,49 numa 0 threads 1 gpu 1 0000:1b:00.0' \
		'2: 2,50 berth 2,50 numa 0 threads 1 gpu 2 0000:26:00.0' \
		'3: 3,51 berth 3,51 numa 0 threads 1 gpu 3 0000:31:00.0'
}

@test "without ConstrainCores a task stays on the cores that its step has" {
	run -0 show -n2 -c4 --gpus-per-node=2 --berth
	is '0: 0,1,48,49 berth 0-1,48-49 numa 0 threads 2 gpu 0 0000:10:00.0' \
		'1: 2,3,50,51 berth 2-3,50-51 numa 0 threads 2 gpu 1 0000:1b:00.0'
}

@test "--gpus-per-task=2: one GPU of the task's own, and the CPUs near it; node: both" {
	run -0 show -n2 -c48 --gpus-per-task=2 --berth=report
	says 'one of the 2 that Slurm gave it (--gpus-per-task)' \
		'0: 0-11,48-59 berth 0-11,48-59 numa 0 threads 8 gpu 0 0000:10:00.0' \
		'1: 12-23,60-71 berth 12-23,60-71 numa 0 threads 8 gpu 2 0000:26:00.0'
	run -0 show -n2 -c48 --gpus-per-task=2 --berth=gpu-visible=node
	says 'gpu 0,1 0000:10:00.0' 'gpu 2,3 0000:26:00.0'
}

@test "--gpu-bind: map_gpu, mask_gpu, closest, none" {
	run -0 show -n2 -c48 --exclusive --gpus-per-node=8 --gpu-bind=map_gpu:5,2 --berth
	is '0: 24-47,72-95 berth 24-47,72-95 numa 1 threads 8 gpu 5 0000:47:00.0' \
		'1: 0-23,48-71 berth 0-23,48-71 numa 0 threads 8 gpu 2 0000:26:00.0'
	# the first task leaves GPU 0 to the second, which may use no other one
	run -0 show -n2 -c48 --exclusive --gpus-per-node=8 --gpu-bind=mask_gpu:0x3,0x1 --berth
	says 'gpu 1 0000:1b:00.0' 'gpu 0 0000:10:00.0'
	run -0 show -n4 -c24 --exclusive -m block:cyclic --gpus-per-node=8 --gpu-bind=closest --cpu-bind=cores --berth
	[ "$(grep -o 'numa.*gpu [0-7]' <<< "$output" | sed 's/threads . //')" = $'numa 0 gpu 0\nnuma 1 gpu 4\nnuma 0 gpu 1\nnuma 1 gpu 5' ]
	run -0 show -n2 -c48 --exclusive --gpus-per-node=8 --gpu-bind=none --berth
	says 'gpu 0 0000:10:00.0' 'gpu 1 0000:1b:00.0'
}

@test "the second answer never comes, or is none: one warning; with strict no task runs" {
	on n1 sh -c 'cat > /usr/lib/berth/twice; chmod 755 /usr/lib/berth/twice' <<-'E'
		#!/bin/sh
		case $(cat) in
		*strange*'bind-list 0x'*) printf 'berth-step 1\nset LD_PRELOAD=x\nend\n' ;;
		*'bind-list 0x'*) sleep 1000 ;;
		*) printf 'berth-step 1\nmasks\ntask 0\nset BERTH_CPUS=7\ntask 1\nend\n' ;;
		esac
	E
	use_stack agent=/usr/lib/berth/twice
	run -0 show -n2 -c24 --cpu-bind=cores --berth
	[ "$(grep -c 'berth: warning: /usr/lib/berth/twice: it did not answer in time; the tasks run' <<< "$output")" = 1 ]
	[ "$(grep -c 'berth  numa' <<< "$output")" = 2 ]
	run -0 show -n2 -c24 --cpu-bind=cores --berth=strange
	[ "$(grep -c 'berth: warning: /usr/lib/berth/twice: its answer is not valid; the tasks run' <<< "$output")" = 1 ]
	[ "$(grep -c 'berth  numa' <<< "$output")" = 2 ]
	run -240 srun -N1 -n2 -c24 --cpu-bind=cores --berth=strict /vc/t/show
	says 'it did not answer in time; the tasks do not run'
	silent_on ' numa '
}

@test "a task that does not begin: after 5 s the others run as Slurm binds them, and so does that one" {
	gcc -shared -fPIC -o "$STATE/t/late.so" -xc - <<-'E'
		#include <slurm/spank.h>
		#include <unistd.h>
		SPANK_PLUGIN(late, 1)
		int slurm_spank_task_init(spank_t sp, int ac, char **av)
		{
			int local = 0;

			spank_get_item(sp, S_TASK_ID, &local);
			while (local && access("/vc/t/began", F_OK))
				usleep(50000);
			return 0;
		}
	E
	on n1 sed -i '1i required /vc/t/late.so' /etc/slurm/plugstack.conf
	script begin <<-'E'
		#!/bin/sh
		touch /vc/t/began
		/vc/t/show
	E
	chmod 755 "$STATE/t/begin"
	run -0 srun -N1 -n2 -c24 --cpu-bind=cores --berth /vc/t/begin
	[ "$(grep -c 'some tasks did not begin in time; the tasks run as Slurm binds them' <<< "$output")" = 1 ]
	[ "$(grep -c 'berth  numa' <<< "$output")" = 2 ]
}

@test "cgroups of devices: one GPU of those that a task can open, as CUDA counts there" {
	cluster_down
	plain_up 1 --gpus 4 --constrain-devices
	tools
	run -0 show --export=ALL,OPENS=1 -n2 --gpus-per-task=2 --berth=report
	says 'rank 0 on n1' 'one of the 2 that Slurm gave it' 'gpu 0 0000:10:00.0 opens 01' 'gpu 0 0000:12:00.0 opens 23'
	silent_on warning
	run -0 show --export=ALL,OPENS=1 -n2 --gpus-per-task=2 --berth=gpu-visible=node
	says 'gpu 0,1 0000:10:00.0 opens 01' 'gpu 0,1 0000:12:00.0 opens 23'
	run -0 show --export=ALL,OPENS=1 -n2 --gpus=4 --gpu-bind=map_gpu:3,1 --berth
	says 'gpu 0 0000:13:00.0 opens 3' 'gpu 0 0000:11:00.0 opens 1'
	run -0 show --export=ALL,OPENS=1 -n1 --gpus-per-task=2 --berth
	says 'gpu 0 0000:10:00.0 opens 01'
}

@test "cgroups of cores: the placement stays in the step's" {
	local task
	for task in cgroup cgroup,affinity; do
		cluster_down
		plain_up 1 --sockets 1 --cores 2 --threads 1 --constrain-cores --task $task
		tools
		run -0 show -n2 --berth
		is '0: 0 berth 0 numa 0 threads 1 gpu none ' '1: 1 berth 1 numa 0 threads 1 gpu none '
		run -0 show -n1 -c2 --berth
		is '0: 0,1 berth 0-1 numa 0 threads 2 gpu none '
		# two steps at one time, each with one of the cores
		script steps <<-'E'
			#!/bin/sh
			cd /vc/t
			srun -n1 -c1 --exact --berth sh -c '/vc/t/show; touch one; until [ -e two ]; do sleep 0.05; done' &
			srun -n1 -c1 --exact --berth sh -c '/vc/t/show; touch two; until [ -e one ]; do sleep 0.05; done' &
			wait
		E
		chmod 755 "$STATE/t/steps"
		run -0 as alice n0 timeout 60 salloc -Q -N1 -n2 /vc/t/steps
		output=$(sort <<< "$output") is '0: 0 berth 0 numa 0 threads 1 gpu none ' '0: 1 berth 1 numa 0 threads 1 gpu none '
	done
}
