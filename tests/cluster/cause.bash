# cause.bash: of ranks that talk to each other over 4 hosts one fails, the others because of it
# and at once, and what its agent says comes 300 ms after what theirs say.  Sourced after
# rounds.bash.
#
#   PROGRAMS, HOWS       what runs; how its rank fails
#   cause_ready          writes the programs
#   cause_round PROGRAM HOW EACH   EACH ranks on each host; says what is wrong, and fails
# shellcheck shell=bash disable=SC2016,SC2034,SC2153,SC2154

PROGRAMS='ring.py ddp.py'
HOWS=${HOWS:-kill segv oom exit exception}

cause_ready() {
	script fail.py <<- 'S'
		import ctypes, os, signal, sys

		class Wrong(Exception): pass

		def fail(*_):
		    how = os.environ["HOW"]
		    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
		    if how == "segv": ctypes.string_at(0)
		    if how == "oom":
		        hoard = []
		        while True: hoard.append(bytearray(os.urandom(1)) * (1 << 20))
		    if how == "exit": os._exit(3)
		    raise Wrong("as asked")

		signal.signal(signal.SIGUSR2, fail)
		def ready(): print(f"ready{os.environ['RANK']} {os.getpid()}", flush=True)
	S
	script ring.py <<- 'S'
		import os, socket, sys, time
		from fail import ready

		rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
		me = socket.socket()
		me.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		me.bind(("", 30000 + rank))
		me.listen()
		next_ = (rank + 1) % size
		where = "10.77.0.%d" % (next_ // int(os.environ["LOCAL_WORLD_SIZE"]) + 1)
		while True:
		    try: to = socket.create_connection((where, 30000 + next_)); break
		    except OSError: time.sleep(0.05)
		of = me.accept()[0]
		if rank == 0: to.sendall(b"x" * 100)
		turn = 0
		while True: # a neighbour that is gone ends us
		    token = of.recv(100)
		    if not token: sys.exit("the ring is broken")
		    if rank == 0: time.sleep(0.001)
		    to.sendall(token)
		    turn += 1
		    if turn == 3: ready()
	S
	script ddp.py <<- 'S'
		import os, torch, torch.distributed as dist
		from torch.nn.parallel import DistributedDataParallel
		from fail import ready

		torch.set_num_threads(1)
		dist.init_process_group("gloo")
		model = DistributedDataParallel(torch.nn.Linear(64, 10))
		step = torch.optim.SGD(model.parameters(), lr=0.01)
		turn = 0
		while True:
		    step.zero_grad()
		    model(torch.ones(8, 64)).sum().backward()
		    step.step()
		    turn += 1
		    if turn == 3: ready()
	S
}

# The words of the first line, and the status, for HOW.
expect_cause() { # PROGRAM HOW
	case $2 in
	kill) want_status=137 want_line='was ended by SIGKILL' ;;
	segv) want_status=139 want_line='was ended by SIGSEGV' ;;
	oom) want_status=137 want_line='was ended by the kernel: over the memory limit of [0-9]+ MiB' ;;
	exit) want_status=3 want_line='exited with status 3' ;;
	exception) want_status=1 want_line='exited with status 1' ;;
	esac
	# PyTorch's threads may abort the process while it takes itself apart
	[ "$1,$2" != ddp.py,exception ] || want_status='1|134' want_line='(exited with status 1|was ended by SIGABRT)'
	want_line="^runner: rank $victim on '$victim_host' \\(pid $victim_pid\\) $want_line"
}

cause_round() { # PROGRAM HOW EACH
	local python=/usr/bin/python3 np=$((4 * $3)) hosts='n1 n2 n3 n4' limit used own='' said ready
	[ "$1" != ddp.py ] || python=$PYTHON
	start -H "n[1-4]:$3" -x "HOW=$2" --kill-grace 2 sh -c 'ulimit -c 0; exec "$@"' sh "$python" "/vc/t/$1"
	all_ready || return
	victim=$((RANDOM % np))
	victim_host=n$((victim / $3 + 1)) victim_pid=$(rank_pid "$victim")
	limit=$(memory_limit "$victim_host")
	if [ "$2" = oom ]; then
		used=$(cat "${limit%/*}/memory.usage_in_bytes")
		echo "$((used + (64 << 20)))" > "$limit"
	fi
	"$VCLUSTER" netem n0 delay 300 0 "-s 10.77.0.${victim_host#n} -p tcp --sport 22"
	on "$victim_host" kill -USR2 "$victim_pid" || { cat "$T/out"; on "$victim_host" ps -eo pid,args; }
	status_of_job 30
	"$VCLUSTER" netem n0 clear
	[ "$2" != oom ] || echo -1 > "$limit"
	expect_cause "$1" "$2"
	own_line
	[[ $status =~ ^($want_status)$ ]] || { wrong "status $status, not $want_status"; return; }
	[[ $said =~ $want_line ]] || wrong "first line: $said, not $want_line"
}
