#!/usr/bin/env bats
# limit_s: 240
# takes_s: 3
# more: more hosts, and a hundred random kills
# shellcheck disable=SC2154 # bats sets output
# Ranks of several hosts that start again while the others go on: tests/helpers/elastic.c trains, and
# compares what it computed with an undisturbed training.
load jobs

setup_file() {
	cluster_up 5
	[ -z "$(why_no_cluster)" ] || return 0
	script nothing < /dev/null # makes /vc/t
	mark_clean n0 n1 n2 n3 n4
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

trains() { # HOSTS NP ARGUMENT...
	start --no-tag --restarts 20 -H "$1" -np "$2" "$HELPERS/elastic" 40 1 all "${@:3}"
	ended_with 0 n0 n1 n2 n3 n4
	grep "^$2 ranks, " "$T/out" || { cat "$T/out" "$T/err"; return 1; }
	! grep 'restart .* ranks on ' "$T/err"
}

@test "one rank of two hosts, rank 0, one of each host" {
	trains 'n[1-2]:2' 4 2@10
	trains 'n[1-2]:2' 4 0@5
	trains 'n[1-2]:2' 4 1@5 3@5
	all_clean n0 n1 n2
}

@test "the others go on before the only rank of a host has ended" {
	trains 'n[1-3]' 3 times 1@10z
	awk '/rank 1 dies/ { died = $1 } /rank 0 goes on, of 2/ && died && $1 - died < 1500 { soon = 1 } END { exit !soon }' "$T/out"
	all_clean n0 n1 n2 n3
}

# bats test_tags=all
@test "the only rank of a host, in an operation and in the change of another" {
	trains 'n[1-4]' 4 2@10+
	trains 'n[1-4]' 4 1@3 2@3c 0@20 0@20c
	all_clean n0 n1 n2 n3 n4
}

# bats test_tags=all
@test "a hundred random kills on four hosts" {
	run -0 on n0 timeout -k 5 100 python3 "$ROOT/tests/soak/elastic.py" "$RUNNER" "$HELPERS/elastic" --kills 100 --ranks 8 \
		--dies 400 --folder /vc/t --options '-H n[1-4]:2'
	says "status 0, 8 ranks"
	all_clean n0 n1 n2 n3 n4
}

# bats test_tags=all
@test "a rank that hangs is named with its host, and no other" {
	for way in 2@10s 0@5l 3@7r 1@9v; do
		start --no-tag --hang-timeout 0.5 --restarts 20 -H 'n[1-2]:2' -np 4 "$HELPERS/elastic" 40 1 all "$way"
		ended_with 0 n0 n1 n2
		grep "^4 ranks, " "$T/out" || { cat "$T/out" "$T/err"; return 1; }
		rank=${way%%@*}
		[ "$(grep -c "rank . on 'n.' hangs: " "$T/err") $(grep -c "rank $rank on 'n$((rank / 2 + 1))' hangs: " "$T/err")" = "1 1" ]
		grep "rank $rank is back" "$T/err"
		! grep 'restart .* ranks on ' "$T/err"
	done
	all_clean n0 n1 n2
}
