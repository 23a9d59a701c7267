#!/usr/bin/env bats
# limit_s: 180
# takes_s: 15
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the stand-ins; bats sets output
# What srun is asked for, and what becomes of a step that Slurm refuses.  Stand-ins speak for srun
# and scontrol: a real Slurm does not refuse when it should, and no release after 22.05 is here.
# tests/cluster/slurm_srun.bats has a real srun.
load common

setup() {
	mkdir "$T/bin"
	export PATH=$T/bin:$PATH
	export SLURM_JOB_ID=77 SLURM_NTASKS=1
	job n1
	scontrol_says 'slurm-wlm 22.05.8' 'Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:3(IDX:0-2)'
}

job() { # NODES
	export SLURM_JOB_NODELIST=$1 SLURM_TASKS_PER_NODE='1(x2)' SLURM_JOB_CPUS_PER_NODE='1(x2)'
	[ "$1" != n1 ] || export SLURM_TASKS_PER_NODE=1 SLURM_JOB_CPUS_PER_NODE=1
}

# Both files must be there: scontrol has no environment of the test.
scontrol_says() { # VERSION DETAILS
	printf '%s\n' "$1" > "$T/version"
	printf '     %s\n' "$2" > "$T/details"
	stand_in scontrol '
		echo "scontrol $*" >> $T/calls
		case $* in
		--version) cat $T/version ;;
		"show job --details 77") cat $T/details ;;
		*) exit 1 ;;
		esac'
}

stand_in() { # NAME SCRIPT: srun and scontrol have few variables
	printf '%s\n' '#!/bin/sh' "T='$T'" "$2" > "$T/bin/$1"
	chmod +x "$T/bin/$1"
}

# An srun that refuses the first N steps and then starts their agent, here.
srun_refuses() { # N
	echo "$1" > "$T/refuse"
	stand_in srun '
		echo "srun $*" >> $T/calls
		turn=$(grep -c ^srun $T/calls)
		if [ $turn -le "$(cat $T/refuse)" ]; then
			echo "srun: error: Unable to create step: Unspecified error $turn" >&2
			exit 1
		fi
		while [ "${1#--}" != "$1" ]; do
			case $1 in --bcast=*) copy=${1#*=} ;; esac
			shift
		done
		if [ "${copy-}" ]; then
			cp "$1" "$copy" && shift
			set -- "$copy" "$@"
		fi
		SLURMD_NODENAME=n1 exec "$@"'
}

sruns() { grep -c '^srun' "$T/calls"; }

@test "GPUs that differ: a step that Slurm refuses is tried 4 times more" {
	export SLURM_GPUS=3
	srun_refuses 4
	run -0 timeout 60 "$RUNNER" --no-tag echo started
	says started
	silent_on 'Unspecified error'
	[ "$(sruns)" -ge 5 ]
	[ "$(grep '^srun' "$T/calls" | head -5 | grep -c -- '--nodelist=n1 --gpus=3')" = 5 ]
}

@test "the tries are used up: srun's own words" {
	export SLURM_GPUS=3
	srun_refuses 99
	run -240 timeout 60 "$RUNNER" true
	[ "$(sruns)" = 5 ]
	says 'n1: srun ended with status 1 before the agent called: ' 'Unable to create step: Unspecified error 5'
	hinted
}

@test "GPUs that do not differ: a refused step is not tried again, and scontrol is not asked" {
	export SLURM_GPUS_ON_NODE=2
	srun_refuses 99
	run -240 timeout 60 "$RUNNER" true
	[ "$(cut -d' ' -f1 "$T/calls")" = srun ]
	grep -q -- '--gpus-per-node=2' "$T/calls"
	says 'Unspecified error 1'
}

@test "GPUs that differ: a step for each host before Slurm 23.11, one step from then on" {
	export SLURM_GPUS=3
	job 'n[1-2]'
	srun_refuses 99
	details='Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)'
	for version in 'slurm 23.02.7' '' 'no version'; do
		scontrol_says "$version" "$details"
		run -240 timeout 60 "$RUNNER" true
		grep -q -- '--nodes=1 .*--nodelist=n1 --gpus=1' "$T/calls"
		grep -q -- '--nodes=1 .*--nodelist=n2 --gpus=1' "$T/calls"
		[ "$(grep -c external "$T/calls")" = 0 ]
		rm "$T/calls"
	done
	for version in 'slurm 23.11.0' 'slurm-wlm 24.05.1'; do
		scontrol_says "$version" "$details"
		run -240 timeout 60 "$RUNNER" true
		says 'n[1-2]: srun ended with status 1'
		[ "$(cut -d' ' -f1-2 "$T/calls")" = "scontrol --version"$'\n'"srun --overlap" ]
		grep -q -- '--nodes=2 --ntasks=2 --nodelist=n1,n2 --external-launcher ' "$T/calls"
		[ "$(grep -c -- --gpus "$T/calls")" = 0 ]
		rm "$T/calls"
	done
}

@test "GPUs that differ: the one step of Slurm 23.11 starts agents" {
	export SLURM_GPUS=3
	scontrol_says 'slurm 23.11.1' ''
	srun_refuses 0
	run -0 timeout 60 "$RUNNER" --no-tag echo started
	says started
	grep -q -- '--external-launcher ' "$T/calls"
}
