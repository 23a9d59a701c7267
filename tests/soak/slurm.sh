#!/bin/bash
# slurm.sh: jobs whose agents srun starts, on a real Slurm of 4 hosts.  At a random moment a random
# program is killed, or the job is: while agents start, while ranks run, in a restart.  The job must
# end, and leave nothing on any host.  Prints a table of rounds that passed.
#
# ROUNDS  of each blow (10); SEED  where the random moments begin
# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2153,SC2154
set -u
tests=$(cd "$(dirname "$0")/.." && pwd)
export VC_NAME=${VC_NAME:-soakslurm} LC_ALL=C.UTF-8
. "$tests/cluster/rounds.bash"
outside_bats "$tests"
. "$tests/cluster/jobs.bash"
. "$tests/cluster/slurm.bash"
SEED=${SEED:-$RANDOM}
RANDOM=$SEED
hosts=(n1 n2 n3 n4) failed=0
declare -A passed
blows=(runner srun agent guardian agent-then-runner agent-then-job job job-kill job-term host-agents)

table() {
	local blow
	for blow in "${blows[@]}"; do
		printf '%-20s %d/%d\n' "$blow" "${passed[$blow]:-0}" "${ROUNDS:-10}"
	done
	echo "$failed failed"
}

trap 'table; cluster_down; rm -rf "$BATS_FILE_TMPDIR"' EXIT
trap 'exit 130' INT TERM

fresh() {
	cluster_down
	slurm_up 4 --proctrack cgroup SchedulerType=sched/backfill \
		SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0 > /dev/null 2>&1 || exit
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	mark_clean "${hosts[@]}"
}

one_of() { # HOST guardian|agent: kills it
	# shellcheck disable=SC2046 # a number
	on "$1" kill -KILL $(agents "$1" | if [ "$2" = guardian ]; then head -1; else tail -1; fi) 2> /dev/null
}

strike() { # BLOW
	local victim=n$((RANDOM % 3 + 2))
	case $1 in
	runner | srun) on n1 pkill -KILL -x "$1" ;;
	agent | guardian) one_of $victim "$1" ;;
	host-agents) on $victim pkill -KILL -x berth-agent ;;
	agent-then-*)
		on $victim pkill -KILL -x berth-agent
		sleep "0.$(printf %03d $((RANDOM % 600)))"
		if [ "$1" = agent-then-runner ]; then on n1 pkill -KILL -x runner; else on n0 scancel "$id"; fi ;;
	job) on n0 scancel "$id" ;;
	job-kill) on n0 scancel -s KILL "$id" ;;
	job-term) on n0 scancel -s TERM "$id" ;;
	esac
}

job_runs() { [ "$(on n0 squeue -h -j "$id" -o %T)" = RUNNING ]; }

# What agents and guardians that are killed at once leave goes with the next job.
next_job_clears() {
	on n0 scancel "$id" 2> /dev/null # without its srun the job goes on
	wait_for job_gone || return
	on n0 timeout 60 salloc -Q -N4 --ntasks-per-node=1 "$RUNNER" -q sh -c true < /dev/null
}

round() { # BLOW
	submit -N4 --ntasks-per-node=1 <<- J
		#!/bin/bash
		exec $RUNNER --no-tag --restarts 1 -np 3 sh -c 'echo "up \$RANK"; exec sleep 100'
	J
	[ -n "$id" ] || return
	wait_for job_runs || return
	sleep "$((RANDOM % 2)).$(printf %03d $((RANDOM % 1000)))"
	strike "$1"
	sleep "0.$(printf %03d $((RANDOM % 600)))"
	next_job_clears || { echo "the next job fails"; return 1; }
	job_ends_clean
}

echo "SEED=$SEED"
fresh
for ((i = 0; i < ${ROUNDS:-10}; i++)); do
	for blow in "${blows[@]}"; do
		if round "$blow" > "$T/said" 2>&1; then
			passed[$blow]=$((${passed[$blow]:-0} + 1))
		else
			failed=$((failed + 1))
			echo "FAIL $blow, round $i (SEED=$SEED):"
			sed 's/^/  /' "$T/said" | head -30
			sed 's/^/  out: /' "$STATE/t/out" 2> /dev/null | head -20
			fresh
		fi
	done
done
[ "$failed" = 0 ]
