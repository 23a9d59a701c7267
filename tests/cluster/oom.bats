#!/usr/bin/env bats
# limit_s: 120
# takes_s: 5
# shellcheck disable=SC2016,SC2154 # code for the ranks; bats sets status and stderr
# The kernel's out-of-memory killer, for real: a host whose memory cgroup is small.
load jobs

setup_file() {
	cluster_up 2
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	limit=/sys/fs/cgroup/memory/$VC_NAME/n1/memory.limit_in_bytes
	[ -w "$limit" ] || skip "this machine has no memory cgroup (v1) for a host"
}

@test "E_RANK_OOM: a rank that the kernel killed for memory is named as such, status 137" {
	echo $((256 << 20)) > "$limit"
	run --separate-stderr r -np 2 -H n1,n2 /usr/bin/python3 -c '
import os, time
hoard = bytearray(900_000_000) if os.environ["RANK"] == "0" else b""
time.sleep(60)'
	[ "$status" = 137 ]
	[[ $stderr == "runner: rank 0 on 'n1' (pid "*") was ended by the kernel: over the memory limit of 256 MiB of cgroup '/'"* ]]
	[[ $stderr == *"hint: use fewer ranks per host, or raise the memory limit of the job"* ]]
}

@test "a rank that somebody else killed is not called out of memory" {
	run --separate-stderr r -np 2 -H n1,n2 sh -c '[ $RANK = 1 ] || kill -9 $$; sleep 60'
	[ "$status" = 137 ]
	[[ $stderr == "runner: rank 0 on 'n1' (pid "*") was ended by SIGKILL"* ]]
}
