#!/usr/bin/env bats
# limit_s: 240
# takes_s: 21
# shellcheck disable=SC2001,SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output
# Every error of common/errors.def that one machine can have without ssh: its sentence, its
# one hint, its exit status, as the tables have them.
load common

setup_file() {
	/usr/bin/python3 "$ROOT/tests/machines/mkmachine.py" "$BATS_FILE_TMPDIR" half-cores-2gpu > /dev/null
}

setup() {
	cd "$T" || return
}

teardown() {
	[ -z "${pid-}" ] || kill -KILL "$pid" "${guardian:-$pid}" "${agent:-$pid}" 2> /dev/null || true
}

# What errors.def and exits.h say of ID: status, the sentence with * for each %, the hint.
row() { # ID
	/usr/bin/python3 - "$ROOT/common" "$1" << 'P'
import re, sys
folder, id_ = sys.argv[1:]
status, text, hint = re.search(rf'^ERR\({id_}, (\w+), "((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"\)',
                               open(f"{folder}/errors.def").read(), re.M).groups()
print(re.search(rf"X\({status}, *(\d+),", open(f"{folder}/exits.h").read()).group(1))
print(re.sub(r"%[.*\d]*[lz]*[a-z]", "*", text))
print(hint)
P
}

# $output, and $status if it is not "any", are those of ID.  $HINT: another hint than the table's.
is_error() { # ID STATUS
	local want text hint
	{ read -r want; IFS= read -r text; IFS= read -r hint; } < <(row "$1")
	[ -n "$want" ] || { echo "no $1 in errors.def"; return 1; }
	[ "$2" = any ] || [ "$2" = "$want" ] || { echo "status $2, should be $want: $output"; return 1; }
	text="*$(sed 's/[][\\?]/\\&/g' <<< "$text")*"
	# shellcheck disable=SC2053 # a pattern
	[[ $output == $text ]] || { printf 'not said: %s\nsaid: %s\n' "$text" "$output"; return 1; }
	hint=${HINT-$hint}
	if [ -n "$hint" ]; then
		says "hint: $hint"
		hinted
	else
		silent_on "hint:"
	fi
}

# runner OPTION... fails with ID.
gives() { # ID OPTION...
	local id=$1; shift
	run timeout -k 5 20 "$RUNNER" "$@" < /dev/null
	is_error "$id" "$status"
}

# The same on a made-up machine of two GPUs.
gives_with_gpus() {
	HWLOC_XMLFILE=$BATS_FILE_TMPDIR/half-cores-2gpu.xml gives "$@"
}

# FILE of the lines; ID is what runner makes of it.
gives_file() { # ID OPTION LINES OPTION...
	local id=$1 option=$2
	printf '%b' "$3" > "$T/file"
	shift 3
	gives "$id" "$option" "$T/file" "$@" true
	says "file"
}

agent_script() {
	printf '#!/bin/sh\n%s\n' "$1" > "$T/agent"
	chmod +x "$T/agent"
}

# runner in the background, one rank that runs.
start() {
	env --default-signal "$RUNNER" "$@" -np 1 sh -c 'echo ready; sleep 100' < /dev/null > "$T/out" 2> "$T/err" &
	pid=$!
	wait_for grep -q ready "$T/out"
	guardian=$(pgrep -P "$pid")
	agent=$(pgrep -x -P "$guardian" berth-agent)
}
over() { [ ! -e "/proc/$pid" ]; }
ends() { # ID
	local status=0
	wait_for over
	wait "$pid" || status=$?
	output=$(grep -v '^  ' "$T/err")
	is_error "$1" "${2:-$status}"
}

# ---- options ----

