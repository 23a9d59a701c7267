#!/usr/bin/env bats
# limit_s: 240
# takes_s: 3
# shellcheck disable=SC2154 # bats sets output, stderr
# Many hosts without many hosts: the launcher against agents that tests/helpers/simulate.c plays.
load common

sim() { timeout -k 5 30 "$HELPERS/simulate" "$@" < /dev/null; }

# "RANKS LINES" for those that wrote so many whole lines.
lines_by_rank() { sed -n 's/<stdout>:x\{63\}$//p' <<< "$output" | uniq -c | awk '{n[$1]++} END {for (i in n) print n[i], i}'; }

@test "200 hosts start, write, are signalled, end: every line, status 0" {
	run -0 --separate-stderr sim 200
	no_stderr
	[ "$(lines_by_rank)" = "200 16" ]
}

@test "200 hosts of 4 ranks, one by one: the first rank of each writes" {
	run -0 --separate-stderr sim -p 1 -r 4 200
	[ "$(lines_by_rank)" = "200 16" ]
	grep -q '^\[796\]<stdout>:' <<< "$output"
}

@test "one rank of 400 on 200 hosts fails: it is named, its status is runner's" {
	run -3 --separate-stderr sim -r 2 -f 123 200
	[[ $stderr == "runner: rank 123 on '198.18.0.62' (pid 1001) exited with status 3"* ]]
	[[ $stderr == *"the other 399 ranks will be ended"* ]]
	[ "$(lines_by_rank)" = "200 16" ]
}

@test "800 hosts more take 800 descriptors and less than 8 MiB" {
	[ "${SAN:-}" != 1 ] || skip "the sanitizers' memory would be counted"
	run -0 --separate-stderr sim -t 200
	a=$(awk '$2 == "output" {print $7, $8}' <<< "$stderr")
	run -0 --separate-stderr sim -t 1000
	b=$(awk '$2 == "output" {print $7, $8}' <<< "$stderr")
	echo "KiB and descriptors: $a, $b"
	[ "$a" ] && awk '{exit !($3 - $1 < 8192 && $4 - $2 == 800)}' <<< "$a $b"
}
