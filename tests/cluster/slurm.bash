# slurm.bash: what the suites with a real Slurm share.  `load slurm`, after `load jobs`.
#
#   slurm_up N [OPTION...]   for setup_file: the hosts, with Slurm, where that can be
#   need_slurm               first word of setup: skips where it cannot, with the reason
#   salloc OPTION... COMMAND...  by $user (alice) on the login host n0
#   submit OPTION...         the script at stdin as a batch job of $user; $id; it says in /vc/t/out
#   out_has COUNT PATTERN    lines that it has said
#   job_gone                 Slurm no longer knows it, or it has ended
#   job_is STATE             what scontrol says
#   job_ends_clean           it ends, and its steps, and leaves nothing on ${hosts[@]}
#   none_runs HOST PROGRAM   no process of that name
#   saving                   shell of a rank that says how often it got TERM, and takes a second to save
#   each_saved RANK...       each got TERM once, and had that second
#   say_slurm                after a test that failed: Slurm's nodes and jobs, and the ends of its logs
#   nobody_hears HOST...     the network of these hosts carries no variable and no output of ranks in
#                            clear; what it did carry is in /vc/t/heard.HOST
# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # $ is for the ranks' shells; bats sets output

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

slurm_up() { # N OPTION...
	[ -n "$(why_no_slurm)" ] || "$ROOT/tests/cluster/vslurm" up "$@" >&2
}

need_slurm() {
	local why
	why=$(why_no_slurm | head -1)
	[ -z "$why" ] || skip "$why"
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
}

salloc() {
	as "${user:-alice}" n0 timeout -k 5 60 sh -c 'cd /vc/t; exec salloc -Q "$@"' sh "$@" < /dev/null
}

submit() {
	script job
	rm -f "$STATE/t/out"
	id=$(as "${user:-alice}" n0 sh -c 'cd /vc/t; exec sbatch --parsable -o /vc/t/out "$@" /vc/t/job' sh "$@" < /dev/null)
}

out_has() { [ "$(grep -c "$2" "$STATE/t/out" 2> /dev/null)" = "$1" ]; }
job_gone() {
	local left
	left=$(on n0 squeue -h -j "$id" 2>&1) || [[ $left == *'Invalid job id'* ]] || return
	[ -z "$left" ] || [[ $left == *'Invalid job id'* ]]
}
job_is() { [[ $(on n0 scontrol show job "$id") == *JobState="$1 "* ]] || { on n0 scontrol show job "$id"; return 1; }; }
none_runs() { ! on "$1" pgrep -x "$2" > /dev/null; }

job_ends_clean() {
	local host
	wait_for job_gone
	all_clean "${hosts[@]}"
	for host in "${hosts[@]}"; do
		wait_for none_runs "$host" slurmstepd
	done
}

say_slurm() {
	[ -z "${BATS_TEST_COMPLETED-}" ] && [ -z "${BATS_TEST_SKIPPED-}" ] || return 0
	on n0 sinfo -N -o '%N %T %E' || return 0
	on n0 squeue
	on n0 scontrol show jobs | grep -E 'JobId|JobState'
	"$ROOT/tests/cluster/vslurm" log n0 "${hosts[@]}" | grep -v munge
}

teardown() {
	say_slurm
}

# One TERM more does not make a rank that has saved begin again, before it exits.
saving='n=0; trap "n=\$((n + 1)); echo TERM \$n >> /vc/t/said.\$RANK; sleep 1; trap : TERM; echo saved >> /vc/t/said.\$RANK; exit 0" TERM
	echo "up \$RANK"; while :; do sleep 0.1; done'

each_saved() {
	local rank
	for rank; do
		[ "$(cat "$STATE/t/said.$rank")" = $'TERM 1\nsaved' ] || { head "$STATE"/t/said.*; return 1; }
	done
}

nobody_hears() {
	local host sniffers=()
	for host; do
		on "$host" "$HELPERS/sniff" "/vc/t/heard.$host" > "$T/sniff.$host" 2>&1 3>&- &
		sniffers+=($!)
		wait_for grep -q 'sniff: ready' "$T/sniff.$host"
	done
	echo of-the-shell > "$STATE/t/secret" # sbatch sends the script in clear
	submit -N2 -n2 <<- E
		#!/bin/bash
		export SECRET=\$(cat /vc/t/secret)
		$RUNNER --no-tag sh -c 'echo "up \$RANK \$SECRET"'
	E
	wait_for job_gone
	[ "$(grep -c '^up [01] of-the-shell' "$STATE/t/out")" = 2 ] || { cat "$STATE/t/out"; return 1; }
	for host; do
		on "$host" pkill -TERM -x sniff
		[ -s "$STATE/t/heard.$host" ] || return 1
		grep -qa 'BERTH_STEP_OF_RUNNER' "$STATE/t/heard.$host" || return 1 # what srun sends is in clear
		run -1 grep -qaE 'of-the-shell|LOCAL_RANK|BERTH_JOB' "$STATE/t/heard.$host"
	done
	wait "${sniffers[@]}"
}
