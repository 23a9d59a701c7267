#!/usr/bin/env bats
# takes_s: 5
# all: three hosts
# shellcheck disable=SC2154 # bats sets output
# runner --timeline with several hosts, whose clocks runner measures.
load jobs

setup_file() {
	cluster_up 3
}

teardown_file() {
	rm -f "$BUILD/timeline-$VC_NAME.json.gz" # the hosts see it there
	cluster_down
}

setup() {
	need_cluster
}

@test "ranks of three hosts are on one clock, with its error" {
	run -0 --separate-stderr r --timeline "$BUILD/timeline-$VC_NAME.json.gz" -H n0:2,n1:1,n2:2 "$BUILD/examples/allreduce"
	run -0 /usr/bin/python3 "$ROOT/tests/cli/timeline.py" "$BUILD/timeline-$VC_NAME.json.gz"
	says "process rank 0 (n0)" "process rank 2 (n1)" "process rank 4 (n2)" \
		"file rank 4 (n2): of the job, "
	[[ $output == *"clock error at most "[1-9]*" us" ]]
}
