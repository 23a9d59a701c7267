# scale.bash: what scale.bats and tests/soak/scale.sh share: what can be wrong with a host, and
# what is said of it.  Sourced; VC_NAME, ROOT, BUILD, VCLUSTER are set.
#
#   scale_setup N            an installation that only n0 has, for a cluster of N hosts; how long a
#                            start takes here now, and from that $patience_s for --start-timeout
#   scale_run OPTION...      runner on n0, one rank on each host; its stderr is $SCALE/err,
#                            its exit status $status, its time $took_ms.  PATIENCE among the
#                            options is $patience_s, doubled where sound hosts were late for it
#   break_host KIND HOST     slow, refusing, frozen, off, wrong_key, unknown_key, full, other_agent
#   mend_host KIND HOST
#   said_of KIND             what runner says of such a host, after its name
#   options_of KIND          what such a test gives runner
#   peak_kib                 the most memory that runner takes for such a job
#   memory_limit_mib         and what it may take
#   left                     processes of jobs on any host
# shellcheck shell=bash disable=SC2016,SC2034,SC2154 # $ is for the hosts' shells; for those who source it

SCALE_KINDS="slow refusing frozen off wrong_key unknown_key full other_agent"
BERTH=/opt/berth/bin # not in the folder that all hosts share: the agent has to be sent
KNOWN=/etc/ssh/ssh_known_hosts

scale_setup() { # N
	SCALE_N=$1 SCALE_HOSTS="n[1-$1]"
	SCALE=${VC_STATE:-/run/vcluster-$VC_NAME}/t
	mkdir -p "$SCALE"
	chmod 1777 "$SCALE"
	gcc -std=c11 -D_GNU_SOURCE -DBERTH_VERSION='"9.9.9"' -I"$ROOT" -o "$SCALE/other" \
		"$ROOT"/tests/helpers/fake_agent.c "$ROOT"/common/{buf,err,str,wire}.c || return
	"$VCLUSTER" exec n0 sh -c "mkdir -p $BERTH && cp \$1/bin/* $BERTH/" sh "$BUILD"
	scale_run true # the agent is in the cache of each host from now on
	scale_run true
	patience_s=$((4 + (took_ms * 4 + 999) / 1000))
	export SCALE_N SCALE_HOSTS SCALE patience_s
}

scale_run() {
	local try
	for try in 1 2 3; do
		_run_once "${@/#PATIENCE/${patience_s-}}"
		_sound_were_late || return 0
		patience_s=$((patience_s * 2))
	done
}

_run_once() {
	local begin=$EPOCHREALTIME
	status=0
	"$VCLUSTER" exec n0 timeout -k 5 $((100 * ${SLOW:-1})) $BERTH/runner --start-timeout $((90 * ${SLOW:-1})) -np "$SCALE_N" \
		-H "$SCALE_HOSTS" "$@" \
		< /dev/null > "$SCALE/out" 2> "$SCALE/err" || status=$?
	took_ms=$(((${EPOCHREALTIME/./} - ${begin/./}) / 1000))
}

# None of the kinds below gets as far as that.
_sound_were_late() {
	grep -qE 'no agent in time: (sshd there was checking keys|sshd there did not|the login|the agent)' \
		"$SCALE/err"
}

peak_kib() {
	_on n0 python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdin=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' $BERTH/runner --start-timeout 90 \
		-np "$SCALE_N" -H "$SCALE_HOSTS" true
}

memory_limit_mib() {
	if [ "$SCALE_N" -le 16 ]; then echo 32
	elif [ "$SCALE_N" -le 64 ]; then echo 48
	else echo 64; fi
}

_on() { "$VCLUSTER" exec "$@"; }

_keys() { # SED-SCRIPT: change n0's known hosts
	_on n0 sed -i "$1" $KNOWN
}

break_host() { # KIND HOST
	local h=$2
	case $1 in
	slow) "$VCLUSTER" netem "$h" delay 100 3>&- ;;
	refusing) "$VCLUSTER" sshd "$h" stop ;;
	frozen) "$VCLUSTER" freeze "$h" ;;
	off) "$VCLUSTER" netem "$h" down ;;
	wrong_key) _keys "s|^\($h,[^ ]* [^ ]*\) .*|\1 $(_on n0 sed -n 's/^n0,[^ ]* [^ ]* //p' $KNOWN)|" ;;
	unknown_key) _keys "/^$h,/d" ;;
	full) _on "$h" sh -c 'rm -rf /root/.cache; mkdir -p /root/.cache /run/user
		for d in /root/.cache /run/user /dev/shm; do mount -t tmpfs -o size=16k none $d; done' ;;
	other_agent) _on "$h" sh -c "rm -rf /root/.cache; mkdir -p $BERTH; cp /vc/t/other $BERTH/berth-agent" ;;
	esac
}

mend_host() { # KIND HOST
	local h=$2
	case $1 in
	slow) "$VCLUSTER" netem "$h" clear ;;
	refusing) "$VCLUSTER" sshd "$h" start ;;
	frozen) "$VCLUSTER" thaw "$h" ;;
	off) "$VCLUSTER" netem "$h" up ;;
	*_key) _on n0 cp /vc/etc/ssh_known_hosts $KNOWN ;;
	full) _on "$h" umount /root/.cache /run/user /dev/shm ;;
	other_agent) _on "$h" rm -rf $BERTH ;;
	esac
}

said_of() { # KIND
	case $1 in
	refusing) echo 'cannot connect: Connection refused' ;;
	frozen) echo 'no agent in time: sshd there accepted the connection and sent nothing' ;;
	off) echo 'no agent in time: nothing answers at that address' ;;
	wrong_key) echo 'its host key is not the one in known_hosts: ssh-ed25519 SHA256:' ;;
	unknown_key) echo 'its host key is not in known_hosts: ssh-ed25519 SHA256:' ;;
	full) echo "from any directory there: /root/.cache/berth is full or read-only" ;;
	other_agent) echo 'the agent has version 9.9.9 (protocol ' ;;
	esac
}

options_of() { # KIND
	case $1 in
	refusing | frozen | off) echo -q --start-timeout PATIENCE ;;
	other_agent) echo --no-push ;;
	esac
}

# The processes of all hosts, as this machine sees them.
left() {
	local name p
	cat /sys/fs/cgroup/pids/"$VC_NAME"/n*/cgroup.procs | while read -r p; do
		read -r name 2> /dev/null < "/proc/$p/comm" || continue
		if [ "$name" = berth-agent ] || grep -qszF BERTH_JOB= "/proc/$p/environ"; then
			echo "$p $name"
		fi
	done
}

nothing_left() {
	local i
	for ((i = 0; i < 100; i++)); do
		[ -n "$(left)" ] || return 0
		sleep 0.05
	done
	left
	return 1
}
