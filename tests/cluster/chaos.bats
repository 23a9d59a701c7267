#!/usr/bin/env bats
# limit_s: 240
# shellcheck disable=SC2154 # bats sets status and output
# A minute of random jobs and faults on 2 hosts, from SEED; chaos.py says what is checked.
load jobs

setup() {
	need_cluster
}

@test "60 s of chaos: right statuses, right causes, nothing left" {
	HOSTS=2 run "$ROOT/tests/cluster/chaos.sh" 60 "${SEED:-1}" 3>&-
	echo "$output"
	[ "$status" = 0 ]
	[[ $output == *' jobs, 0 with a violation'* ]]
}
