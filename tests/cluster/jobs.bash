# jobs.bash: what the tests of whole jobs on the cluster share.  `load jobs`.
#
#   r OPTION...              runner on n0, at most 60 s, its input empty
#   plain                    lines of $output without labels, sorted
#   script NAME              its input becomes /vc/t/NAME, which every host sees
#   start OPTION... PROGRAM  runner on n0 in the background; $T/out and $T/err, $pid
#   signal NAME              to the runner that start() started
#   ended_with STATUS        that runner ends, and no process of its job is left by then
#   ranks HOST, agents HOST  pids there
#   trace HOST               what jobs leave: processes, files, shared memory, sockets, cgroups; alike
#                            before and after
#   pmix_again COMMAND...    an srun with --mpi=pmix, up to three times where Slurm lost a connection
#   need_torch               first word of a test: skips where there is no PyTorch
#   all_clean HOST...        waits until trace says what mark_clean HOST... found
# shellcheck shell=bash disable=SC2001,SC2016,SC2034,SC2153,SC2154 # $ is for the hosts' shells; bats sets output

load ../cli/common

STATE=${VC_STATE:-/run/vcluster-${VC_NAME:-vc}}
PYTHON=$ROOT/build/venv/bin/python3

need_torch() { [ -e "$ROOT/build/venv/installed" ] || skip "no PyTorch in build/venv (make venv)"; }

r() { on n0 timeout -k 5 60 "$RUNNER" "$@" < /dev/null; }

# What ranks write, without tags; on a host of one core runner warns.
plain() { sed '/^runner: warning: .* ranks share [0-9]* cores\?$/d; s/^\[[0-9]*\]<std[a-z]*>://' <<< "$output" | sort; }

script() {
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	cat > "$STATE/t/$1"
}

# As a shell's foreground command has it: no signal ignored.
start() {
	truncate -s 0 "$T/out" "$T/err" # now, not when the background gets to it
	on n0 timeout -k 5 90 sh -c 'echo $$ > /run/runner.pid; exec "$@"' sh \
		env --default-signal "$RUNNER" "$@" < /dev/null > "$T/out" 2> "$T/err" 3>&- &
	pid=$!
}

signal() {
	on n0 sh -c 'kill -$1 $(cat /run/runner.pid)' sh "$1"
}

over() { ! kill -0 "$pid" 2> /dev/null; }

# Status of a job that may take LIMIT seconds to end.
status_of_job() { # LIMIT
	local i
	status=0
	for ((i = 0; i < $1 * 20 * ${SLOW:-1}; i++)); do
		over && break
		sleep 0.05
	done
	over || { echo "runner still runs"; cat "$T/err"; return 1; }
	wait "$pid" || status=$?
	pid=
}

ended_with() { # STATUS [HOST...]: none of the job is left on these hosts at that moment
	local want=$1 h left=''; shift
	status_of_job 30 || return
	for h; do
		left+=$(on "$h" sh -c 'grep -slzF BERTH_JOB= /proc/[0-9]*/environ; true')
	done
	if [ "$status" != "$want" ] || [ -n "$left" ]; then
		echo "status $status, not $want; left: $left"
		cat "$T/err"
		return 1
	fi
}

err_says() {
	local text
	for text; do
		grep -qF -- "$text" "$T/err" || { echo "not said: $text"; cat "$T/err"; return 1; }
	done
}

# The first line of runner's own, warnings apart.
first_line_says() {
	local line text
	line=$(grep '^runner: ' "$T/err" | grep -v -m 1 '^runner: warning: ')
	for text; do
		[[ $line == *"$text"* ]] || { echo "not in the first line: $text"; cat "$T/err"; return 1; }
	done
}

ranks() { on "$1" pgrep -f "${2-/vc/t/}" || true; }

# The guardian first: its parent is no agent.
agents() {
	on "$1" sh -c 'all=" $(pgrep -x berth-agent | tr "\n" " ") "
		for p in $all; do
			case $all in *" $(ps -o ppid= -p $p | tr -d " ") "*) agent="$agent $p" ;; *) echo $p ;; esac
		done
		for p in $agent; do echo $p; done'
}

trace() {
	on "$1" sh -c 'for f in $(grep -slzF BERTH_JOB= /proc/[0-9]*/environ); do
			echo "process $(tr "\0" " " < ${f%environ}cmdline)"
		done
		(pgrep -lx berth-agent; pgrep -lx berth-pmix) | sed "s/^/process /"
		find /tmp /dev/shm -mindepth 1 -path "$0" -prune -o ! -path "/dev/shm/berth-[0-9]*" -print 2> /dev/null | sed "s/^/file /"
		cat /proc/net/tcp /proc/net/tcp6 | awk "\$4 == \"0A\" {print \"listens\", \$2}"
		awk "\$8 ~ /^@/ {print \"socket\", \$8}" /proc/net/unix
		find /sys/fs/cgroup -type d -name "berth-*" | sed "s/^/cgroup /"
		ipcs -a | grep ^0x | sed "s/^/System V /"' "${VC_SHARE:-$ROOT}" | sort # $0: the hosts share it
}

# While slurmstepd of Slurm 22.05 starts tasks of a user, MUNGE may tell its PMIx plugin, "Unauthorized
# credential".  The plugin then rejects the connection of another host, and the step's fence never ends.
pmix_again() { # COMMAND...
	local turn status said
	said=$(mktemp "$T/said.XXXXXX")
	for turn in 1 2 3; do
		status=0
		"$@" > "$said" 2>&1 || status=$?
		if [ $status != 124 ] || ! grep -q 'Munge decode failed: Unauthorized credential' "$said"; then break; fi
		echo "# Slurm rejected a connection of its own at turn $turn" >&2
	done
	cat "$said"
	return $status
}

mark_clean() {
	local h
	for h; do
		trace "$h" > "$BATS_FILE_TMPDIR/clean.$h"
	done
}

clean() { [ "$(trace "$1")" = "$(cat "$BATS_FILE_TMPDIR/clean.$1")" ]; }

all_clean() {
	local h
	for h; do
		wait_for clean "$h" || { trace "$h" | diff "$BATS_FILE_TMPDIR/clean.$h" - | sed "s/^/$h: /"; return 1; }
	done
}
