#!/usr/bin/env bats
# limit_s: 300
# takes_s: 20
# Host keys and ssh_config: runner logs in if and only if `ssh -o BatchMode=yes` does, and leaves
# the same known_hosts.  The cases stand in hostkeys.cases.  One in twelve runs here, another
# one tomorrow; hostkeys_all runs all.
# shellcheck disable=SC2016

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

@test "runner logs in where ssh does, and known_hosts is the same after" {
	cases 12
}

@test "of several hosts with unknown keys, each key is said" {
	# a case may have left anything
	on n0 sh -c 'rm -rf ~/.ssh/* /etc/ssh/ssh_config /etc/ssh/ssh_known_hosts*
		install -m 600 /vc/ssh/root ~/.ssh/id_ed25519'
	run -240 on n0 "$RUNNER" -H n1,n2,n3 true
	for h in n1 n2 n3; do
		print=$(on n0 ssh-keygen -lf /vc/keys/$h.pub | cut -d ' ' -f 2)
		grep -qx "runner: $h: ssh-ed25519 $print" <<< "$output"
	done
	hinted
	run -240 on n0 "$RUNNER" -H n1 true
	[ "$(grep -c SHA256 <<< "$output")" = 1 ] # in the error itself
}
