#!/usr/bin/env bats
# all: each case of hostkeys.cases, one or two seconds each
# limit_s: 900
# takes_s: 500
# Host keys and ssh_config: runner logs in if and only if `ssh -o BatchMode=yes` does, and leaves
# the same known_hosts.

load ../cli/common
load hostkeys

setup_file() {
	hostkeys_up
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

@test "in each case runner logs in where ssh does, and known_hosts is the same after" {
	cases 1
}
