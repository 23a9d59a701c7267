# streams.bash: what the tests of streams share with tests/soak/streams.sh.  `load streams`.
#
# $SEED decides the bytes (set it to repeat a run); tests/helpers/flow.c makes and checks them.
#
#   flood HOSTS KIND BYTES READER...   every rank writes BYTES of KIND, READER takes them, all
#                                      are checked; the highest memory is noted
#   feed WHOM HOSTS BYTES              stdin of BYTES to WHOM (a rank or all), likewise
#   in_bounds HOSTS                    what was noted is no more than is allowed for so many
#                                      hosts: runner 32 MiB to 16, 48 to 64, 64 to 256; agents 32
# shellcheck shell=bash disable=SC2016,SC2034,SC2086,SC2154 # $ is for the hosts' shells; options are words

FLOW=$HELPERS/flow
SEED=${SEED:-$RANDOM}

ranks_in() { on n0 "$RUNNER" -q --plan -H "$1" true | sed -n 's/^plan: \([0-9]*\) rank.*/\1/p'; }

peak() { # HOST PROGRAM: the highest VmHWM so far, KiB
	on "$1" sh -c 'for p in $(pgrep -x "$1"); do sed -n "s/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p" /proc/$p/status; done' sh "$2" 2> /dev/null |
		sort -n | tail -1
}

# The last word of a job: rank 0 has written or read all, and goes on when that was noted.  It is
# on n1, which stands for all hosts.
HOLD='"$@"; rc=$?; : > /vc/t/done.$$; until [ ! -e /vc/t/done.$$ ]; do sleep 0.02; done; exit $rc'

# The kernel has counted the peak of both programs: it is read once, while both still run.
note_when_done() { # PID
	local done=()
	runner_kib=0 agent_kib=0
	until [ -e "${done[0]}" ]; do
		kill -0 "$1" 2> /dev/null || return 0
		sleep 0.02
		done=("$STATE"/t/done.*)
	done
	runner_kib=$(peak n0 runner) agent_kib=$(peak n1 berth-agent)
	rm "${done[@]}"
}

in_bounds() { # HOSTS
	local most=32
	[ "${SAN:-}" != 1 ] || return 0 # the sanitizers' memory would be counted
	[ "$1" -le 16 ] || most=48
	[ "$1" -le 64 ] || most=64
	if [ "${runner_kib:-0}" = 0 ] || [ "${agent_kib:-0}" = 0 ] || [ "$runner_kib" -gt $((most << 10)) ] || [ "$agent_kib" -gt $((32 << 10)) ]; then
		echo "memory: runner $runner_kib KiB, agent $agent_kib KiB"
		return 1
	fi
}

flood() { # HOSTS KIND BYTES READER...
	local hosts=$1 kind=$2 bytes=$3 np pid
	shift 3
	np=$(ranks_in "$hosts")
	{
		set -o pipefail
		on n0 "$RUNNER" -q ${FLOOD_OPTIONS-} -H "$hosts" sh -c '[ $RANK = 0 ] || exec "$@"; '"$HOLD" \
			sh "$FLOW" write "$kind" "$SEED" "$bytes" < /dev/null 2> "$T/job.err" |
			"$@" 2> "$T/reader.err" | "$FLOW" check "$kind" "$SEED" "$bytes" "$np" 2> "$T/flow.err"
	} 3>&- &
	pid=$!
	note_when_done "$pid"
	wait "$pid" || { echo "seed $SEED, $kind on $hosts: $(cat "$T/flow.err" "$T/job.err" "$T/reader.err")"; return 1; }
}

feed() { # WHOM HOSTS BYTES
	local whom=$1 hosts=$2 bytes=$3 pid
	{
		set -o pipefail
		RANK=0 "$FLOW" write binary "$SEED" "$bytes" 2> "$T/flow.err" |
			on n0 "$RUNNER" -q --stdin "$whom" -H "$hosts" \
				sh -c 'whom=$1; shift; [ "$whom" = all ] || [ "$whom" = $RANK ] || exit 0; [ $RANK = 0 ] || exec "$@"; '"$HOLD" \
				sh "$whom" "$FLOW" same binary "$SEED" "$bytes" 0 > "$T/job.out" 2> "$T/job.err"
	} 3>&- &
	pid=$!
	note_when_done "$pid"
	wait "$pid" || { echo "seed $SEED, $bytes bytes to $whom on $hosts: $(cat "$T/flow.err" "$T/job.err" "$T/job.out")"; return 1; }
}
