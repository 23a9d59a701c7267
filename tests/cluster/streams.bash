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

note_memory() { # once; of the hosts, the first stands for all
	local now
	now=$(peak n0 runner)
	runner_kib=$((${now:-0} > runner_kib ? ${now:-0} : runner_kib))
	now=$(peak n1 berth-agent)
	agent_kib=$((${now:-0} > agent_kib ? ${now:-0} : agent_kib))
}

note_until_over() { # PID
	runner_kib=0 agent_kib=0
	while kill -0 "$1" 2> /dev/null; do
		note_memory
		sleep 0.2
	done
}

in_bounds() { # HOSTS
	local most=32
	[ "${SAN:-}" != 1 ] || return 0 # the sanitizers' memory would be counted
	[ "$1" -le 16 ] || most=48
	[ "$1" -le 64 ] || most=64
	if [ "$runner_kib" = 0 ] || [ "$runner_kib" -gt $((most << 10)) ] || [ "$agent_kib" -gt $((32 << 10)) ]; then
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
		on n0 "$RUNNER" -q ${FLOOD_OPTIONS-} -H "$hosts" "$FLOW" write "$kind" "$SEED" "$bytes" < /dev/null 2> "$T/job.err" |
			"$@" 2> "$T/reader.err" | "$FLOW" check "$kind" "$SEED" "$bytes" "$np" 2> "$T/flow.err"
	} 3>&- &
	pid=$!
	note_until_over "$pid"
	wait "$pid" || { echo "seed $SEED, $kind on $hosts: $(cat "$T/flow.err" "$T/job.err" "$T/reader.err")"; return 1; }
}

feed() { # WHOM HOSTS BYTES
	local whom=$1 hosts=$2 bytes=$3 pid
	{
		set -o pipefail
		RANK=0 "$FLOW" write binary "$SEED" "$bytes" 2> "$T/flow.err" |
			on n0 "$RUNNER" -q --stdin "$whom" -H "$hosts" sh -c '[ "$1" != all ] && [ "$1" != $RANK ] || exec "$2" same binary "$3" "$4" 0' \
				sh "$whom" "$FLOW" "$SEED" "$bytes" > "$T/job.out" 2> "$T/job.err"
	} 3>&- &
	pid=$!
	note_until_over "$pid"
	wait "$pid" || { echo "seed $SEED, $bytes bytes to $whom on $hosts: $(cat "$T/flow.err" "$T/job.err" "$T/job.out")"; return 1; }
}
