# inject.bash: what can break a job, and what has to come of it.  Sourced after jobs.bash, on
# which it builds, by faults.bats, cause.bats, chaos.sh and tests/soak.
#
#   FAULTS                     their names
#   fault_options FAULT        options that runner needs for it (short times; a small disk)
#   fault_ready FAULT          before runner starts
#   inject FAULT HOST          breaks it now.  Sets blow_at (s), and victim (rank) and
#                              victim_pid where a rank is hit.  Fails if there was nothing to hit
#                              within $PATIENCE_S (10) s
#   expect FAULT HOST MOMENT [STATUS LINE]
#                              sets what must come of it: want_status (an extended regular
#                              expression), want_line (one, of the first line of runner's own, ""
#                              for none), want_lost (HOST where runner must say that it did not
#                              confirm, else "").  MOMENT: start, running or ending; STATUS and LINE
#                              are what the job comes to without the fault (0, none)
#   mend FAULT HOST            the host is whole again, and swept where only that can clean it
#
#   write_ranks                programs for ranks, in /vc/t.  Each says "readyRANK PID" once all
#                              of it runs, ends with 0 after USR1, by TERM, with 7 after USR2;
#                              messy takes $SLOW s for the first two, worker.py for TERM
#   rank_command NAME          words that run it
#     messy       bash, with a child in the background, one in a session of its own, one forked
#                 twice, and one that ignores what can be ignored
#     worker.py   PyTorch: gloo, and two DataLoader workers
#     stubborn    ignores TERM (so do its children); ends by KILL alone
#     mute        closes its stdout and stderr, and lives on
#     contained   messy in a PID namespace of its own (needs bwrap)
#     bomb        forks without end, as far as ulimit -u lets it; not as root, whom that does
#                 not bind
#     zombies.py  has children that are dead and that nobody reaps, at three levels
#     sysv        has a System V shared memory segment, marked to go with it
# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # code for hosts; the caller's variables

# And "nothing", which is none.
FAULTS='rank_killed agent_killed guardian_killed both_killed session_killed all_killed
	runner_killed runner_and_agent_killed rank_stopped agent_stopped host_cut host_frozen
	partitioned loss delay disk_full oom'

# For a bash on a host.
IN_HOST='
agents() { # the guardian first: its parent is no agent
	local all p parent agent=""
	all=" $(pgrep -x berth-agent | tr "\n" " ") "
	for p in $all; do
		read -r _ _ _ parent _ < /proc/$p/stat || continue
		case $all in *" $parent "*) agent="$agent $p" ;; *) echo $p ;; esac
	done
	for p in $agent; do echo $p; done
}
sessions() { pgrep -f "^sshd: .*@notty"; }
mains() { # "RANK PID" of main processes: of all children with one RANK the oldest
	local p r all
	all=$(agents | paste -sd ,)
	for p in ${all:+$(pgrep -P "$all")}; do
		r=$({ tr "\0" "\n" < /proc/$p/environ; } 2> /dev/null | sed -n "s/^RANK=//p")
		[ -z "$r" ] || echo "$r $p"
	done | sort -n -k 2 | awk "!seen[\$1]++"
}
soon() { # COMMAND...: its words, once there are as many as $least
	local i words
	for ((i = 0; i < tries; i++)); do
		words=$("$@")
		[ "$(wc -w <<< "$words")" -lt "${least:-1}" ] || { echo $words; return; }
		sleep 0.02
	done
	echo "nothing to hit" >&2
	return 1
}
'

in_host() { # HOST CODE [WORD...]
	local host=$1 code=$2; shift 2
	on "$host" bash -c "tries=$((${PATIENCE_S:-10} * 50))$IN_HOST$code" bash "$@"
}

# CODE says when it struck, and whom.
strike() { # HOST CODE [WORD...]
	local said
	said=$(in_host "$@") || return
	read -r blow_at victim victim_pid <<< "${said##*$'\n'}"
}

