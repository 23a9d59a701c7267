#!/usr/bin/env bats
# limit_s: 300
# takes_s: 40
# more: 350 programs in place of 80
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# Random programs of libberth: tests/helpers/programs.c says what they are.  SEED (random, printed)
# decides all of them; a failure says its program, and `programs ... SEED 1 PROGRAM` does it alone.
load common

PROGRAMS=$BUILD/helpers/programs

setup_file() {
	export SEED=${SEED:-$((RANDOM + 1))}
	export FEW=${SAN:+4} # of sanitizers each takes ten times as long
	[ "${CHECK:-}" != user ] || FEW=3
}

setup() {
	echo "SEED=$SEED"
}

checked() { # COUNT FIRST COMMAND...
	local count=${FEW:-$1} first=$2; shift 2
	run timeout -k 5 $((60 * ${SLOW:-1})) "$@" "$SEED" "$count" "$first"
	[[ $status = 0 && $output == *"programs: "*" checks"* ]] || { echo "$*: status $status: $output"; return 1; }
}

@test "ranks of one host" {
	for np in 1 2 3 4 5 9; do
		checked 20 $((np * 1000)) "$RUNNER" --no-tag -np "$np" "$PROGRAMS"
	done
}

@test "2, 3 and 4 hosts: one or several ranks each, one after another or in turn" {
	checked 10 10000 "$PROGRAMS" -np 2 -hosts 2
	checked 10 20000 "$PROGRAMS" -np 3 -hosts 3
	checked 8 30001 "$PROGRAMS" -np 5 -hosts 2
	checked 8 40000 "$PROGRAMS" -np 7 -hosts 3
	checked 5 50001 "$PROGRAMS" -np 9 -hosts 4
}

@test "other algorithms between hosts, and nothing fused" {
	BERTH_ALGO=direct checked 5 60000 "$PROGRAMS" -np 4 -hosts 3
	BERTH_ALGO=double:1K,halve checked 5 61001 "$PROGRAMS" -np 6 -hosts 3
	HOROVOD_FUSION_THRESHOLD=0 checked 5 62000 "$PROGRAMS" -np 4
	HOROVOD_FUSION_THRESHOLD=2000 checked 5 63001 "$PROGRAMS" -np 4 -hosts 2
}

@test "half of it in the memory of stand-in devices: 100 programs" {
	checked 30 70000 "$PROGRAMS" -np 2 -devices 1
	checked 30 71001 "$PROGRAMS" -np 3 -devices 1
	checked 20 72000 "$PROGRAMS" -np 4 -hosts 2 -devices 1
	checked 10 73001 "$PROGRAMS" -np 5 -devices 1
	checked 10 74000 "$PROGRAMS" -np 6 -hosts 3 -devices 1
	BERTH_ALGO=direct HOROVOD_FUSION_THRESHOLD=2000 checked 10 75000 "$PROGRAMS" -np 3 -hosts 2 -devices 1
}

@test "half of it in that memory, by the host: 60 programs" {
	checked 20 76000 "$PROGRAMS" -np 2 -devices 2
	checked 20 77001 "$PROGRAMS" -np 3 -devices 2
	checked 10 78000 "$PROGRAMS" -np 4 -hosts 2 -devices 2
	checked 10 79001 "$PROGRAMS" -np 5 -hosts 3 -devices 2
}

@test "a mistake of the back end of a device is seen in random programs" {
	for mistake in ready "done" streams temp pointer order count; do
		for ((seed = 1; seed <= 20; seed++)); do
			STANDIN_MISTAKE=$mistake timeout -k 5 $((60 * ${SLOW:-1})) "$PROGRAMS" -np 2 -devices 1 "$seed" 6 &> /dev/null || break
		done
		echo "$mistake: the seed $seed finds it"
		[ "$seed" -le 20 ]
	done
	clean_standin
}

@test "a wrong result is seen, and says where" {
	run -1 env PROGRAMS_SPOIL=3 timeout 60 "$PROGRAMS" -np 2 "$SEED" 3 7
	[[ $output == *"seed $SEED program "*" step "*" rank 1: "*" element "*": got "*", expected "* ]]
}

@test "ranks that block for a slice of time begin with operations of different names" {
	SEED=31542 checked 1 11 "$RUNNER" --no-tag -np 2 "$PROGRAMS"
}
