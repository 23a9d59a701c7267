#!/usr/bin/env bats
# limit_s: 240
# takes_s: 28
# more: hosts that hang, clocks and networks
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the hosts' shells; bats sets output, stderr and lines
# runner --check on real hosts: each of its lines, when all is well and when one host differs.
load jobs

UUID=GPU-00000000-0000-0000-0000-00000000000

setup_file() {
	cluster_up 4
	[ -z "$(why_no_cluster)" ] || return 0
	script touches <<- 'S'
		#!/bin/sh
		touch /run/it-ran
	S
	chmod +x "$STATE/t/touches"
	script trains.py <<- 'S'
		import os
		import extra
		open("/run/it-ran", "w")
	S
	script plain.py <<- 'S'
		import os
	S
	script hangs.py <<- 'S'
		import slow
	S
	mkdir -p "$STATE/t/slow"
	script slow/__init__.py <<- 'S'
		import os, subprocess, time
		subprocess.Popen(["setsid", "sleep", "1000"])
		open("/run/hangs", "w")
		time.sleep(1000)
	S
	gcc -shared -fPIC -o "$STATE/t/clock.so" -xc - <<- 'S'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <time.h>
		int clock_gettime(clockid_t c, struct timespec *t)
		{
			int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
			int rc = real(c, t);
			if (c == CLOCK_REALTIME) t->tv_sec += 5;
			return rc;
		}
	S
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	local h
	for h in n1 n2 n3 n4; do
		on "$h" rm -f /run/it-ran /run/hangs
	done
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
}

check() { r --check "$@"; }

# ROW HOSTS TEXT: there is such a line, with this verdict.
well() { line ok "$@"; }
bad() { line FAIL "$@"; }
passed_over() { line skip "$@"; }
line() { # VERDICT ROW HOSTS TEXT
	local text
	text=$(printf '%-4s  %-7s  %s' "$1" "$2" "$3${4:+: $4}")
	grep -qF -- "$text" <<< "$output" || { printf 'no line: %s\nsaid: %s\n' "$text" "$output"; return 1; }
}

failures() { grep -c '^FAIL' <<< "$output" || true; }

nothing_ran() {
	local h
	for h in n1 n2 n3 n4; do
		on "$h" test ! -e /run/it-ran
	done
}

@test "all is well: a line for each row, equal hosts together, and nothing runs" {
	run -0 --separate-stderr check -H 'n[1-4]:2' -q /vc/t/touches
	[ -z "$output$stderr" ] # -q: failures alone
	run -0 --separate-stderr check -H 'n[1-4]:2' --accept-new-hosts /vc/t/touches
	[ -z "$stderr" ]
	well ssh 'n[1-4]'
	well agent 'n[1-4]' 0.
	well wdir 'n[1-4]' /
	well program 'n[1-4]' /vc/t/touches
	passed_over imports 'n[1-4]' 'the program is not Python'
	well gpus 'n[1-4]' none
	well clock 'n[1-4]' "less than 1 s from runner's"
	well master 'n[1-4]' 10.77.0.1:
	well nofile 'n[1-4]' ''
	well memlock 'n[1-4]' ''
	well shm 'n[1-4]' ''
	well names 'n[1-4]' '3 names of other hosts'
	[[ $output == *"mpi      n[1-4]: "* ]] # what libpmix is there
	[ "${#lines[@]}" = 13 ]
	nothing_ran
	mark_clean n1
	run -0 check -H n1 true
	all_clean n1
}

@test "names of hosts that a host does not know: a warning" {
	on n2 sed -i -E '/ n[34]( |$)/d' /etc/hosts
	on n4 sed -i -E '/ n1( |$)/d' /etc/hosts
	run -0 check -H 'n[1-4]' true
	names=$output
	run -0 check -q -H 'n[1-4]' true
	[ -z "$output" ]
	run -0 check -H n2,10.77.0.3 true
	numbers=$output
	run -0 check -H n4,n1 /usr/bin/python3 /vc/t/plain.py # the imports come after the names
	imports=$output
	on n2 cp /vc/etc/hosts /etc/hosts
	on n4 cp /vc/etc/hosts /etc/hosts
	output=$names
	well names 'n[1,3]' '3 names of other hosts'
	line warn names n2 'no address for n3, n4: '
	line warn names n4 'no address for n1: '
	says "hint: Berth gives ranks addresses; if the program uses names between hosts"
	[ "$(grep -c hint: <<< "$output")" = 2 ]
	output=$numbers
	well names 10.77.0.3 '1 name of other hosts'
	silent_on "names    n2"
	output=$imports
	line warn names n4 'no address for n1: '
	well imports 'n[4,1]' '1 import of /vc/t/plain.py'
}

