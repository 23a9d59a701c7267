#!/usr/bin/env bats
# limit_s: 480
# takes_s: 56
# more: more trainings, and hosts that hang
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the ranks' shells; bats sets output, stderr and lines
# Whole jobs over real sshds: n0 starts them, n1 to n4 are the hosts; only the checkout is shared.
load jobs

setup_file() {
	cluster_up 4
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

# Losses that the training example prints, one a line.
losses() { sed -n 's/.*<stdout>:epoch .* loss //p' <<< "$output"; }

train() { # HOSTS OPTION...
	local hosts=$1; shift
	need_torch
	# four ranks import torch, perhaps from a disk, beside other suites
	run --separate-stderr on n0 timeout -k 5 150 "$RUNNER" --report-bindings -H "$hosts" "$PYTHON" "$ROOT/examples/train_digits.py" "$@" < /dev/null
	[ "$status" = 0 ] || { echo "status $status, said: $output $stderr"; return 1; }
}

# ---- training ----

@test "a training on two hosts: its loss falls, lines have labels, every rank is bound" {
	train n1:2,n2:2
	[ "$(losses | wc -l)" = 5 ]
	losses | sort -rgc
	says '[0]<stdout>:accuracy 0.9' '[0]<stdout>:rank 0 of 4 on n1, cpus ' '[1]<stdout>:rank 1 of 4 on n1, cpus ' \
		'[2]<stdout>:rank 2 of 4 on n2, cpus ' '[3]<stdout>:rank 3 of 4 on n2, cpus '
	[ "$(grep -vc '^\[[0-3]\]<stdout>:' <<< "$output")" = 0 ]
	for place in 'rank 0 on n1' 'rank 1 on n1' 'rank 2 on n2' 'rank 3 on n2'; do
		[[ $stderr == *"runner: $place, pid "*": cpus "* ]]
	done
	# what is reported is what the rank itself saw
	for rank in 0 1 2 3; do
		cpus=$(sed -n "s/^runner: rank $rank on .*: cpus \(.*\), numa .*/\1/p" <<< "$stderr")
		says "rank $rank of 4 on n$((rank / 2 + 1)), cpus $cpus,"
	done
}

# bats test_tags=all
@test "the same losses on one host with four ranks, and on four hosts" {
	train n1:2,n2:2
	local first; first=$(losses)
	for hosts in n1:4 'n[1-4]'; do
		train "$hosts"
		[ "$(losses)" = "$first" ] || { echo "$first"; losses; return 1; }
	done
}

# bats test_tags=all
@test "a training that fails on one rank: its status, its host, what it said" {
	need_torch
	run -3 --separate-stderr r -H n1,n2 "$PYTHON" "$ROOT/examples/train_digits.py" --epochs 2 --fail-rank 1
	[[ $stderr == *"runner: rank 1 on 'n2' (pid "*") exited with status 3"* ]]
	[[ $stderr == *"  | rank 1: failing as asked"* ]]
}

# ---- endings ----

@test "exit codes and signals come back from every host" {
	for code in 1 124 127 241 255; do
		run -$code r -H n[1-4] sh -c "[ \$RANK != 3 ] || exit $code"
		says "rank 3 on 'n4' (pid " "exited with status $code"
	done
	for sig in KILL:9 SEGV:11 TERM:15; do
		run -$((128 + ${sig#*:})) r -H n1:2,n2:2 sh -c "ulimit -c 0; [ \$RANK != 2 ] || kill -${sig%:*} \$\$"
		says "rank 2 on 'n2' (pid " "ended by SIG${sig%:*}"
	done
	run -0 r -q -H n[1-4]:2 true
	[ -z "$output" ]
}

@test "the first failure is named by rank, host and pid; those that follow are counted" {
	run -7 --separate-stderr r -H n1:2,n[2-4] sh -c 'trap "echo late >&2; exit 9" TERM
		if [ $RANK = 3 ]; then echo "I am $$"; echo because >&2; exit 7; fi; sleep 1000 & wait'
	[[ $output == "[3]<stdout>:I am "* ]]
	[[ $stderr == *"runner: rank 3 on 'n3' (pid ${output##* }) exited with status 7"* ]]
	[[ $stderr == *"its last lines on stderr:"*"  | because"* ]]
	[[ $stderr =~ "other "([0-9]+ )?"rank" && $stderr != *"status 9"* ]]
}

@test "no such program, not executable, no such folder: on one host alone, and it is named" {
	on n1 sh -c 'cp /bin/true /opt/only1; mkdir /opt/dir1; cp /bin/true /opt/plain'
	on n2 sh -c 'cp /bin/true /opt/plain; chmod 644 /opt/plain'
	run -127 r -H n1,n2 /opt/only1
	says "rank 1 on 'n2' could not start: there is no program '/opt/only1'"
	hinted
	run -127 r -H 'n[1-3]' /opt/only1
	says "the ranks on 'n[2-3]' could not start: there is no program '/opt/only1'"
	run -126 r -H n1,n2 /opt/plain
	says "rank 1 on 'n2' could not start: cannot execute '/opt/plain': Permission denied"
	run -126 r -H n1,n2 --wdir /opt/dir1 true
	says "rank 1 on 'n2' could not start: cannot run in directory '/opt/dir1'"
	hinted
	run -126 r -H n1,n2,n3 /opt/plain
	says "the ranks on 'n2' could not start: cannot execute '/opt/plain': Permission denied; on 'n3': there is no program '/opt/plain'"
}

@test "a program that is missing on one host: no rank starts on any" {
	on n1 sh -c 'printf "#!/bin/sh\ntouch /run/it-ran\n" > /opt/touches; chmod +x /opt/touches'
	for option in --keep-going --no-keep-going; do
		run -127 r "$option" --restarts 2 -H n1:2,n2:2 /opt/touches
		says "rank 2 on 'n2' could not start: there is no program '/opt/touches'"
		[ "$(grep -c 'could not start' <<< "$output")" = 1 ]
		on n1 sh -c '[ ! -e /run/it-ran ]'
	done
	run -0 r -H n1:2 /opt/touches
	on n1 test -e /run/it-ran
}

@test "--timeout ends ranks on all hosts: 124" {
	mark_clean n1 n2
	run -124 r --timeout 1 -H n1:2,n2:2 sh -c 'trap "exit 0" TERM; sleep 1000 & wait'
	says "the time limit of 1 s has passed"
	all_clean n1 n2
}

@test "--keep-going: the others run to their end, on every host" {
	run -5 --separate-stderr r --keep-going -H n[1-3] sh -c '[ $RANK = 0 ] && exit 5; sleep 0.5; echo done'
	[ "$(plain)" = $'done\ndone' ]
}

@test "^C goes to the ranks of all hosts, and runner ends by it: 130" {
	printf 'trap "echo int\\$RANK; exit 0" INT\necho "ready$RANK"\nwhile :; do sleep 0.1; done\n' | script polite
	start -H n1:2,n2:2 bash /vc/t/polite
	for rank in 0 1 2 3; do
		wait_for grep -q "ready$rank" "$T/out"
	done
	signal INT
	ended_with 130 n1 n2
	for rank in 0 1 2 3; do
		grep -q "int$rank" "$T/out"
	done
	err_says "sent SIGINT to 4 ranks"
}

@test "^C twice: ranks that ignore it are gone at once" {
	printf 'trap "" INT TERM\necho "ready$RANK"\nwhile :; do sleep 1000; done\n' | script stubborn
	start -H n[1-2]:2 bash /vc/t/stubborn
	for rank in 0 1 2 3; do
		wait_for grep -q "ready$rank" "$T/out"
	done
	signal INT
	wait_for grep -q "again ends them now" "$T/err"
	signal INT
	ended_with 130 n1 n2
}

@test "USR1 goes to the ranks, QUIT prints the rank status with hosts" {
	printf 'trap "echo usr1; exit 0" USR1\necho "ready$RANK"\nwhile :; do sleep 0.1; done\n' | script usr1
	start -H n1,n2 bash /vc/t/usr1
	wait_for grep -q ready0 "$T/out"
	wait_for grep -q ready1 "$T/out"
	signal QUIT
	wait_for grep -q "rank 1  n2  pid .*running" "$T/err"
	signal USR1
	ended_with 0 n1 n2
	[ "$(grep -c usr1 "$T/out")" = 2 ]
}

# ---- hosts ----

@test "hosts: user@host, ranges, a host given twice, an address" {
	run -0 r -i /vc/ssh/alice -H alice@n1:2,alice@n2 sh -c 'echo $(hostname) $(id -un) $HOME $USER'
	[ "$(plain)" = $'n1 alice /home/alice alice\nn1 alice /home/alice alice\nn2 alice /home/alice alice' ]
	run -0 r -H 'n[1-2,4]:2' sh -c 'echo $RANK $(hostname)'
	[ "$(plain)" = $'0 n1\n1 n1\n2 n2\n3 n2\n4 n4\n5 n4' ]
	run -0 r -H n1,n2,n1 sh -c 'echo $RANK $(hostname)'
	[ "$(plain)" = $'0 n1\n1 n1\n2 n2' ]
	run -0 r -H 10.77.0.3:1,n4 hostname
	[ "$(plain)" = $'n3\nn4' ]
}

@test "hosts: one machine under two names is an error that names both, unless it is allowed" {
	run -2 r -H n1,n2,10.77.0.1 touch /vc/t/started
	says "one machine has several names: 'n1' and '10.77.0.1'"
	hinted
	run -2 r --plan -H 10.77.0.2,n1,n2,10.77.0.1
	says "one machine has several names: '10.77.0.2' and 'n2'; 'n1' and '10.77.0.1'"
	[ ! -e "$STATE/t/started" ]
	run -0 r --allow-same-host -H n1,n2,10.77.0.1 hostname
	[ "$(plain)" = $'n1\nn1\nn2' ]
}

@test "hostfiles of Open MPI, MPICH and PBS" {
	printf '# nodes\n\nn1 slots=2 max_slots=2\nn2 slots=1\n' | script openmpi
	printf 'n1:2\nn2:1\n' | script mpich
	printf 'n1\nn1\nn2\n' | script pbs
	for file in openmpi mpich pbs; do
		run -0 r --hostfile /vc/t/$file sh -c 'echo $RANK $(hostname)'
		[ "$(plain)" = $'0 n1\n1 n1\n2 n2' ]
	done
	run -2 r -np 4 --oversubscribe --hostfile /vc/t/openmpi --map-by slot -H n3 true
	hinted
}

@test "--map-by node deals ranks out; local and cross ranks follow" {
	run -0 r -np 5 -H n1:2,n2:2,n3:2 --map-by node \
		sh -c 'echo $RANK $(hostname) $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE'
	[ "$(plain)" = $'0 n1 0/2 0 0/3\n1 n2 0/2 1 1/3\n2 n3 0/1 2 2/3\n3 n1 1/2 0 0/2\n4 n2 1/2 1 1/2' ]
	run -0 r -ppn 2 -H n1,n2 sh -c 'echo $RANK $(hostname)'
	[ "$(plain)" = $'0 n1\n1 n1\n2 n2\n3 n2' ]
}

@test "several programs: each on its hosts, in one job" {
	run -0 r -H n1,n2:2 -np 1 sh -c 'echo a $RANK/$WORLD_SIZE $(hostname)' : -np 2 sh -c 'echo b $RANK/$WORLD_SIZE $(hostname)'
	[ "$(plain)" = $'a 0/3 n1\nb 1/3 n2\nb 2/3 n2' ]
}

@test "several programs, each with its own -H and -ppn" {
	local show='echo $0 $RANK/$WORLD_SIZE $(hostname) $LOCAL_RANK/$LOCAL_WORLD_SIZE'
	run -0 r -H n1:2 -np 2 sh -c "$show" a : -H n2:2 -np 2 sh -c "$show" b
	[ "$(plain)" = $'a 0/4 n1 0/2\na 1/4 n1 1/2\nb 2/4 n2 0/2\nb 3/4 n2 1/2' ]
	# a host in two lists has the slots of both; a program without -H takes the first one's hosts
	run -0 r -q -H n2,n1 -np 1 sh -c "$show" a : -H n3,n2:2 -np 3 sh -c "$show" b : -np 1 sh -c "$show" c
	[ "$(plain)" = $'a 0/5 n2 0/3\nb 1/5 n3 0/1\nb 2/5 n2 1/3\nb 3/5 n2 2/3\nc 4/5 n1 0/1' ]
	run -0 r -q -H n1,n2 -ppn 1 -np 2 sh -c "$show" a : -ppn 2 -np 4 sh -c "$show" b
	[ "$(plain)" = $'a 0/6 n1 0/3\na 1/6 n2 0/3\nb 2/6 n1 1/3\nb 3/6 n1 2/3\nb 4/6 n2 1/3\nb 5/6 n2 2/3' ]
	run -0 r --plan -H n1:2 -np 2 a : -H n2:2 -np 2 b
	says 'n[1-2]: 2 ranks each'
	[[ "$output" != *n3* ]]
	run -2 r -H n1:2 -np 2 true : -H n2 -np 2 true
	says "app 2: -np 2 asks for 2 ranks, but -H gives 1 slot (n2:1)"
}

@test "this machine among the hosts is known by name and by address: no ssh" {
	for self in n0 10.77.255.254 localhost; do
		run -0 --separate-stderr r -v -H "$self:1,n1:1" hostname
		[ "$(plain)" = $'n0\nn1' ]
		[[ $stderr == *"runner: $self is up: "*"(local)"* && $stderr == *"runner: n1 is up: "*"(ssh)"* ]]
	done
}

@test "MASTER_ADDR is where rank 0 is reached; MASTER_PORT is held on that host" {
	run -0 r -H n1:2,n2 sh -c 'echo $MASTER_ADDR'
	[ "$(plain | uniq)" = 10.77.0.1 ]
	run -0 r -H n0,n1 sh -c 'echo $MASTER_ADDR'
	[ "$(plain | uniq)" = 10.77.255.254 ]
	run -0 r -H n1,n0 sh -c 'echo $MASTER_ADDR'
	[ "$(plain | uniq)" = 10.77.0.1 ]
	for hosts in n0:2 n1:2; do
		run -0 r -H $hosts sh -c 'echo $MASTER_ADDR'
		[ "$(plain | uniq)" = 127.0.0.1 ]
	done
	run -0 r -H n1,n2 /usr/bin/python3 -c '
import os, socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.environ["RANK"] == "0"))
port = int(os.environ["MASTER_PORT"])
try:
    t = socket.socket(); t.bind(("", port)); print("free")
except OSError: print("held")
if os.environ["RANK"] == "0": s.bind(("", port)); s.listen()'
	[ "$(sort <<< "$output")" = $'[0]<stdout>:held\n[1]<stdout>:free' ]
}

@test "--tf-config: the addresses of all hosts; ports are held where their ranks are" {
	for hosts in n1:2,n2 n0:2,n2; do
		run -0 r --tf-config -H $hosts /usr/bin/python3 -c '
import json, os, socket
c = json.loads(os.environ["TF_CONFIG"])
workers = [worker.rsplit(":", 1) for worker in c["cluster"]["worker"]]
for address, port in workers:
    try: socket.socket().bind(("", int(port))); print(address, "free")
    except OSError: print(address, "held")
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((workers[c["task"]["index"]][0], int(workers[c["task"]["index"]][1]))); s.listen()'
		one=10.77.0.1
		[ $hosts = n1:2,n2 ] || one=10.77.255.254
		for rank in 0 1; do
			[ "$(sed -n "s/^\[$rank\]<stdout>://p" <<< "$output")" = "$one held
$one held
10.77.0.2 free" ] || { echo "$output"; false; }
		done
		[ "$(sed -n 's/^\[2\]<stdout>://p' <<< "$output")" = "$one free
$one free
10.77.0.2 held" ] || { echo "$output"; false; }
	done
}

@test "MASTER_ADDR if ssh_config alone knows where the other hosts are" {
	printf '%s\n' 'Host box*' 'HostName n2' 'StrictHostKeyChecking no' 'Host box3' 'ProxyJump n3' |
		on n0 sh -c 'cat > ~/.ssh/config'
	for hosts in localhost,box localhost,box3 n0,box,n1; do
		run -0 --separate-stderr r -H $hosts sh -c 'echo $MASTER_ADDR'
		[ "$(plain | uniq)" = 10.77.255.254 ]
	done
	on n0 rm /root/.ssh/config
}

@test "ranks meet at MASTER_ADDR when rank 0 is on this machine" {
	run -0 r -H n0,n1,n2 /usr/bin/python3 -c '
import os, socket
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank:
    import time
    for _ in range(200):
        try: s = socket.create_connection((os.environ["MASTER_ADDR"], port), 5); break
        except ConnectionRefusedError: time.sleep(0.05)
    s.sendall(b"%d" % rank)
else:
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((os.environ["MASTER_ADDR"], port)); s.listen()
    print(sorted(s.accept()[0].recv(1) for _ in range(2)))'
	[ "$output" = "[0]<stdout>:[b'1', b'2']" ]
}

@test "an ordinary user's job" {
	run -0 as alice n0 timeout 60 "$RUNNER" -H n0,n1,n2 sh -c 'echo $(id -un) $(hostname); umask'
	[ "$(plain)" = $'0022\n0022\n0022\nalice n0\nalice n1\nalice n2' ]
}

@test "a job through the real ssh" {
	run -0 --separate-stderr r -v --transport openssh -H n1:2,n2 sh -c 'cat; hostname'
	[ "$(plain)" = $'n1\nn1\nn2' ]
	[[ $stderr == *"n2 is up: "*"(openssh)"* ]]
	run -2 r --transport local -H n1 true
	says "'n1' is not this machine"
	hinted
}

# ---- a port per host ----

ports() { # HOST PORT...: its sshd listens there too; without PORT on 22 alone
	local h=$1; shift
	printf 'Port %s\n' 22 "$@" | on "$h" sh -c 'cat > /etc/ssh/vc_sshd.d/ports.conf'
	"$VCLUSTER" sshd "$h" reread
}

know() { # HOST PORT KEY-OF
	on n0 sh -c 'sed -n "s/^$3,[^ ]*/[$1]:$2/p" /etc/ssh/ssh_known_hosts >> ~/.ssh/known_hosts' sh "$@"
}

# bats test_tags=all
@test "a port per host: -H and host files, through libssh and ssh, and known_hosts with the port" {
	script hosts <<< $'n1 port=2222 slots=2\nn2:2223:1\nn3'
	# the port at which ssh reached its agent
	script port <<< 'tr "\0" "\n" < /proc/$PPID/environ | sed -n "s/^SSH_CONNECTION=.* /$(uname -n) /p"'
	ports n1 2222
	ports n2 2223
	for transport in ssh openssh; do
		know n1 2222 n3
		run -240 r --transport $transport -H n1:2222:2 true
		says 'n1:2222: its host key is not the one in known_hosts'
		on n0 rm /root/.ssh/known_hosts
		know n1 2222 n1
		know n2 2223 n2
		for hosts in '-H n1:2222:2,n2:2223:1,n3' '--hostfile /vc/t/hosts' '-p 2222 -H n1:2,n2:2223:1,n3:22:1'; do
			# shellcheck disable=SC2086 # words
			run -0 --separate-stderr r --transport $transport $hosts sh /vc/t/port
			[ "$(plain)" = $'n1 2222\nn1 2222\nn2 2223\nn3 22' ]
		done
		run -240 r -q --start-timeout 2 --transport $transport -H n1:2224:1 true
		says 'n1:2224: ' 'Connection refused'
		on n0 rm /root/.ssh/known_hosts
	done
	# an sshd of this machine is one of a container's, perhaps
	run -0 r -H n0:22:1 sh /vc/t/port
	[ "$(plain)" = 'n0 22' ]
	run -0 r -H n0 sh /vc/t/port
	[ -z "$output" ]
	ports n1
	ports n2
}

# ---- hosts that cannot be started ----

@test "a host that refuses: 240, it is named, and no rank was started anywhere" {
	"$VCLUSTER" sshd n3 stop
	run -240 r -q --start-timeout 5 -H n[1-3] touch /vc/t/started
	"$VCLUSTER" sshd n3 start
	says "root@n3:22" "Connection refused"
	hinted
	[ ! -e "$STATE/t/started" ]
	run -240 r --start-timeout 1 -H n1,nowhere7 touch /vc/t/started
	says "nowhere7"
	[ ! -e "$STATE/t/started" ]
}

@test "a host that refuses is named at once, with the reason; the job runs when its sshd does" {
	"$VCLUSTER" sshd n3 stop
	start -H n[1-3] hostname
	wait_for grep -q ^hint: "$T/err"
	[ ! -s "$T/out" ]
	"$VCLUSTER" sshd n3 start
	ended_with 0 n1 n2 n3
	[ "$(sed 's/.*>://' "$T/out" | sort | tr '\n' ' ')" = 'n1 n2 n3 ' ]
	[[ $(head -1 "$T/err") =~ ^'runner: warning: waiting for '.*'n3 (connection refused)'.*', at most '[23][0-9]' s more'$ ]]
	[ "$(tail -n +2 "$T/err" | cut -d ' ' -f 1)" = hint: ]
	grep -q '^hint: .*sshd runs there.*-H; --start-timeout' "$T/err"
}

# bats test_tags=all
@test "--start-timeout is kept, whatever a host waits for" {
	# a name server that drops what it is asked
	on n0 cp /etc/resolv.conf /run/resolv.conf
	on n0 sh -c 'echo nameserver 10.77.0.4 > /etc/resolv.conf'
	"$VCLUSTER" sshd n1 stop
	"$VCLUSTER" freeze n2
	"$VCLUSTER" netem n3 down
	"$VCLUSTER" netem n4 loss 99.9%
	kept() { # OPTION...
		local begin=${EPOCHREALTIME/./}
		run -240 --separate-stderr r --start-timeout 3 "$@" true
		took_ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
		((took_ms >= 3000 && took_ms < 5000))
	}
	for transport in ssh openssh; do
		thrice kept --transport $transport -H n1,n2,n3,nosuch
	done
	"$VCLUSTER" sshd n1 start
	"$VCLUSTER" thaw n2
	"$VCLUSTER" netem n3 up
	"$VCLUSTER" netem n4 clear
	on n0 cp /run/resolv.conf /etc/resolv.conf
}

# bats test_tags=all
@test "^C ends runner at once while it looks a name up" {
	on n0 cp /etc/resolv.conf /run/resolv.conf
	on n0 sh -c 'echo nameserver 10.77.0.4 > /etc/resolv.conf'
	"$VCLUSTER" netem n4 loss 99.9%
	start --start-timeout 60 -H nosuch true
	wait_for on n0 sh -c '[ "$(ls /proc/$(cat /run/runner.pid)/task | wc -l)" -gt 1 ]'
	signal INT
	status_of_job 5
	"$VCLUSTER" netem n4 clear
	on n0 cp /run/resolv.conf /etc/resolv.conf
	((status == 130))
}

# bats test_tags=all
@test "names without addresses are counted; other hosts of one failure each have user and port" {
	for transport in ssh openssh; do
		# a DNS label has at most 63 bytes, so that no name server is asked
		x=$(printf 'x%.0s' {1..64})
		run -240 r -q --start-timeout 5 --transport $transport -H "a$x,n1,b$x" true
		says "runner: no address for 2 hosts: a$x, b$x: " $'known\nhint: check the spelling'
		hinted
	done
	"$VCLUSTER" sshd n3 stop
	on n0 sh -c 'printf "Host box\nHostName n3\n" > ~/.ssh/config'
	run -240 r -q --start-timeout 2 -H n3,box true
	says 'runner: root@n3:22, root@box:22: cannot connect: Connection refused'
	hinted
	on n0 rm /root/.ssh/config
	"$VCLUSTER" sshd n3 start
}

# bats test_tags=all
@test "a host that hangs: 240 in time; the same trouble on several hosts is one line" {
	"$VCLUSTER" freeze n2
	"$VCLUSTER" freeze n3
	run -240 r --start-timeout 5 -H n[1-3] true
	"$VCLUSTER" thaw n2
	"$VCLUSTER" thaw n3
	says "n[2-3]"
	[ "$(grep -c '^runner: ' <<< "$output")" = 1 ]
}

@test "more ranks than slots, no GPUs, a rank for stdin that is not there: 2, and nothing runs" {
	run -2 r -np 5 -H n1:2,n2:2 true
	says "-np 5 asks for 5 ranks" "n[1-2]:2"
	run -2 r -H n1:gpus,n2:gpus touch /vc/t/started
	says "has no GPUs"
	run -2 r --stdin 4 -H n1:2,n2:2 touch /vc/t/started
	says "--stdin 4: there is no such rank"
	run -2 r --gpus 1 -H n1,n2 touch /vc/t/started
	says "--gpus: there is no GPU '1' on this host"
	[ ! -e "$STATE/t/started" ]
}

# ---- the agent ----

@test "an agent that is nowhere is sent to every host, and is there the next time" {
	on n0 sh -c 'mkdir /opt/berth; cp "$1" "$2" /opt/berth' sh "$RUNNER" "$AGENT"
	run -0 --separate-stderr on n0 timeout 60 /opt/berth/runner -v -H n1:2,n2:2 hostname < /dev/null
	[ "$(plain)" = $'n1\nn1\nn2\nn2' ]
	[[ $stderr == *"n1"*"sent"* && $stderr == *"n2"*"sent"* ]]
	for h in n1 n2; do
		run -0 on $h sh -c 'ls /opt; ls ~/.cache/berth'
		silent_on $'berth\n'
		says agent-
	done
	run -0 --separate-stderr on n0 timeout 60 /opt/berth/runner -v -H n1:2,n2:2 hostname < /dev/null
	[[ $stderr != *sent* ]]
	run -240 on n0 timeout 60 /opt/berth/runner --no-push -H n3,n4 hostname < /dev/null
	says "n[3-4]" "'/opt/berth/berth-agent'"
	hinted
	on n0 rm -r /opt/berth
	on n1 rm -r /root/.cache
	on n2 rm -r /root/.cache
}

# ---- environment ----

@test "environment, -x, --env-file, folder, umask and limits travel" {
	printf 'FROM_FILE="a b"\n' | script env
	run -0 on n0 env 'MINE=x  y' PMI_RANK=7 sh -c 'mkdir -p "/vc/t/my dir"; cd "/vc/t/my dir"; umask 027; ulimit -Sn 345; exec "$@"' sh \
		timeout 60 "$RUNNER" --mpi=none -H n1,n2 -x 'NEW=a=b c' --env-file /vc/t/env sh -c \
		'echo "$MINE|$NEW|$FROM_FILE|${PMI_RANK-}|$(pwd)|$(umask)|$(ulimit -Sn)"' < /dev/null
	[ "$(plain)" = $'x  y|a=b c|a b||/vc/t/my dir|0027|345\nx  y|a=b c|a b||/vc/t/my dir|0027|345' ]
	run -0 r -H n1,n2 --wdir /opt pwd
	[ "$(plain | uniq)" = /opt ]
}

@test "--export none: of the environments of both hosts only PATH and HOME of the rank's host" {
	run -0 on n0 env MINE=1 HOME=/odd PATH="$PATH:/odd" timeout 60 "$RUNNER" -H n1 --export none --no-tag \
		sh -c 'echo "$PATH|$HOME|${MINE-unset}|${USER-unset}|$RANK"' < /dev/null
	silent_on odd
	[[ $output =~ ^/[^|]*\|/[^|]*\|unset\|unset\|0$ ]]
	run -0 on n0 env MINE=1 HOME=/odd timeout 60 "$RUNNER" -H n1 --export MINE,HOME --no-tag \
		sh -c 'echo "$HOME|$MINE|${USER-unset}"' < /dev/null
	[ "$output" = "/odd|1|unset" ]
}

# A PMIx server has its tests in pmix.bats.
@test "nothing of the environment is on a command line, and nothing listens, on any host" {
	mark_clean n0 n1 n2
	printf 'echo "ready$RANK"; sleep 1000\n' | script waits
	printf 'FILE_PASS=secret-in-file\n' | script env
	on n0 env MY_TOKEN=secret-forwarded timeout 60 "$RUNNER" -H n1:2,n2 --mpi=none --env-file /vc/t/env \
		bash /vc/t/waits < /dev/null > "$T/out" 2> "$T/err" 3>&- &
	pid=$!
	for rank in 0 1 2; do
		wait_for grep -q "ready$rank" "$T/out"
	done
	for h in n0 n1 n2; do
		run ! on $h sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" "\n" | grep -e "^[s]ecret" -e "=[s]ecret"'
		run -0 trace $h
		[ "$(grep -e ^listens -e ^file "$BATS_FILE_TMPDIR/clean.$h")" = "$(grep -e ^listens -e ^file <<< "$output")" ]
	done
	run -0 on n2 sh -c 'cat $(grep -slzF BERTH_JOB= /proc/[0-9]*/environ) | tr "\0" "\n"'
	says MY_TOKEN=secret-forwarded FILE_PASS=secret-in-file
	on n0 sh -c 'kill $(pgrep -x runner)'
	ended_with 143 n1 n2
	all_clean n0 n1 n2
}

# ---- input and output ----

# bats test_tags=all
@test "stdin reaches a rank on another host: 20 MB" {
	on n0 sh -c 'head -c 20000000 /dev/urandom > /opt/random; sha256sum < /opt/random' > "$T/sum"
	for rank in 0 3; do
		run -0 on n0 timeout 60 "$RUNNER" --stdin $rank -H n1:2,n2:2 sh -c 'sha256sum; echo' < <(on n0 cat /opt/random)
		says "[$rank]<stdout>:$(cat "$T/sum")"
		[ "$(grep -c 'e3b0c44298fc1c149afbf4c8996fb924' <<< "$output")" = 3 ]
	done
	run -0 on n0 timeout 60 "$RUNNER" --stdin all -H n[1-2] sha256sum < <(on n0 cat /opt/random)
	[ "$(plain | uniq)" = "$(cat "$T/sum")" ]
	run -0 on n0 timeout 60 "$RUNNER" --no-tag -H n1 cat < <(seq 300000)
	[ "$(sha256sum <<< "$output")" = "$(seq 300000 | sha256sum)" ]
}

# bats test_tags=all
@test "output of four hosts at once: every byte, whole lines, each rank's in order" {
	on n0 timeout 60 "$RUNNER" --output-filename /opt/berth-log -H n[1-4] \
		sh -c 'seq -f "$RANK line %.0f" 200000; echo "err $RANK" >&2' < /dev/null > "$T/out" 2> "$T/err"
	for rank in 0 1 2 3; do
		grep -F "[$rank]<stdout>:" "$T/out" | cut -d: -f2- | cmp - <(seq -f "$rank line %.0f" 200000)
		grep -qFx "[$rank]<stderr>:err $rank" "$T/err"
	done
	[ "$(wc -l < "$T/out")" = 800000 ]
	# files: written where runner is, raw, and nowhere else
	run -0 on n0 sh -c 'cd /opt/berth-log; ls; cat rank.2/stderr; seq -f "3 line %.0f" 200000 | cmp - rank.3/stdout'
	[ "$output" = $'rank.0\nrank.1\nrank.2\nrank.3\nerr 2' ]
	for h in n1 n2 n3 n4; do
		run -1 on $h test -e /opt/berth-log
	done
	on n0 rm -r /opt/berth-log
}

@test "--report-bindings: what the kernel says of each rank" {
	run -0 --separate-stderr r --report-bindings -H n1:2,n2 sh -c 'echo $$ $(sed -n "s/Cpus_allowed_list:.//p" /proc/$$/status)'
	for rank in 0 1 2; do
		read -r pid cpus <<< "$(sed -n "s/^\[$rank\]<stdout>://p" <<< "$output")"
		[[ $stderr == *"runner: rank $rank on n$((rank / 2 + 1)), pid $pid: cpus $cpus, "* ]]
	done
	pid=
}

@test "--events: what happened, where, one JSON object a line" {
	# all run before one fails: hosts do not start at one time
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	rm -f "$STATE"/t/runs.*
	run -4 r --events /vc/t/events -H n1:2,n2 sh -c ': > /vc/t/runs.$RANK; [ $RANK = 2 ] || exec sleep 1000
		until [ -e /vc/t/runs.0 ] && [ -e /vc/t/runs.1 ]; do sleep 0.01; done; exit 4'
	run -0 /usr/bin/python3 -c '
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
of = lambda name: [e for e in events if e["event"] == name]
names = sorted({e["event"] for e in events})
print(sorted(e["host"] for e in of("host up")), sorted((e["rank"], e["host"]) for e in of("rank started")))
print([(e["rank"], e["host"], e["status"]) for e in of("cause")], len(of("rank ended")), events[-1]["event"], events[-1]["status"])
print(names if len(names) != 5 else "")' "$STATE/t/events"
	[ "$output" = "['n1', 'n2'] [(0, 'n1'), (1, 'n1'), (2, 'n2')]
[(2, 'n2', 4)] 3 end 4" ]
}

@test "--plan asks the agents, and starts nothing" {
	run -0 r --plan -H n1:2,n2:2 touch /vc/t/started
	says "plan: 4 ranks on 2 hosts"
	says $'\nn[1-2]: 2 ranks each'
	[ "$(grep -cE '^ *[01]  +[01]  ' <<< "$output")" = 2 ]
	[ ! -e "$STATE/t/started" ]
}

@test "an agent that was sent goes by the name of one that was installed" {
	on n0 sh -c 'mkdir /opt/alone && cp "$1"/bin/runner "$1"/bin/berth-agent /opt/alone' sh "$BUILD"
	RUNNER=/opt/alone/runner start -H n1 sleep 1000
	two() { [ "$(on n1 pgrep -cx berth-agent)" = 2 ]; }
	wait_for two
	signal TERM
	ended_with 143 n1
	on n1 rm -r /root/.cache/berth
}

@test "nothing is left of all these jobs" {
	left_on() {
		on "$1" sh -c 'pgrep -x berth-agent; grep -slzF BERTH_JOB= /proc/[0-9]*/environ;
			find /tmp /dev/shm -mindepth 1 -path "$0" -prune -o ! -path "/tmp/torchinductor*" ! -path "/dev/shm/berth-[0-9]*" -print |
				while read -r f; do case $0 in "$f"/*) ;; *) echo "$f" ;; esac; done' "$ROOT"
	}
	none_on() { # a guardian that has ended is there until sshd has seen it
		local left
		left=$(left_on "$1") && [ -z "$left" ]
	}
	for h in n0 n1 n2 n3 n4; do
		wait_for none_on $h || { left_on $h; return 1; }
	done
}
