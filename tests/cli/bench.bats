#!/usr/bin/env bats
# berth_bench: every operation, with the results that it verifies.
# limit_s: 240
# takes_s: 3
load common

bench() { # RANKS WORD...
	local n=$1; shift
	run timeout 60 runner --oversubscribe -np "$n" "$BUILD/bin/berth_bench" -m 1 "$@"
}

@test "berth_bench: each operation, right at each size" {
	for kind in allreduce reduce reducescatter allgather broadcast alltoall; do
		bench 2 $kind -b 8 -e 600K -f 40
		[ "$status" = 0 ]
		[ "$(grep -cE ' f32 +(sum|-) +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$' <<< "$output")" = 4 ]
	done
}

@test "berth_bench: types, operations, in place, in the heap" {
	for words in "-t f16" "-t bf16 -o max" "-t u8 -o min" "-t i64 -i" "-s" "-s -i allgather" "-s broadcast"; do
		# shellcheck disable=SC2086 # words
		bench 3 $words -b 24 -e 200K -f 100
		[ "$status" = 0 ]
		[ "$(grep -cE ' +0$' <<< "$output")" = 2 ]
	done
}

@test "berth_bench: what is not understood" {
	while IFS='|' read -r words why; do
		# shellcheck disable=SC2086 # words
		run -2 "$BUILD/bin/berth_bench" $words
		[ "$output" = "berth_bench: $why" ] || { echo "$words: $output"; false; }
	done <<-'END'
		-t f8|-t 'f8' is no type of those that --help lists
		-o and|-o 'and' is neither sum nor min nor max
		-b 0|-b '0' is no number above 0, such as 8, 64K or 1G
		-b 8X|-b '8X' is no number above 0, such as 8, 64K or 1G
		-m -1|-m '-1' is no number above 0, such as 8, 64K or 1G
		-e 18446744073709551616G|-e '18446744073709551616G' is no number above 0, such as 8, 64K or 1G
		-f 1|-f 1 makes no size larger
		scan|'scan' is no operation of those that --help lists
		reduce reduce|'reduce' is one word too many
		-i alltoall|-i: alltoall can't be in place
		-e 4 -b 8|-e 4 is less than -b 8
	END
	run -2 "$BUILD/bin/berth_bench" -z
	[[ $output == *"berth_bench: invalid option -- 'z'" ]]
	run -0 "$BUILD/bin/berth_bench" --help
	[[ $output == "usage: berth_bench"* ]]
}

@test "berth_bench --tune: how an allreduce is done" {
	bench 2 --tune
	[ "$status" = 0 ]
	# where the arrays fit into the caches that ranks share, or where they do not
	[[ $output == *"2 ranks of one host"*"flat"*@("written where it was read"|"two shots")* ]]
	run -0 "$BUILD/bin/berth_bench" --tune
	[ "$output" = "one rank" ]
}