# bats test_tags=all
@test "a name server that does not answer: a warning, and nothing is left" {
	local old
	old=$(on n2 cat /etc/resolv.conf)
	mark_clean n1 n2
	printf 'nameserver 10.77.0.1\noptions timeout:30\n' | on n2 tee /etc/resolv.conf > /dev/null
	on n2 sed -i -E '/ n[13]( |$)/d' /etc/hosts
	on n1 python3 -c '
import os, socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.1", 53))
open("/run/silent", "w").write(str(os.getpid()))
time.sleep(60)' 3>&- &
	until on n1 test -s /run/silent; do sleep 0.05; done
	run -0 check --start-timeout 4 -H 'n[1-3]' true
	on n1 sh -c 'kill "$(cat /run/silent)"; rm /run/silent'
	on n2 tee /etc/resolv.conf <<< "$old" > /dev/null
	on n2 cp /vc/etc/hosts /etc/hosts
	line warn names n2 'no answer in time for n1, n3'
	well names 'n[1,3]' '2 names of other hosts'
	all_clean n1 n2
}

@test "usage is refused as ever: 2" {
	run -2 check -H n1
	says "no program to run"
	run -2 check -H n1:2 -np 9 true
	says "-np 9 asks for 9 ranks"
}

@test "a program and a folder that some hosts lack" {
	on n1 sh -c 'mkdir -p /opt/here; cp /bin/true /opt/here/only; cp /bin/true /opt/here/plain'
	on n2 sh -c 'mkdir -p /opt/here; cp /bin/true /opt/here/plain; chmod 644 /opt/here/plain'
	run -240 check -H 'n[1-4]' /opt/here/only
	well program n1 /opt/here/only
	bad program 'n[2-4]' "there is no program '/opt/here/only'"
	[ "$(failures)" = 1 ]
	run -240 check -H 'n[1-4]' --wdir /opt/here ./plain
	well wdir 'n[1-2]' /opt/here
	bad wdir 'n[3-4]' "cannot run in directory '/opt/here': No such file or directory"
	well program n1 ./plain
	bad program n2 "cannot execute './plain': Permission denied"
	[ "$(failures)" = 2 ]
	well master 'n[1-4]' 10.77.0.1:
}

@test "several programs: each on its own hosts" {
	on n1 sh -c 'cp /bin/true /opt/first'
	run -240 check -H n1,n2 -np 1 /opt/first : -np 1 /opt/second
	well program n1 /opt/first
	bad program n2 "there is no program '/opt/second'"
}

@test "imports: tried by the interpreter, in the environment of the job, and nothing else of the program" {
	on n1 sh -c 'mkdir -p /opt/modules; echo > /opt/modules/extra.py'
	on n2 sh -c 'mkdir -p /opt/modules; echo > /opt/modules/extra.py'
	on n3 sh -c 'mkdir -p /opt/modules; echo "import nosuch" > /opt/modules/extra.py'
	run -240 check -H 'n[1-4]:2' -x PYTHONPATH=/opt/modules /usr/bin/python3 -u /vc/t/trains.py --lr 1
	well imports 'n[1-2]' '2 imports of /vc/t/trains.py'
	bad imports n3 "/vc/t/trains.py:2: ModuleNotFoundError: No module named 'nosuch'"
	bad imports n4 "/vc/t/trains.py:2: ModuleNotFoundError: No module named 'extra'"
	[ "$(failures)" = 2 ]
	nothing_ran
	run -0 check -H 'n[1-2]' -x PYTHONPATH=/opt/modules /usr/bin/python3 /vc/t/trains.py
	run -240 check -H n1 /no/such/python3 /vc/t/trains.py
	passed_over imports n1 'the program cannot run'
	run -240 check -H n1 /usr/bin/python3 --no-such-option /vc/t/trains.py
	bad imports n1 'the interpreter ended without an answer: '
}

