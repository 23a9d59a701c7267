#!/usr/bin/env bats
# limit_s: 120
# takes_s: 5
# shellcheck disable=SC2154 # bats sets output
# The examples of libberth over several hosts.
load jobs

setup_file() {
	cluster_up 3
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

@test "train_digits says the same on one rank, on 2 hosts, and on 2 hosts with 2 ranks each" {
	"$BUILD/examples/train_digits" | grep -v ^rank > "$T/one"
	[ "$(grep -c ^epoch "$T/one")" = 5 ]
	for hosts in n1,n2 n1:2,n2:2 n1:1,n2:2; do
		run -0 --separate-stderr r -H "$hosts" "$BUILD/examples/train_digits"
		diff <(sort "$T/one") <(plain | grep -v ^rank) || { echo "$hosts"; false; }
		[ "$(plain | grep -o '^rank .* on n[12]' | awk '{ print $6 }' | sort -u | xargs)" = 'n1 n2' ]
	done
}

@test "allreduce: the sums of 3 hosts" {
	run -0 --separate-stderr r -H n0,n1,n2 "$BUILD/examples/allreduce"
	[ "$(plain)" = "$(for i in 0 1 2; do echo "rank $i of 3: 3 33 63 93"; done)" ]
}