strike_rank() { # HOST SIGNAL
	strike "$1" 'all=$(soon mains) || exit
		set -- $1 $all
		echo $EPOCHREALTIME $2 $3
		kill -$1 $3' "$2"
}

memory_limit() { echo "/sys/fs/cgroup/memory/${VC_NAME:-vc}/$1/memory.limit_in_bytes"; }

inject() { # FAULT HOST
	victim='' victim_pid='' blow_at=$EPOCHREALTIME
	"inject_$1" "$2"
}

inject_nothing() { :; }
inject_rank_killed() { strike_rank "$1" KILL; }
inject_rank_stopped() { strike_rank "$1" STOP; }

strike_agent() { # HOST WHICH SIGNAL: WHICH is a list of words' numbers, 1 the guardian's, 2 the agent's
	strike "$1" 'least=2; set -- "$1" "$2" $(soon agents)
		[ -n "$4" ] || exit
		case $1 in 1) p=$3 ;; 2) p=$4 ;; *) p="$3 $4"; kill -STOP $p ;; esac # both at once
		echo $EPOCHREALTIME
		kill -$2 $p' "$2" "$3"
}

inject_agent_killed() { strike_agent "$1" 2 KILL; }
inject_guardian_killed() { strike_agent "$1" 1 KILL; }
inject_both_killed() { strike_agent "$1" 12 KILL; }
inject_agent_stopped() { strike_agent "$1" 2 STOP; }

inject_session_killed() {
	strike "$1" 'p=$(soon sessions) || exit
		echo $EPOCHREALTIME
		kill -KILL $p'
}

# What the ranks have daemonised stays: nothing here could still end it.
inject_all_killed() {
	strike "$1" 'least=2; p=$(soon agents) || exit
		p="$p $(sessions) $(mains | cut -d " " -f 2)"
		echo $EPOCHREALTIME
		kill -KILL $p'
}

inject_runner_killed() {
	strike n0 'p=$(soon pgrep -x runner) || exit
		echo $EPOCHREALTIME
		kill -KILL $p'
}

# In one blow, as far as runner can tell: it is stopped meanwhile.
inject_runner_and_agent_killed() {
	in_host "$1" 'least=2; soon agents > /dev/null' && on n0 pkill -STOP -x runner || return
	inject_both_killed "$1"
	on n0 pkill -KILL -x runner
}

inject_host_cut() {
	"$VCLUSTER" netem "$1" down # first, or its kernel would say goodbye
	"$VCLUSTER" kill "$1"
}

inject_host_frozen() { "$VCLUSTER" freeze "$1"; }
inject_partitioned() { "$VCLUSTER" netem "$1" down; }
inject_loss() { "$VCLUSTER" netem "$1" loss 20; }
inject_delay() { "$VCLUSTER" netem "$1" delay 200; }

inject_disk_full() { on n0 sh -c 'cat /dev/zero > /run/small/full 2> /dev/null; true'; }

# The host's memory ends, and the kernel takes the rank, not the one who asks for more; where it
# takes that one too, another goes on.  All this can take seconds: what little is left holds what
# the host's programs are read into.
inject_oom() {
	local limit used struck tries=3
	limit=$(memory_limit "$1")
	strike "$1" 'all=$(soon mains) || exit
		set -- $all
		echo 1000 > /proc/$2/oom_score_adj
		echo 0 $1 $2' || return
	used=$(cat "${limit%/*}/memory.usage_in_bytes")
	echo "$((used + (16 << 20)))" > "$limit"
	until struck=$(ask_for_memory "$1" "$victim_pid"); do
		on "$1" test -e "/proc/$victim_pid/fd/0" || break
		[ $((tries -= 1)) -gt 0 ] || return
	done
	blow_at=${struck:-$EPOCHREALTIME}
}

ask_for_memory() { # HOST PID: until that process is gone; says when
	on "$1" /usr/bin/python3 -c '
import os, sys, time
more = []
while os.path.exists("/proc/" + sys.argv[1] + "/fd/0"): # a zombie has no files
    more.append(bytearray(b"x") * (1 << 18)) # less than a rank gives back
    time.sleep(0.001)
    if len(more) > 4000: sys.exit("the kernel killed nobody")
print("%.6f" % time.time(), flush=True)' "$2"
}

