# dump.bash: runner --dump, for the suites about it.
# shellcheck shell=bash
# shellcheck disable=SC2034 # the suites use them

# INSIDE: runner --dump sees the jobs of its network alone, and other suites have jobs: so those of this test
# have a network of their own, if this user may make one.  NET is the process that keeps it.
network_open() {
	inside=() net=
	unshare --net true 2> /dev/null || return 0
	unshare --net sh -c 'ip link set lo up && echo up && exec sleep 300' > net.up 2> /dev/null 3>&- &
	net=$!
	wait_for test -s net.up
	inside=(nsenter "--net=/proc/$net/ns/net")
}

network_close() { [ -z "$net" ] || kill "$net"; }