# bats test_tags=all
@test "an import that hangs is ended after --start-timeout, and nothing is left" {
	mark_clean n1 n2
	run -240 check -H n1,n2 --start-timeout 3 /usr/bin/python3 /vc/t/hangs.py
	bad imports 'n[1-2]' 'not done after 3 s (--start-timeout)'
	on n1 test -e /run/hangs
	all_clean n1 n2
}

@test "^C and TERM while hosts are asked" {
	mark_clean n1
	for signal in INT:130 TERM:143; do
		on n1 rm -f /run/hangs
		start --check -H n1 /usr/bin/python3 /vc/t/hangs.py
		wait_for on n1 test -e /run/hangs
		signal "${signal%:*}"
		ended_with "${signal#*:}"
		all_clean n1
	done
}

@test "a host that refuses connections: the others are asked" {
	"$VCLUSTER" sshd n2 stop
	run -240 check -H 'n[1-4]' --start-timeout 3 true
	"$VCLUSTER" sshd n2 start
	bad ssh n2 'cannot connect: Connection refused'
	well ssh 'n[1,3-4]'
	well program 'n[1,3-4]' /usr/bin/true
	well master 'n[1,3-4]' 10.77.0.1:
	[ "$(failures)" = 1 ]
}

@test "the host of rank 0 is lost: no connection to it is tried" {
	"$VCLUSTER" sshd n1 stop
	run -240 check -H n1,n2 --start-timeout 3 true
	"$VCLUSTER" sshd n1 start
	bad ssh n1 'cannot connect'
	passed_over master n2 'the host of rank 0 is lost'
	well clock n2
	run -240 check -H nosuch:gpus,n2 --start-timeout 3 true
	bad ssh nosuch "no address for 'nosuch'"
	well ssh n2
}

# bats test_tags=all
@test "a host without an agent" {
	for h in n1 n2; do
		on "$h" sh -c 'mkdir -p /opt/berth; ln -sf "$1" /opt/berth/agent' sh "$AGENT"
	done
	on n2 rm /opt/berth/agent
	run -240 check -H n1,n2 --no-push --launch-agent /opt/berth/agent true
	well ssh 'n[1-2]'
	well agent n1 0.
	bad agent n2 'no agent of berth '
	[ "$(failures)" = 1 ]
}

# bats test_tags=all
@test "a clock that is 5 s ahead" {
	for h in n1 n2; do
		on "$h" sh -c 'mkdir -p /opt/berth; ln -sf "$1" /opt/berth/agent' sh "$AGENT"
	done
	on n2 sh -c 'rm /opt/berth/agent
		printf "#!/bin/sh\nASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=/vc/t/clock.so exec %s \"\$@\"\n" "$1" > /opt/berth/agent
		chmod +x /opt/berth/agent' sh "$AGENT"
	run -240 check -H n1,n2 --no-push --launch-agent /opt/berth/agent true
	well clock n1 "less than 1 s from runner's"
	bad clock n2 "5.0 s ahead of runner's"
	[ "$(failures)" = 1 ]
}

# bats test_tags=all
@test "a network that lets no connection through to rank 0" {
	on n2 ip route add unreachable 10.77.0.1/32
	on n1 ip route add blackhole 10.77.0.3/32
	run -240 check -H 'n[1-4]' true
	on n2 ip route del unreachable 10.77.0.1/32
	on n1 ip route del blackhole 10.77.0.3/32
	well master 'n[1,4]' 10.77.0.1:
	grep -qE "^FAIL  master   n2: 10\.77\.0\.1:[0-9]+: No route to host$" <<< "$output"
	grep -qE "^FAIL  master   n3: 10\.77\.0\.1:[0-9]+: no answer$" <<< "$output"
	[ "$(failures)" = 2 ]
	run -0 check -H 'n[1-4]' true
}

