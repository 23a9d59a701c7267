# common.bash: what the bats files share.  `load common` in tests/cli, `load ../cli/common`
# elsewhere.  Words of a bats file that uses it:
#
#   $RUNNER $AGENT $HELPERS   the programs, and the folder of what tests/helpers builds
#   T                         a folder of this test's own ($BATS_TEST_TMPDIR)
#   run -N COMMAND            bats' own: COMMAND must exit N; $output, ${lines[@]}
#   says TEXT...              each TEXT is in $output
#   silent_on TEXT            TEXT is not in $output
#   no_stderr                 $stderr is empty, but for the warning of a machine with few cores
#   hinted                    $output has exactly one `hint:` line, the last
#   wait_for COMMAND...        waits up to 30 s, times SLOW (tests/run), until the command succeeds
#   thrice COMMAND...         tries it up to three times, for what goes by time: who is held up
#                             is not so each time.  set -e is off in it
#   alive_with TEXT           pids whose environment has TEXT, this machine
#   clean_standin             removes what ranks that were killed left of a stand-in of a GPU
#   cluster_up N, cluster_down, on HOST COMMAND..., as USER HOST COMMAND...
#   need_cluster              first word of setup: skips where no cluster can be made
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
# shellcheck disable=SC2034 # for the bats files
RUNNER=$BUILD/bin/runner AGENT=$BUILD/bin/berth-agent HELPERS=$BUILD/helpers
T=${BATS_TEST_TMPDIR:-${BATS_FILE_TMPDIR:-${T:-/tmp}}} # a script outside bats has its own
VCLUSTER=$ROOT/tests/cluster/vcluster
bats_require_minimum_version 1.5.0

# A user's own configuration must not decide a test.
export HOME=${BATS_RUN_TMPDIR:-$T} LC_ALL=C.UTF-8
_shared=${BERTH_SHARED:-}
unset XDG_CONFIG_HOME "${!BERTH_@}" "${!SLURM_@}" "${!PMI_@}" "${!OMPI_@}" "${!PBS_@}" "${!LSB_@}" "${!FLUX_@}" \
	PE_HOSTFILE COBALT_NODEFILE HYDRA_HOST_FILE I_MPI_HYDRA_HOST_FILE
[ -z "$_shared" ] || export BERTH_SHARED=$_shared

# Suites run at a time: what belongs to a process that lives is another one's.
clean_standin() {
	local file pid
	for file in /dev/shm/standin-*; do
		pid=${file#*standin-} pid=${pid%%-*}
		[ -d "/proc/$pid" ] || rm -f "$file"
	done
}

says() {
	local text
	for text; do
		# shellcheck disable=SC2154 # bats sets output
		[[ $output == *"$text"* ]] || { printf 'not said: %s\nsaid: %s\n' "$text" "$output"; return 1; }
	done
}

silent_on() {
	[[ $output != *"$1"* ]] || { printf 'said, and should not be: %s\nsaid: %s\n' "$1" "$output"; return 1; }
}

no_stderr() {
	local few='^runner: warning: [^ ]+: [0-9]+ ranks share [0-9]+ cores?$'
	# shellcheck disable=SC2154 # bats sets stderr
	[[ -z $stderr || $stderr =~ $few ]] || { printf 'stderr: %s\n' "$stderr"; return 1; }
}

hinted() {
	if [ "$(grep -c '^hint: ' <<< "$output")" != 1 ] || [[ ${output##*$'\n'} != 'hint: '* ]]; then
		printf 'not one hint at the end: %s\n' "$output"
		return 1
	fi
}

wait_for() {
	local i
	for ((i = 0; i < 600 * ${SLOW:-1}; i++)); do
		"$@" && return
		sleep 0.05
	done
	echo "still not after $((30 * ${SLOW:-1})) s: $*"
	return 1
}

thrice() {
	local turn
	for turn in 1 2 3; do
		"$@" && return
		echo "# not so at turn $turn: $*"
	done
	return 1
}

# Zombies have no environment, so they never count.
alive_with() {
	grep -slzF -- "$1" /proc/[0-9]*/environ | sed 's,/proc/\([0-9]*\)/.*,\1,'
}

why_no_cluster() {
	if [ "$(id -u)" != 0 ]; then
		echo "the test cluster needs root"
	elif ! unshare --mount --net --pid --uts --ipc --fork ip link set lo up 2> /dev/null; then
		echo "no namespace with a network can be made here"
	elif [ ! -x /usr/sbin/sshd ]; then
		echo "no sshd (tests/deps check installs it)"
	fi
}

# bats 1.8 cannot skip in setup_file: a file calls cluster_up there, and need_cluster in setup.
cluster_up() {
	[ -n "$(why_no_cluster)" ] || "$VCLUSTER" up "$@" >&2
}

cluster_down() {
	[ -n "$(why_no_cluster)" ] || "$VCLUSTER" down >&2
}

need_cluster() {
	local why
	why=$(why_no_cluster)
	[ -z "$why" ] || skip "$why"
}

# A host has the environment of a log-in: there timeout(1) is told of SLOW.
on() {
	local word words=()
	for word; do
		if [ "$word" = timeout ] && [ "${SLOW:-1}" != 1 ]; then
			words+=(env SLOW="$SLOW" "$ROOT/tests/slow/timeout")
		else
			words+=("$word")
		fi
	done
	"$VCLUSTER" exec "${words[@]}"
}

as() { # USER HOST COMMAND...
	local user=$1; shift
	on -u "$user" "$@"
}