@test "E_NUMBER" { gives E_NUMBER -np abc true; }
@test "E_OPTION" { gives E_OPTION --zzz true; }
@test "E_OPTION, with what was meant" { HINT="did you mean" run -2 "$RUNNER" --ouput-filename x true; says "--output-filename"; }
@test "E_OPTION_VALUE" { gives E_OPTION_VALUE -np; }
@test "E_OPTION_NO_VALUE" { gives E_OPTION_NO_VALUE --allow-run-as-root=x true; }
@test "E_OPTION_EMPTY" { gives E_OPTION_EMPTY --wdir '' true; }
@test "E_OPTION_APP" { gives E_OPTION_APP -np 1 a : --timeout 3 -np 1 b; }
@test "E_APP_FILE" { gives E_APP_FILE --hostfile /dev/null -np 1 a : -np 1 -H localhost b; }
@test "E_CHOICE" { gives E_CHOICE --transport foo true; }
@test "E_RANKFILE" { gives_file E_RANKFILE --rankfile 'x\n'; }
@test "E_RANKFILE_NP" { gives_file E_RANKFILE_NP --rankfile 'rank 0=localhost\nrank 1=localhost\n' -np 1; }
@test "E_SECONDS" { gives E_SECONDS --timeout x true; }
@test "E_DECIMAL" { gives E_DECIMAL --cycle-time-ms x true; }
@test "E_RANKS" { gives E_RANKS --show x true; }
@test "E_RANGE" { gives E_RANGE --net 10.0.0.0/33 true; }
@test "E_EXPORT" { gives E_EXPORT -x 9= true; }
@test "E_EXPORT_GPUS" {
	gives_with_gpus E_EXPORT_GPUS -np 2 --gpus 0 -x CUDA_VISIBLE_DEVICES=0,1 true
	says "'CUDA_VISIBLE_DEVICES=0,1' for the ranks contradicts --gpus"
	gives_with_gpus E_EXPORT_GPUS -np 1 -x CUDA_VISIBLE_DEVICES=0 true : -np 1 true
	gives_with_gpus E_EXPORT_GPUS -np 1 true : -np 1 -x CUDA_VISIBLE_DEVICES=0 true
}
@test "E_EXPORT_UNSET" {
	run -0 timeout 20 "$RUNNER" -np 1 -x NO_SUCH true
	HINT="give it a value: -x NO_SUCH=VALUE" is_error E_EXPORT_UNSET any
	says "warning: -x NO_SUCH"
	run -0 timeout 20 "$RUNNER" -q -np 1 -x NO_SUCH true
	[ "$output" = "" ]
}
@test "E_EXPORT_ALL" {
	A=5 run -0 timeout 20 "$RUNNER" -np 1 --no-tag --export ALL,A=s3cret printenv A
	says $'\n5'
	silent_on s3cret
	output=${output%$'\n5'}
	HINT="to change it, use -x A=VALUE" is_error E_EXPORT_ALL any
}
@test "E_VARIABLE" {
	BERTH_NPX=3 BERTH_FOO=1 run -0 timeout 20 "$RUNNER" -np 1 true
	HINT="did you mean BERTH_NP?" is_error E_VARIABLE any
	says "warning: unknown variable 'BERTH_NPX'"
	[ ${#lines[@]} = 2 ]
	BERTH_NPX=3 run -0 timeout 20 "$RUNNER" -q -np 1 true
	[ "$output" = "" ]
	# A rank's own environment has no such name.
	run -0 timeout 20 "$RUNNER" -np 1 --no-tag env -u BERTH_AGENT "$RUNNER" -np 1 true
	silent_on BERTH_
}
@test "E_TOPOLOGY_ARG" { gives E_TOPOLOGY_ARG --topology = true; }
@test "E_TWO_HOSTS" { gives E_TWO_HOSTS -H a --hostfile b true; }
@test "E_PROGRAM" { gives E_PROGRAM -np 2; }
@test "E_FOREIGN" { HINT="say where ranks run with -H, -ppn and --map-by" gives E_FOREIGN --npersocket 2 true; }
@test "E_HELP" { gives E_HELP --help nonsense; }
@test "E_CONFIG_READ" { gives E_CONFIG_READ --config-file /no/such/file true; }
@test "E_CONFIG_LINE" { gives_file E_CONFIG_LINE --config-file 'abc\n'; }
@test "E_CONFIG_KEY" { gives_file E_CONFIG_KEY --config-file 'np = 2\nfoo = 1\n'; says "file:2"; }
@test "E_CONFIG_YAML" { gives_file E_CONFIG_YAML --config-file 'params:\n  num-proc: 2\n'; }
@test "E_TOPOLOGY_PLAN" { gives E_TOPOLOGY_PLAN --topology x.xml -np 1 true; }
@test "E_STDIN_RANK" { gives E_STDIN_RANK --stdin 7 -np 2 true; }
@test "E_NODES" {
	gives E_NODES --nodes 2 true
	says "to be 2, but is 1 (this machine)"
	gives E_NODES --nnodes 3 -H a,b -np 1 true
	says "to be 3, but is 2 (-H)"
	gives E_NODES --nnodes 1 --hostfile <(printf 'a\nb\n') -np 1 true
}
@test "E_SRUN_N" {
	run -0 timeout 20 "$RUNNER" -N 1 --ntasks-per-node 1 true
	is_error E_SRUN_N any
}
@test "E_SHOW_RANK" {
	gives E_SHOW_RANK --show 9 -np 2 true
	says "--show 9"
	gives E_SHOW_RANK --show 0-70,errors -np 2 true
	says "--show 2"
	run -0 timeout 20 "$RUNNER" --show 0-1,errors -np 2 true
}
@test "E_LOG_DIR" { gives E_LOG_DIR --output-filename /etc/passwd/x -np 1 true; }
@test "E_LOG_NAME" { gives E_LOG_NAME --output-filename log.%x -np 1 true; }
@test "E_EVENTS_FILE" { gives E_EVENTS_FILE --events /no/such/folder/f -np 1 true; }
@test "E_REPORT_FILE" { gives E_REPORT_FILE --report /no/such/folder/f.json -np 1 true; }
@test "E_REPORT_NAME" { gives E_REPORT_NAME --report f.txt -np 1 true; gives E_REPORT_NAME --report .html -np 1 true; }
@test "E_ENV_FILE_READ" { gives E_ENV_FILE_READ --env-file /no/such/file true; }
@test "E_ENV_FILE_LINE" { gives_file E_ENV_FILE_LINE --env-file 'A=1\nB c\n'; says "file:2"; silent_on "B c"; }
@test "E_ENV_FILE_QUOTE" { gives_file E_ENV_FILE_QUOTE --env-file "A='b\n"; }
@test "E_ENV_FILE_DOLLAR" { gives_file E_ENV_FILE_DOLLAR --env-file 'A=$HOME\n'; }

# ---- hosts ----

@test "E_HOST_NAME" { gives E_HOST_NAME -H 'a b' true; gives E_HOST_NAME -H -x true; }
@test "E_HOST_USER" { gives E_HOST_USER -H 'u!@a' true; }
@test "E_HOST_ADDRESS" { gives E_HOST_ADDRESS -H '[fe80::zz]' true; }
@test "E_HOST_IPV6" { HINT="write '[fe80::1]' or '[fe80::1]:SLOTS'" gives E_HOST_IPV6 -H fe80::1 true; }
@test "E_HOST_BRACKET" { gives E_HOST_BRACKET -H 'gpu[01' true; }
@test "E_HOST_AFTER" { gives E_HOST_AFTER -H '[::1]x' true; }
@test "E_HOST_RANGE" { gives E_HOST_RANGE -H 'gpu[a-b]' true; }
@test "E_HOST_RANGE_ORDER" { gives E_HOST_RANGE_ORDER -H 'gpu[5-2]' true; }
@test "E_HOST_SLOTS" { gives E_HOST_SLOTS -H a:0 true; gives E_HOST_SLOTS -H a:x true; }
@test "E_HOST_SLOTS_AGAIN" { gives_file E_HOST_SLOTS_AGAIN --hostfile 'a:2 slots=3\n'; }
@test "E_HOST_MAX_SLOTS" { gives_file E_HOST_MAX_SLOTS --hostfile 'a slots=4 max_slots=2\n'; }
@test "E_HOST_SUM" { gives E_HOST_SUM -H a:65535,a:1 true; }
@test "E_HOST_USERS" { gives E_HOST_USERS -H u@a,v@a true; }
@test "E_HOST_GPUS_AGAIN" { gives E_HOST_GPUS_AGAIN -H a:gpus,a:gpus true; }
@test "E_HOSTS_MANY" { gives E_HOSTS_MANY -H 'a[1-99999999]' true; }
@test "E_HOSTFILE_READ" { gives E_HOSTFILE_READ --hostfile /no/such/file true; }
@test "E_HOSTFILE_EMPTY" { gives_file E_HOSTFILE_EMPTY --hostfile '# nothing\n\n'; }
@test "E_HOSTFILE_BINARY" { gives_file E_HOSTFILE_BINARY --hostfile 'a\0b\n'; }
@test "E_HOSTFILE_WORD" { gives_file E_HOSTFILE_WORD --hostfile 'a foo=3\n'; }
@test "E_NO_GPUS" { gives E_NO_GPUS -H localhost:gpus true; }
@test "E_SAME_HOST" { gives E_SAME_HOST -H localhost,127.0.0.1 true; }
@test "E_TRANSPORT_LOCAL" { gives E_TRANSPORT_LOCAL --transport local -H 192.0.2.1:1 true; }

# ---- map ----

@test "E_SLOTS" {
	HINT="use --oversubscribe to start more ranks than slots, or give more slots, as in 'localhost:9'" \
		gives E_SLOTS -np 9 -H localhost:2 true
	says "-np 9 asks for 9 ranks, but -H gives 2 slots (localhost:2)"
}
@test "E_SLOTS, where the numbers come from the environment" {
	BERTH_HOSTS=localhost:2 BERTH_NP=9 run -2 "$RUNNER" true
	says BERTH_HOSTS "2 slots"
}
@test "E_MAX_SLOTS" { gives_file E_MAX_SLOTS --hostfile 'localhost slots=1 max_slots=2\n' --oversubscribe -np 3 2> /dev/null || says "max_slots allows 2 slots"; }
@test "E_APP_HOSTS" { gives E_APP_HOSTS -np 1 a : -np 1 -H localhost b; }
@test "E_APP_NP" { gives E_APP_NP -np 1 a : b; }

# ---- ranks ----

@test "E_NOT_FOUND" {
	run -127 "$RUNNER" -np 1 /no/such/program
	is_error E_NOT_FOUND "$status"
	says "rank 0 on "
}
@test "E_NOT_EXECUTABLE" {
	gives E_NOT_EXECUTABLE -np 1 /etc/passwd
	HINT="name a program in that directory" gives E_NOT_EXECUTABLE -np 1 /etc
	says "cannot execute '/etc': Is a directory"
}
@test "E_WDIR" { gives E_WDIR --wdir /no/such/folder -np 1 true; }
@test "E_RANK_EXEC: names where it was looked for" {
	run -127 "$RUNNER" -np 1 -x PATH=/one:/two no-such-program
	HINT="no folder of PATH has it: /one:/two" is_error E_RANK_EXEC any
}
@test "E_RANK_EXIT" { run -3 "$RUNNER" -np 1 sh -c 'exit 3'; is_error E_RANK_EXIT any; }
@test "E_RANK_FAILED" {
	run -1 "$RUNNER" -np 1 bash -c 'echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD; read -r -u $PMI_FD'
	is_error E_RANK_FAILED any
	says "exited with status 0 between MPI_Init and MPI_Finalize"
}
@test "E_RANK_SIGNAL" { run -137 "$RUNNER" -np 1 sh -c 'kill -KILL $$'; is_error E_RANK_SIGNAL any; says SIGKILL; }
@test "E_TIMEOUT" { gives E_TIMEOUT --timeout 1 -np 1 sleep 20; }
@test "E_SPAWN: a word longer than the kernel takes" {
	printf '%0200000d' 0 > "$T/env"
	sed -i 's/^/BIG=/' "$T/env"
	gives E_SPAWN --env-file "$T/env" -np 1 true
}
@test "E_DISK" {
	trap '' XFSZ
	ulimit -f 1 # KiB
	gives E_DISK --output-filename "$T/log" -np 1 sh -c 'yes 2> /dev/null | head -c 4000; sleep 0.1' 2> /dev/null || says "the output now goes to the terminal only" "hint: free space on that disk"
	[ "$status" = 125 ]
}

@test "E_OUTPUT" {
	[ -c /dev/full ] || skip "no /dev/full"
	run bash -c 'timeout 20 "$0" -np 2 yes 2>&1 > /dev/full' "$RUNNER"
	is_error E_OUTPUT "$status"
}

# ---- placement ----

@test "E_TOPOLOGY" { gives E_TOPOLOGY --plan --topology /etc/passwd -np 1; }
@test "E_TOPOLOGY, of this machine" { HWLOC_XMLFILE=/etc/passwd gives E_TOPOLOGY -np 1 true; }
@test "E_GPU_LIST" {
	HINT="its GPUs are 0 = " gives_with_gpus E_GPU_LIST --gpus 9 -np 1 true
	HINT="it has no GPU that this job may use" gives E_GPU_LIST --gpus 0 -np 1 true
}
@test "E_GPU_SHARING" { gives_with_gpus E_GPU_SHARING --no-gpu-sharing -np 3 true; }
@test "E_GPU_NODE" { gives_with_gpus E_GPU_NODE --gpu-visible node -np 3 true; }
@test "E_BIND_OBJECTS" { gives E_BIND_OBJECTS --bind-to hwthread:4096 -np 1 true; }

# ---- agents ----

@test "E_AGENT_EXEC" { gives E_AGENT_EXEC --launch-agent /no/such/agent -np 1 true; }
@test "E_AGENT_START" {
	agent_script 'echo oops >&2; exit 4'
	gives E_AGENT_START --launch-agent "$T/agent" -np 1 true
	says "status 4" oops
}
@test "E_WIRE" {
	agent_script 'echo this is no agent'
	run timeout 20 "$RUNNER" --launch-agent "$T/agent" -np 1 true
	is_error E_WIRE any
	[ "$status" = 240 ]
}
@test "E_START_TIMEOUT" {
	agent_script 'exec cat > /dev/null'
	gives E_START_TIMEOUT --start-timeout 1 --launch-agent "$T/agent" -np 1 true
}
@test "E_HOST_SILENT" {
	start --host-timeout 4
	kill -STOP "$agent"
	wait_for over
	sed -i '/^hint:/q' "$T/err" # what did not confirm is said behind it
	ends E_HOST_SILENT
}
@test "E_UNCONFIRMED" {
	start
	kill -STOP "$guardian" "$agent"
	again() { # signals that come at once are one: until there were three
		kill -INT "$pid" 2> /dev/null || true
		over
	}
	wait_for again
	grep -q "did not confirm" "$T/err"
	grep -q -- "--sweep" "$T/err"
	kill -KILL "$agent" "$guardian"
	# shellcheck disable=SC2153 # common.bash sets AGENT
	"$AGENT" --sweep "$(sed -n 's/.*--sweep \([^`]*\)`.*/\1/p' "$T/err")" > /dev/null # and its cgroup
}
