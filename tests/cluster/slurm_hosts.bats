#!/usr/bin/env bats
# limit_s: 120
# takes_s: 15
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the hosts' shells; bats sets output
# The hosts that vslurm makes: Slurm and the agent agree on GPUs and CPUs there.
load jobs

setup() {
	local why
	why=$(why_no_slurm | head -1)
	[ -z "$why" ] || skip "$why"
}

teardown() {
	cluster_down
}

why_no_slurm() {
	local program
	why_no_cluster
	for program in munged slurmctld slurmd srun hwloc-calc; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
			echo "no $program (tests/deps launchers check installs it)"
			return
		}
	done
}

up() { "$ROOT/tests/cluster/vslurm" up "$@" > /dev/null; }

srun() { as alice n0 timeout -k 5 60 srun "$@" < /dev/null; }

# Another job has the first two GPUs of n1.
take_two() {
	as alice n0 sbatch -Q -w n1 --gpus-per-node=2 -o /dev/null --wrap 'sleep 100' > /dev/null
	wait_for running
}

running() { as alice n0 squeue -h -t running | grep -q .; }

# In a step: which GPUs the step has, which device files can be read, and which GPUs the agent
# finds, which does not know of the job.
look='echo "$SLURM_STEP_GPUS|$CUDA_VISIBLE_DEVICES"; cd /dev; for f in nvidia*; do [ ! -r $f ] || echo $f; done | xargs
	env -i $CUDA "$0" --plan -np 2 2>&1 | grep -o "[0-9] 0000:[^ ]*"'

@test "with the device cgroup a job sees its GPUs alone, and numbers them from 0" {
	up 1 --gpus 4 --constrain-devices
	take_two
	run -0 srun --gpus=2 sh -c "$look" "$RUNNER"
	[ "$output" = $'2,3|0,1\nnvidia2 nvidia3\n0 0000:12:00.0\n1 0000:13:00.0' ]
}

@test "without it CUDA_VISIBLE_DEVICES alone tells" {
	up 1 --gpus 4
	take_two
	run -0 srun --gpus=2 sh -c "CUDA=CUDA_VISIBLE_DEVICES=\$CUDA_VISIBLE_DEVICES; $look" "$RUNNER"
	[ "$output" = $'2,3|2,3\nnvidia0 nvidia1 nvidia2 nvidia3\n2 0000:12:00.0\n3 0000:13:00.0' ]
}

@test "with --xml: GPUs and cores of the file, and masks that are read back" {
	/usr/bin/python3 "$ROOT/tests/machines/mkmachine.py" "$T" two-sockets-8gpu
	up 1 --xml "$T/two-sockets-8gpu.xml"
	run -0 srun --gpus-per-task=1 -n8 -c12 sh -c 'taskset -pc $$ | sed "s/.*: /$SLURM_PROCID /"'
	[ "$(sort <<< "$output" | cut -d' ' -f2 | sort -u | wc -l)" = 8 ]
	run -0 srun -n1 -c96 --gpus=8 --export=NONE /bin/sh -c 'exec /usr/bin/env -i HWLOC_XMLFILE="$HWLOC_XMLFILE" \
		HWLOC_THISSYSTEM="$HWLOC_THISSYSTEM" "$0" --plan -np 8' "$RUNNER"
	[ "$(grep -c ' 6 of 6 cores' <<< "$output")" = 8 ]
}

@test "down: nothing is left of a job that runs, and no cgroup" {
	up 2 --gpus 2 --constrain-devices
	as alice n0 sbatch -Q -N2 --gpus-per-node=1 -o /dev/null --wrap 'srun sleep 1000' > /dev/null
	wait_for on n1 pgrep -x sleep
	"$ROOT/tests/cluster/vslurm" down
	[ -z "$(find /sys/fs/cgroup -path "*/${VC_NAME:-vc}*" -print -quit)" ]
	[ ! -e "$STATE" ]
}