@test "-x MASTER_ADDR and MASTER_PORT: those are tried" {
	run -0 check -H n1,n2 -x MASTER_ADDR=n1 -x MASTER_PORT=29511 true
	well master 'n[1-2]' n1:29511
	run -240 check -H n1,n2 -x MASTER_ADDR=n2 -x MASTER_PORT=22 true
	bad master n1 'n2:22: '
	bad master n2 'n2:22: another program answers'
	run -240 check -H n1,n2 -x MASTER_ADDR=no-such-name true
	bad master 'n[1-2]' 'no-such-name:'
}

@test "limits that are lower than the user's" {
	on n2 sh -c 'prlimit --pid "$(pgrep -o -x sshd)" --nofile=256:256 --memlock=65536:65536'
	run -240 r --check -H 'n[1-3]' true
	"$VCLUSTER" sshd n2 stop
	"$VCLUSTER" sshd n2 start
	bad nofile n2 '256, but at runner '
	bad memlock n2 '64 KiB, but at runner '
	well nofile 'n[1,3]'
	well memlock 'n[1,3]'
	[ "$(failures)" = 2 ]
}

# HOST gets GPUs at these addresses, and a driver.
gpus() { # HOST VERSION ADDRESS...
	local h=$1 version=$2 spec=() k=0 address; shift 2
	for address; do
		spec+=("nvidia,$address,minor=$k,uuid=$UUID$k,numa=0,cpus=0-$(($(nproc) - 1))")
		k=$((k + 1))
	done
	/usr/bin/python3 "$ROOT/tests/machines/mktree.py" "$STATE/gpus.$h" "${spec[@]}"
	printf 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Feb 22 01:44:30 UTC 2024\nGCC version:  gcc version 12.2.0\n' \
		"$version" > "$STATE/gpus.$h/proc/driver/nvidia/version"
	on "$h" sh -c 'mount --bind /vc/gpus.$1/sys/bus/pci /sys/bus/pci && mount --bind /vc/gpus.$1/proc/driver /proc/driver
		for f in /vc/gpus.$1/dev/nvidia*; do mknod -m 666 /dev/${f##*/} c 1 3; done' sh "$h"
}

# What only answers ncclGetVersion(), at /run/nccl.so of each HOST.
nccl() { # VERSION HOST...
	local h version=$1; shift
	gcc -shared -fPIC -o "$STATE/t/nccl.$version.so" -xc - <<< "int ncclGetVersion(int *v) { *v = $version; return 0; }"
	for h; do
		on "$h" cp "/vc/t/nccl.$version.so" /run/nccl.so
	done
}

@test "GPUs, drivers and NCCL: equal, another version, another number" {
	local between='what NCCL sends between hosts is neither authenticated nor encrypted'
	nccl 22105 n1 n2
	nccl 21805 n4
	gpus n1 550.54.15 0000:53:00.0 0000:54:00.0
	gpus n2 550.54.15 0000:53:00.0 0000:54:00.0
	gpus n3 535.104.05 0000:53:00.0 0000:54:00.0
	gpus n4 550.54.15 0000:53:00.0
	run -0 check -H n1,n2 -x BERTH_NCCL=/run/nccl.so true
	well gpus 'n[1-2]' '2 NVIDIA H100 80GB HBM3, driver 550.54.15'
	well nccl 'n[1-2]' 2.21.5
	line note nccl 'n[1-2]' "$between"
	says BERTH_NET_SECURE=aead
	run -240 check -H 'n[1-4]' -x BERTH_NCCL=/run/nccl.so true
	bad gpus 'n[1-2]' '2 NVIDIA H100 80GB HBM3, driver 550.54.15'
	bad gpus n3 '2 NVIDIA H100 80GB HBM3, driver 535.104.05'
	bad gpus n4 '1 NVIDIA H100 80GB HBM3, driver 550.54.15'
	line warn nccl 'n[1-2]' 2.21.5
	line warn nccl n3 '/run/nccl.so: cannot open'
	line warn nccl n4 2.18.5
	line note nccl 'n[1-2,4]' "$between"
	says 'hint: install one version on all hosts'
}