fault_options() { # FAULT
	case $1 in
	host_cut | host_frozen | partitioned | agent_stopped) echo "--host-timeout 5 --start-timeout 10" ;;
	disk_full) echo "--output-filename /run/small/log" ;;
	esac
}

fault_ready() { # FAULT
	[ "$1" != disk_full ] ||
		on n0 sh -c 'mkdir -p /run/small && mount -t tmpfs -o size=256k small /run/small'
}

expect() { # FAULT HOST MOMENT [STATUS LINE]
	local lost="^runner: ([a-z]+@)?$2(:[0-9]+)?: " rank="^runner: rank $victim on '$2' \\(pid $victim_pid\\) was ended by "
	want_status=${4:-0} want_line=${5:-} want_lost=''
	case $1 in # what changes nothing, and what always does
	nothing | loss | delay | rank_stopped) return ;;
	runner_killed | runner_and_agent_killed) want_status=137 want_line='' && return ;;
	disk_full)
		[ "$3" != ending ] || return 0 # perhaps nothing more is written
		want_line="^runner: cannot write '/run/small/log/.*: No space left on device"
		[ "$want_status" != 0 ] || want_status=125
		return ;;
	host_cut | host_frozen | partitioned) want_lost=$2 ;;
	esac
	[ "$3" != ending ] || return 0 # there was a failure before
	want_status=241
	case $1 in
	rank_killed) want_status=137 want_line="${rank}SIGKILL" ;;
	oom) want_status=137 want_line="${rank}the kernel: over the memory limit of [0-9]+ MiB of cgroup " ;;
	host_cut | host_frozen | partitioned | agent_stopped) want_line="${lost}no message for [0-9]+ s" ;;
	*) want_line="${lost}(lost its agent|connection lost)" ;;
	esac
	case $3,$1 in
	start,rank_killed | start,oom) ;;
	start,*) # no rank may have been there yet; an agent that dies early is started in another way
		want_status='0|240|241' want_line="^$|$lost" want_lost='' ;;
	esac
}

mend() { # FAULT HOST
	local job
	case $1 in
	host_cut) "$VCLUSTER" boot "$2" ;;
	host_frozen) "$VCLUSTER" thaw "$2" ;;
	partitioned) "$VCLUSTER" netem "$2" up ;;
	loss | delay) "$VCLUSTER" netem "$2" clear ;;
	agent_stopped) in_host "$2" 'pkill -CONT -x berth-agent || true' ;;
	disk_full) on n0 umount -l /run/small ;;
	oom) echo -1 > "$(memory_limit "$2")" ;;
	runner_and_agent_killed)
		job=$(in_host "$2" '{
				cat $(grep -slzF BERTH_JOB= /proc/[0-9]*/environ) /dev/null | tr "\0" "\n"
				find /sys/fs/cgroup -type d -name "berth-*" | sed "s/.*berth-/BERTH_JOB=/; s/[.].*//"
			} | sed -n "s/^BERTH_JOB=//p" | head -1')
		[ -z "$job" ] || on "$2" "$AGENT" --sweep "$job" > /dev/null ;;
	esac
}

rank_command() { # NAME
	case $1 in
	worker.py) echo "$PYTHON /vc/t/$1" ;;
	*.py) echo "/usr/bin/python3 /vc/t/$1" ;;
	*) echo "bash /vc/t/$1" ;;
	esac
}

