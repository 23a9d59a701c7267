#!/usr/bin/env bats
# limit_s: 200
# takes_s: 30
# all: starts Grid Engine
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the hosts' shells; bats sets output
# runner in jobs of Grid Engine, and contrib/batch/sge.sh.
load jobs
load batch

setup_file() {
	[ -n "$(why_no_sge)" ] || "$ROOT/tests/cluster/vsge" up 2 4 >&2
}

teardown_file() {
	cluster_down
}

setup() {
	local why
	why=$(why_no_sge | head -1)
	[ -z "$why" ] || skip "$why"
	rm -rf "$STATE/t/job"
	batch_setup
}

why_no_sge() {
	local program
	why_no_cluster
	for program in sge_qmaster sge_execd qsub; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
			echo "no $program (tests/deps gridengine installs it)"
			return
		}
	done
}

sge() { as alice n0 timeout -k 5 60 "$@" < /dev/null; }

# SCRIPT is submitted with these options and arguments.  Without -sync $id is the job's.
submit() { # OPTION... SCRIPT ARGUMENT...
	sge env -C /vc/t/job "${batch_env[@]}" qsub -V -cwd -o out "$@"
}

no_queue() { [ -z "$(sge qstat)" ]; }

@test "runner in a parallel environment: its hosts and slots, without -H" {
	printf '%s\n' 'cut -d" " -f1,2 "$PE_HOSTFILE"; runner --no-tag sh -c '\''echo $RANK of $WORLD_SIZE on $(hostname)'\' > "$STATE/t/job/who.sh"
	run -0 submit -sync y -pe mpi 6 who.sh
	mapfile -t lines < "$STATE/t/job/out" # Grid Engine has chosen which host comes first
	a=${lines[0]% *} b=${lines[1]% *}
	[ "$(sed -n '1,2p' "$STATE/t/job/out" | sort)" = $'n1 3\nn2 3' ]
	[ "$(sed '1,2d' "$STATE/t/job/out" | sort)" = "$(printf '%s\n' "0 of 6 on $a" "1 of 6 on $a" "2 of 6 on $a" \
		"3 of 6 on $b" "4 of 6 on $b" "5 of 6 on $b")" ] || { job_file out; job_file who.sh.e*; false; }
}

@test "a part of it with -H, and no more than it" {
	printf '%s\n' 'runner --no-tag -H n2:2 hostname' 'runner -H n2:4 hostname' > "$STATE/t/job/part.sh"
	run submit -sync y -j y -pe mpi 6 part.sh
	[ "$status" = 2 ]
	[ "$(grep -cx n2 "$STATE/t/job/out")" = 2 ]
	said "'n2' asks for 4 slots, but this Grid Engine job has 3 there"
}

@test "sge.sh: a rank for each slot" {
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	run -0 submit -sync y -pe mpi 4 sge.sh --steps 5
	said '4 ranks begin at step 0'
	[ "$(job_file checkpoint.json)" = "{\"step\": 5, \"total\": $(total 4 5)}" ]
}

@test "sge.sh: after qdel a checkpoint" {
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	run -0 submit -terse -pe mpi 4 sge.sh --steps 1000
	wait_for said '4 ranks begin at step 0'
	sge qdel "$output"
	wait_for no_queue
	said 'after SIGUSR2'
	[ "$(step checkpoint.json)" -lt 1000 ]
}
