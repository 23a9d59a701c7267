#!/usr/bin/env bats
# limit_s: 600
# takes_s: 12
# all: runs each MPI
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2086,SC2153,SC2154 # options are words; bats sets output
# MPI_Init of each MPI leaves the threads where runner put them, on hosts that seem to have 64 CPUs.
# There the system call says where a thread would be, and fakecpus answers it: a program can't go
# round that, however it is linked.  mpi.bats has the same on the CPUs that there are.
load jobs
load mpis

setup_file() {
	"$ROOT/tests/machines/mkmachine.py" "$BATS_FILE_TMPDIR" numa4-gpus-on-1-2
	cluster_up 2 --fake 64 "$BATS_FILE_TMPDIR/numa4-gpus-on-1-2.xml"
	compile_ranks "$BATS_FILE_TMPDIR"
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	[ -n "$(mpis)" ] || skip "no MPI (tests/deps launchers installs it)"
	mpi_programs
}

# What the ranks have to say, by the plan of runner's OPTION...
planned() {
	r --plan=json "$@" true 2> /dev/null | /usr/bin/python3 -c 'import json, sys
for r in json.load(sys.stdin)["ranks"]:
    print("rank %d: cpus %s, seen, 0 threads elsewhere" % (r["rank"], r["cpus"] or "0-63"))' | sort
}

# OPTIONS: MPICH 4, where all are tested and it does not hang.
on_one_host() { [[ -z ${MPI_SIZES-} || $1 = *-2* ]] || printf '%s\n' "${PROGRAMS[@]}" | grep mpich4; }

@test "no MPI moves its threads: the whole machine, parts of it, GPUs, two hosts, not bound" {
	local p options want
	for options in "-H n1:1" "-H n1:2" "-H n1:3" "-H n1:16" "-H n[1-2]:2" "-H n1:1 --bind-to none" \
		"-H n1:2 --bind-to none" "-H n1:4 --bind-to none"; do
		want=$(planned $options)
		[ -n "$want" ]
		for p in $(some) $(on_one_host "$options"); do
			run r -q --no-tag $options "$p" masks
			[ "$status" = 0 ] && [ "$(sort <<< "$output")" = "$want" ] ||
				{ echo "$p $options: status $status: $output"; echo "planned: $want"; return 1; }
		done
	done
}