write_ranks() {
	script messy <<- 'S'
		trap '[ -z "$SLOW" ] || sleep "$SLOW"; seq 5000; echo "bye$RANK"; exit 0' USR1
		[ -z "$SLOW" ] || trap 'sleep "$SLOW"; exit 143' TERM
		trap 'exit 7' USR2
		sleep 1000 &
		setsid sleep 1000 &
		(setsid sleep 1000 & (trap '' HUP INT TERM USR1 USR2; exec sleep 1000) &)
		echo "ready$RANK $$"
		wait
		sleep 1000
	S
	script stubborn <<- 'S'
		trap '' TERM INT HUP
		trap 'exit 0' USR1
		trap 'exit 7' USR2
		sleep 1000 &
		setsid sleep 1000 &
		echo "ready$RANK $$"
		while :; do wait -n; done
	S
	script mute <<- 'S'
		trap 'exit 0' USR1
		trap 'exit 7' USR2
		echo "ready$RANK $$"
		exec > /dev/null 2>&1
		sleep 1000 &
		wait
	S
	script contained <<- 'S'
		trap 'exit 0' USR1
		trap 'exit 7' USR2
		bwrap --dev-bind / / --unshare-pid --proc /proc bash -c '
			sleep 1000 &
			setsid sleep 1000 &
			(setsid sleep 1000 & (trap "" HUP INT TERM USR1 USR2; exec sleep 1000) &)
			echo "inside$RANK"
			wait' &
		echo "ready$RANK $$"
		wait
		sleep 1000
	S
	script bomb <<- 'S'
		trap 'exit 0' USR1
		trap 'exit 7' USR2
		exec 3<> <(:)
		bomb() { bomb & bomb & wait; }
		{
			ulimit -u "${BOMB_MAX:-100}"
			while :; do bomb; done
		} 2> /dev/null &
		echo "ready$RANK $$"
		while :; do wait; read -r -t 1 -u 3; done # a bash that can't fork for 15 s gives up
	S
	script zombies.py <<- 'S'
		import os, signal, sys, time
		signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
		signal.signal(signal.SIGUSR2, lambda *_: os._exit(7))
		for level in range(3):
		    for _ in range(5):
		        if not os.fork(): os._exit(0) # stays a zombie: nobody waits
		    if os.fork(): break
		    os.setsid()
		if level == 0: print(f"ready{os.environ['RANK']} {os.getpid()}", flush=True)
		while True: time.sleep(1000)
	S
	script sysv <<- 'S'
		trap 'exit 0' USR1
		trap 'exit 7' USR2
		/usr/bin/python3 -c '
		import ctypes, time
		libc = ctypes.CDLL(None)
		libc.shmat.restype = ctypes.c_void_p
		one = libc.shmget(0, 1 << 16, 0o1600)
		libc.shmat(one, None, 0); libc.shmctl(one, 0, None)
		print("segment", flush=True); time.sleep(1000)' &
		echo "ready$RANK $$"
		wait
	S
	script worker.py <<- 'S'
		import os, signal, time, torch, torch.distributed as dist
		from torch.utils.data import DataLoader, Dataset

		torch.set_num_threads(1)
		enough = torch.zeros(1)
		signal.signal(signal.SIGUSR1, lambda *_: enough.fill_(1))
		signal.signal(signal.SIGUSR2, lambda *_: os._exit(7))
		if slow := os.environ.get("SLOW"):
		    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(float(slow)), os._exit(143)))

		class Numbers(Dataset):
		    def __len__(self): return 1 << 30
		    def __getitem__(self, i): return torch.ones(8) * (i % 7)

		def worker(_):
		    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
		    for signo in signal.SIGUSR2, signal.SIGTERM: signal.signal(signo, signal.SIG_DFL)

		dist.init_process_group("gloo")
		for step, batch in enumerate(DataLoader(Numbers(), batch_size=4, num_workers=2, worker_init_fn=worker)):
		    dist.all_reduce(batch)
		    all_enough = enough.clone()
		    dist.all_reduce(all_enough, dist.ReduceOp.MAX)
		    if all_enough.item(): break
		    if step == 5: print(f"ready{os.environ['RANK']} {os.getpid()}", flush=True)
		dist.destroy_process_group()
		print(*range(5000), f"bye{os.environ['RANK']}", sep="\n", flush=True)
	S
}
