#!/usr/bin/env bats
# limit_s: 300
# takes_s: 60
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the hosts' shells; bats sets output
# contrib/batch for Slurm, as users submit it: only the size is smaller.
load jobs
load batch

setup_file() {
	[ -n "$(why_no_slurm)" ] || "$ROOT/tests/cluster/vslurm" up 2 --gpus 2 --proctrack cgroup SchedulerType=sched/backfill \
		SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0 >&2
}

teardown_file() {
	cluster_down
}

setup() {
	local why
	why=$(why_no_slurm | head -1)
	[ -z "$why" ] || skip "$why"
	rm -rf "$STATE/t/job"
	batch_setup
}

teardown() {
	[ -n "$(why_no_slurm)" ] || no_job_left
}

why_no_slurm() {
	local program
	why_no_cluster
	[ "${SAN:-}" != 1 ] || echo "Python is built without the sanitizers"
	for program in munged slurmctld slurmd sbatch; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
			echo "no $program (tests/deps launchers installs it)"
			return
		}
	done
}

slurm() { as alice n0 timeout -k 5 60 "$@" < /dev/null; }

# SCRIPT is submitted with these options and arguments; $id is the job's.
submit() { # OPTION... SCRIPT ARGUMENT...
	id=$(slurm env -C /vc/t/job "${batch_env[@]}" sbatch --parsable -o out "$@") || { echo "$id"; return 1; }
}

# Of all components of the job; one that ends is COMPLETING for a moment.
state() { slurm scontrol show job "$id" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p' | sort -u; }

state_is() { [ "$(state)" = "$1" ]; }

ended() { ! state | grep -qE 'PENDING|CONFIGURING|RUNNING|COMPLETING'; }

# Within 60 s; if not, what the job has said.
ends_as() { # STATE
	wait_for ended || wait_for ended || { slurm squeue; job_file out; return 1; }
	state_is "$1" || {
		echo "ended as $(state)"
		job_file out
		slurm scontrol show job "$id"
		"$ROOT/tests/cluster/vslurm" log n0 n1
		return 1
	}
}

no_job_left() {
	slurm scancel -u alice || true
	wait_for no_queue
}

no_queue() { [ -z "$(slurm squeue -h)" ]; }

no_step() { ! on "$1" pgrep -x slurmstepd > /dev/null; }

few=(-N2 --ntasks-per-node=2 --gpus-per-node=2)

@test "slurm.sbatch: a rank for each task, without -H" {
	submit "${few[@]}" slurm.sbatch --steps 10
	ends_as COMPLETED
	said '4 ranks begin at step 0'
	[ "$(job_file checkpoint.json)" = "{\"step\": 10, \"total\": $(total 4 10)}" ]
}

@test "slurm.sbatch: near the time limit a checkpoint, the queue, and the rest" {
	submit "${few[@]}" slurm.sbatch --steps 200
	wait_for said '4 ranks begin at step 0'
	slurm scancel -b -s USR1 "$id"
	wait_for said 'after SIGTERM'
	stopped=$(step checkpoint.json)
	wait_for state_is PENDING
	# Slurm starts it again after two minutes.  By then, all of its first start has ended.
	wait_for no_step n1
	wait_for no_step n2
	# slurmd refuses credentials of the second in which it has revoked those of the first start
	sleep 2
	slurm scontrol update JobId="$id" StartTime=now
	ends_as COMPLETED
	said "4 ranks begin at step $stopped"
	[ "$(job_file checkpoint.json)" = "{\"step\": 200, \"total\": $(total 4 200)}" ]
}

@test "slurm.sbatch: after scancel a checkpoint, and no queue" {
	submit "${few[@]}" slurm.sbatch --steps 1000
	wait_for said '4 ranks begin at step 0'
	slurm scancel "$id"
	ends_as CANCELLED
	said 'after SIGTERM'
	[ "$(step checkpoint.json)" -lt 1000 ]
}

@test "slurm_array.sbatch: each element is a job of its own" {
	submit -a 0-2%2 "${few[@]}" -N1 slurm_array.sbatch --steps 5
	wait_for no_queue
	for k in 0 1 2; do
		[ "$(job_file checkpoint-$k.json)" = "{\"step\": 5, \"total\": $(total 2 5)}" ]
	done
}

@test "slurm_het.sbatch: rank 0 is on the first component" {
	sed -i 's/^#SBATCH --nodes=2/#SBATCH --nodes=1/; s/per-node=8/per-node=2/' "$STATE/t/job/slurm_het.sbatch"
	cat > "$STATE/t/job/feed.py" <<- 'P'
		import os, runpy
		print("rank", os.environ["RANK"], "feeds on", os.uname().nodename, flush=True)
		runpy.run_path("train.py", run_name="__main__")
	P
	submit slurm_het.sbatch --steps 5
	ends_as COMPLETED
	said "rank 0 feeds on $(slurm scontrol show job "$id" | sed -n '0,/ NodeList=/s/^ *NodeList=//p')"
	said '3 ranks begin at step 0'
}
