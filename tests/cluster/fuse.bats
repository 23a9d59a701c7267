#!/usr/bin/env bats
# limit_s: 120
# takes_s: 20
# all: mounts a file system of FUSE
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the hosts' shells; bats sets output
# A file system of another user's (fuse.py) that says that all is root's, where runner looks for its
# agent: no program of it runs.
load jobs

setup_file() {
	cluster_up 1
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	on n1 sh -c '[ -e /dev/fuse ] || mknod -m 600 /dev/fuse c 10 229
		: < /dev/fuse' || skip "this kernel has no FUSE"
	script other <<- S
		#!/bin/sh
		id >> /tmp/planted
		exec $AGENT
	S
	script fuse.py < "$ROOT/tests/cluster/fuse.py"
	on n1 rm -rf /root/.cache /dev/shm/berth-0 /tmp/planted
}

teardown() {
	[ -z "${mounted-}" ] || on n1 umount -l "$mounted"
	[ -z "${server-}" ] || wait "$server" || true
	on n1 rm -rf /dev/shm/berth-0 /tmp/planted
}

mount_at() { # FOLDER, which bob makes
	as bob n1 mkdir -p "$1"
	on n1 python3 /vc/t/fuse.py "$1" "$AGENT" /vc/t/other > "$T/server" 2>&1 3>&- &
	server=$! mounted=$1
	wait_for grep -q ready "$T/server"
	[[ $(on n1 stat -c '%u %A' "$1") == '0 drwx------' ]]
}

# n0 starts its own runner below FOLDER, with its agent beside it.
runner_in() { # FOLDER
	on n0 sh -c 'mkdir -p "$1/bin" && cp "$2" "$3" "$1/bin"' sh "$1" "$BUILD/bin/runner" "$AGENT"
	RUNNER=$1/bin/runner
}

@test "at runner's own path, below a sticky folder" {
	on n1 mkdir -m 1777 /scratch
	runner_in /scratch/b
	mount_at /scratch/b
	run -0 r -v -H n1 true
	says "'/scratch/b/bin/berth-agent' there was not started" 'the agent was sent'
	run -1 on n1 cat /tmp/planted
	on n0 rm -r /scratch
}

@test "at a folder that all could write, which it hides: the agent, the package" {
	on n1 mkdir -m 777 /data
	runner_in /data/b
	on n0 cp -r "$BUILD/share" "$BUILD/lib" /data/b/
	mount_at /data
	run -0 r -v -H n1 true
	says "'/data/b/bin/berth-agent' there was not started" 'the agent was sent'
	run -240 r --horovod -H n1 true
	says "another user could replace '/data/b/share/berth/python/berth/__init__.py': '/data' is of FUSE, and of another user"
	run -1 on n1 cat /tmp/planted
	on n0 rm -r /data
}

@test "where copies of the agent lie" {
	runner_in /opt/y
	on n1 sh -c 'mkdir -p /root/.cache /run/user; mount -t tmpfs -o noexec none /root/.cache; mount -t tmpfs -o noexec none /run/user'
	mount_at /dev/shm/berth-0
	run -240 r -H n1 true
	says '/dev/shm/berth-0 is a mount of its own'
	on n1 umount /root/.cache /run/user
	run -0 r -v -H n1 true
	says 'the agent was sent'
	run -1 on n1 cat /tmp/planted
}
