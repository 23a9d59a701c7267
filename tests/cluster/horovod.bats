#!/usr/bin/env bats
# limit_s: 120
# takes_s: 9
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2153,SC2154 # $ is for the hosts' shells; bats sets output
# --horovod on hosts that share no files but the script: who has berth's package, and who has not.
load jobs

setup_file() {
	cluster_up 3
	[ -z "$(why_no_cluster)" ] || return 0
	make -s -C "$ROOT" BUILD="$BUILD" PREFIX=/opt/berth DESTDIR="$STATE/t/stage" install > /dev/null
	for h in n0 n1 n3; do
		on "$h" cp -r /vc/t/stage/opt/berth /opt
	done
	on n3 rm /opt/berth/share/berth/python/berth/libberth.so.0.2 /opt/berth/lib/libberth.so.0.2
	script sums.py <<- 'S'
		import horovod
		import berth as hvd
		hvd.init()
		print(hvd.rank(), horovod.__file__, sum(hvd.allgather_object(hvd.rank() + 1)))
	S
	script touches <<- 'S'
		#!/bin/sh
		touch /run/it-ran
	S
	chmod +x "$STATE/t/touches"
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	RUNNER=/opt/berth/bin/runner
}

@test "hosts that have it: the ranks of both import horovod" {
	run -0 r --horovod -x PYTHONDONTWRITEBYTECODE=1 -H n0:2,n1:2 /usr/bin/python3 /vc/t/sums.py
	[ "$(plain)" = "$(for i in 0 1 2 3; do
		echo "$i /opt/berth/share/berth/python/as_horovod/horovod/__init__.py 10"; done)" ]
}

@test "a host without the package or without libberth is named, and no rank starts on any" {
	for option in --no-keep-going --keep-going; do
		run -240 r --horovod "$option" --restarts 2 -H n1:2,n2:2 /vc/t/touches
		says "rank 2 on 'n2' could not start: --horovod needs berth's Python package and libberth: there is no '/opt/berth/share/berth/python/as_horovod'"
		hinted
	done
	run -240 r --horovod -H n1,n2,n3 /vc/t/touches
	says "the ranks on 'n2' could not start: --horovod needs" "; on 'n3': --horovod needs" "there is no '/opt/berth/lib/libberth.so.0.2'"
	on n1 test ! -e /run/it-ran
	run -240 r --check --horovod -H n1,n2 true
	grep -q '^FAIL *program *n2: --horovod needs' <<< "$output"
	run -0 r -H n1,n2 /vc/t/touches
	run -0 r --horovod=installed -H n1,n2,n3 true
}

@test "hosts without a berth of their own use the package at runner's path" {
	# the agent is sent; the checkout is shared, as from a file server
	run -0 on n0 timeout -k 5 60 "$BUILD/bin/runner" --horovod -x PYTHONDONTWRITEBYTECODE=1 -H n1,n2 /usr/bin/python3 /vc/t/sums.py
	says "0 $BUILD/share/berth/python/as_horovod/horovod/__init__.py 3" "1 $BUILD/share/berth/python/as_horovod/horovod/__init__.py 3"
}

# Who can change runner's path on n1: bob, who made it there; a maintainer whose runner it is here.
@test "the package at runner's path is not used if another user made it" {
	local p=/scratch/b/share/berth/python d
	on n0 sh -c 'mkdir -m 1777 /scratch; mkdir /scratch/b; cp -r /opt/berth/bin /opt/berth/lib /opt/berth/share /scratch/b'
	on n1 sh -c 'mv /opt/berth /opt/away; mkdir -m 1777 /scratch'
	on -u bob n1 sh -c 'mkdir -p $1/berth $1/as_horovod/horovod
		cd $1; echo "open(\"/tmp/planted\", \"w\")" | tee berth/__init__.py > as_horovod/horovod/__init__.py
		: > berth/libberth.so.0.2' sh $p
	for d in 1777 755; do # as /tmp; or it is he who made the folder
		on n1 chmod $d /scratch
		RUNNER=/scratch/b/bin/runner run -240 r --horovod -H n1 /usr/bin/python3 -c 'import horovod'
		says "needs berth's Python package and libberth: another user could replace '$p/berth/__init__.py': '/scratch"
	done
	says "'/scratch/b' belongs to another user (uid "
	run -1 on n1 cat /tmp/planted
	on n1 sh -c 'rm -r /scratch/b; cp -r /opt/away /scratch/b; chown -R alice /scratch/b'
	RUNNER=/scratch/b/bin/runner run -240 r --horovod -H n1 true
	on n0 sh -c 'chmod 755 /scratch; chown -R alice /scratch/b'
	RUNNER=/scratch/b/bin/runner run -0 r --horovod -x PYTHONDONTWRITEBYTECODE=1 -H n1 /usr/bin/python3 /vc/t/sums.py
	on n0 rm -r /scratch
	on n1 sh -c 'rm -r /scratch; mv /opt/away /opt/berth'
}

@test "berth.run on two hosts" {
	script job.py <<- 'S'
		import os
		import berth as hvd
		def work(a):
		    hvd.init()
		    return a, hvd.allgather_object(os.uname().nodename)
		if __name__ == "__main__":
		    import job
		    print(hvd.run(job.work, ("x",), num_proc=2, hosts="n0,n1", start_timeout=20))
	S
	run -0 on n0 timeout -k 5 60 env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/opt/berth/share/berth/python \
		/usr/bin/python3 /vc/t/job.py
	[ "$output" = "[('x', ['n0', 'n1']), ('x', ['n0', 'n1'])]" ]
	# where nobody named it, each host looks at who could change it there
	local p=/opt/berth/share/berth/python
	drive() {
		run "$1" on n0 timeout -k 5 60 env PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c "
import runpy, sys
sys.path[:0] = ['$p', '/vc/t']
runpy.run_path('/vc/t/job.py', run_name='__main__')"
	}
	drive -0
	[ "$output" = "[('x', ['n0', 'n1']), ('x', ['n0', 'n1'])]" ]
	on n1 chown alice $p/berth
	drive -1
	says "rank 1 on 'n1' could not start: berth.run() cannot give ranks its package: another user could replace '$p': '$p/berth' belongs to another user"
	on n1 chown root $p/berth
}
