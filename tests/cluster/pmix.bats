#!/usr/bin/env bats
# limit_s: 300
# takes_s: 38
# more: ends and strangers
# shellcheck disable=SC2001,SC2016,SC2030,SC2031,SC2034,SC2154 # $ is for the hosts' shells; bats sets output
# Clients of PMIx under runner: tests/mpi/client.c with the system's libpmix, release 4, and with
# Open MPI's release 5.
load jobs
load mpis

OMPI=$ROOT/build/peers/ompi
LAYOUTS=(n1:4 "n1:2,n2:2" "n[1-4]:1")

setup_file() {
	cluster_up 4
	compile_client "$BATS_FILE_TMPDIR"
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	[ -x "$BATS_FILE_TMPDIR/client" ] || skip "no libpmix-dev (tests/deps check installs it)"
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	[ -x "$STATE/t/client" ] || cp "$BATS_FILE_TMPDIR/client" "$STATE/t"
	RELEASES=(4)
	[ ! -e "$OMPI/complete" ] || RELEASES+=(5)
}

# CLIENT [SERVER]: sets WITH to runner's options for these releases of libpmix.
releases() {
	local of5=$OMPI/lib/openmpi
	WITH=(-q --no-tag)
	[ "$1" = 4 ] || WITH+=(-x "LD_LIBRARY_PATH=$of5")
	case ${2-$1} in
	4) WITH+=(-x BERTH_PMIX_LIBRARY=libpmix.so.2) ;;
	5) WITH+=(-x "BERTH_PMIX_LIBRARY=$of5/libpmix.so.2") ;;
	esac
}

said_by() { # N LINE: with R for each rank
	[ "$(sed 's/^rank [0-9]*/rank R/' <<< "$output" | grep -cxF -- "$2")" = "$1" ] ||
		{ echo "not said $1 times: $2"; echo "$output"; return 1; }
}

# ---- what works ----

@test "the job as PMIx says it, fences, direct modex, parts of the ranks, texts" {
	local release hosts one
	for release in "${RELEASES[@]}"; do
		releases "$release"
		for hosts in "${LAYOUTS[@]}"; do
			run -0 --separate-stderr r "${WITH[@]}" -H "$hosts" /vc/t/client versions info fence=20 \
				nodata big some=1000 connect log
			said_by 4 "rank R: client $release, server $release"
			said_by 4 "rank R of 4: ok"
			for one in fence nodata big connect log; do
				said_by 4 "rank R: $one: ok"
			done
			said_by 4 "rank R: 1000 fences"
			said_by 4 "rank R logs to stdout"
			output=$stderr said_by 4 "rank R logs to stderr"
		done
	done
}

# Equal within a group, different between groups: "group NAME ID" of each member.
@test "groups with ids" {
	local release hosts said
	for release in "${RELEASES[@]}"; do
		releases "$release"
		for hosts in "${LAYOUTS[@]}"; do
			run -0 r "${WITH[@]}" -H "$hosts" /vc/t/client group group
			said_by 8 "rank R: group: ok"
			said=$(grep '^group ' <<< "$output")
			[ "$(wc -l <<< "$said")" = 32 ]
			# two turns of all, even and odd, twice
			[ "$(sort -u <<< "$said" | wc -l)" = 12 ]
			[ "$(cut -d ' ' -f 3 <<< "$said" | sort -u | wc -l)" = 12 ]
		done
	done
}

@test "ranks in turns on the hosts, programs" {
	releases 4
	run -0 r "${WITH[@]}" --map-by node -np 5 -H n1:2,n2:2,n3:1 /vc/t/client info fence=3 some=3 nodata
	said_by 5 "rank R of 5: ok"
	said_by 5 "rank R: nodata: ok"
	run -0 r "${WITH[@]}" -H n1:2,n2:2 -np 1 /vc/t/client info=0 fence=3 : -np 3 /vc/t/client info=1 fence=3
	said_by 4 "rank R of 4: ok"
	said_by 4 "rank R: fence: ok"
}

# bats test_tags=all
@test "clients of another release than the server" {
	local hosts
	[ "${#RELEASES[@]}" = 2 ] || skip "Open MPI 5 is not installed (tests/bench/peers.sh ompi)"
	for hosts in "${LAYOUTS[@]}"; do
		releases 5 4
		run -0 r "${WITH[@]}" -H "$hosts" /vc/t/client versions info fence=20
		said_by 4 "rank R: client 5, server 4"
		said_by 4 "rank R of 4: ok"
		said_by 4 "rank R: fence: ok"
	done
}

@test "what Berth does not do fails at once" {
	local release one
	for release in "${RELEASES[@]}"; do
		releases "$release"
		run -0 timeout 15 "$VCLUSTER" exec n0 "$RUNNER" "${WITH[@]}" -H n1:2,n2:2 /vc/t/client spawn alloc control table
		for one in spawn alloc control table; do
			[ "$(grep -c "^rank [0-9]: $one: [A-Z_-]*$" <<< "$output")" = 4 ] || { echo "$output"; return 1; }
		done
		silent_on SUCCESS
	done
}

# ---- ends ----

# RELEASE HOSTS STATUS TEXT CASE...: the job ends with STATUS, and one line says why.
fails() {
	local begun=$SECONDS release=$1 hosts=$2 want=$3 text=$4
	shift 4
	releases "$release"
	run r "${WITH[@]}" -H "$hosts" /vc/t/client "$@"
	if [ "$status" != "$want" ] || [ "$(grep -c '^runner: ' <<< "$output")" != 1 ] ||
		! grep -qx "runner: rank 1 on 'n[12]' (pid [0-9]*) $text" <<< "$output" ||
		[ $((SECONDS - begun)) -ge 20 ]; then
		echo "release $release on $hosts, $*: status $status after $((SECONDS - begun)) s: $output"
		return 1
	fi
}

@test "PMIx_Abort, ranks that end without PMIx_Finalize, ranks that are killed" {
	local release hosts in
	mark_clean n1 n2
	for release in "${RELEASES[@]}"; do
		for hosts in n1:4 n1:2,n2:2; do
			fails "$release" "$hosts" 5 "called MPI_Abort with 5: because of a test" abort=5
			fails "$release" "$hosts" 1 "exited with status 0 between MPI_Init and MPI_Finalize" leave
			for in in fence connect group get; do
				fails "$release" "$hosts" 137 "was ended by SIGKILL" "die=$in"
			done
		done
	done
	all_clean n1 n2
}

# All at one time, for each waits for 2 s.  Of ranks on the host of the dead one libpmix takes care itself:
# release 5 tells only some of them that a fence has failed, and both may let them wait for ever for a group
# or a key.
# libpmix ends some without the host: 4 a group of one host's ranks, 5 fences, with success.
# bats test_tags=all
@test "with --keep-going nobody waits for a rank that is dead" {
	local release in hosts pids=() of=() i said
	for release in "${RELEASES[@]}"; do
		releases "$release"
		for in in get list connect group; do
			for hosts in n1:4 n1:2,n2:2; do
				r "${WITH[@]}" --keep-going -H "$hosts" /vc/t/client "late=$in" > "$T/late.${#pids[@]}" 2>&1 &
				pids+=($!) of+=("$release late=$in on $hosts")
			done
		done
		wait "${pids[@]}" || true
	done
	for i in "${!pids[@]}"; do
		said=$(cat "$T/late.$i")
		echo "${of[i]}: $said"
		[ "$(grep -c "^runner: rank 1 on 'n1' (pid [0-9]*) was ended by SIGKILL" <<< "$said")" = 1 ]
		[ "$(grep -c '^rank [023]: late: ' <<< "$said")" = 3 ]
		case ${of[i]} in
		"4 late=group on n1:4" | "5 late=list "*) ;;
		*) [[ $said != *late:\ *SUCCESS* ]] ;;
		esac
	done
}

# libpmix tells its host nothing of a group whose other members on the dead rank's host are in it already, nor of
# what one rank of that host asked of another before that had called PMIx_Init: both have no end.
# bats test_tags=all
@test "with --keep-going the others get an error" {
	local release in hosts pids=() of=() i said
	mark_clean n1 n2 n3 n4
	for release in "${RELEASES[@]}"; do
		releases "$release"
		for in in fence connect get group; do
			for hosts in n1:2,n2:2 "n[1-4]:1"; do
				[[ $in,$hosts != @(group|get),n1:2,n2:2 ]] || continue
				r "${WITH[@]}" --keep-going -H "$hosts" /vc/t/client "die=$in" > "$T/keep.${#pids[@]}" 2>&1 &
				pids+=($!) of+=("$release die=$in on $hosts")
			done
		done
	done
	for i in "${!pids[@]}"; do
		status=0
		wait "${pids[i]}" || status=$?
		said=$(cat "$T/keep.$i")
		echo "${of[i]}: status $status: $said"
		[ "$status" = 137 ]
		[ "$(grep -c "^runner: rank 1 on 'n[12]' (pid [0-9]*) was ended by SIGKILL" <<< "$said")" = 1 ]
		[ "$(grep -c '^rank [023]: die: ' <<< "$said")" = 3 ]
		case ${of[i]} in
		"5 die=fence on n1:2,n2:2") [ "$(grep -c '^rank [0-9]: die: .*LOST' <<< "$said")" -ge 2 ] ;;
		*) [[ $said != *die:\ *SUCCESS* ]] ;;
		esac
	done
	all_clean n1 n2 n3 n4
}

# WHOM: of the second host, in a job whose ranks wait in a fence.
kill_in_fence() {
	local pids
	start -q --no-tag -H n1:2,n2:2 /vc/t/client wait
	wait_for all_wait 4
	case $1 in
	server) pids=$(on n2 pgrep -x berth-pmix) ;;
	agent) pids=$(agents n2 | tail -1) ;;
	"agent and guardian") pids=$(agents n2) ;;
	all) pids=$(on n2 sh -c 'pgrep -x berth-pmix; pgrep -x berth-agent') ;;
	esac
	# shellcheck disable=SC2086 # words
	on n2 sh -c 'kill -STOP "$@"; kill -KILL "$@"' sh $pids # none sees the end of another
}

all_wait() { [ "$(grep -c '^rank [0-9]: waits$' "$T/out")" = "$1" ]; }

no_ranks() { [ -z "$(ranks "$1"; on "$1" pgrep -x berth-pmix)" ]; }

@test "the PMIx server is killed: the job says so" {
	mark_clean n1 n2
	kill_in_fence server
	status_of_job 20
	# a rank may have ended before its agent saw it
	if [ "$status" = 241 ]; then
		first_line_says "n2: the PMIx server of the ranks is lost: its process has ended"
	else
		[[ $(head -1 "$T/err") == *"on 'n2' "*" lost its PMIx server: its process has ended" ]] ||
			{ cat "$T/err"; return 1; }
	fi
	all_clean n1 n2
}

# bats test_tags=all
@test "the agent is killed: nothing is left; its guardian and the server, too: the next job clears up" {
	mark_clean n1 n2
	kill_in_fence agent
	status_of_job 30
	[ "$status" = 241 ]
	all_clean n1 n2
	kill_in_fence "agent and guardian"
	status_of_job 30
	[ "$status" = 241 ]
	wait_for no_ranks n2
	run -0 r -q --no-tag -H n2:2 /vc/t/client info
	all_clean n1 n2
	kill_in_fence all # runner's sweep may come before or after the end of the ranks that use the folders
	status_of_job 30
	[ "$status" != 0 ] || { cat "$T/err"; return 1; }
	wait_for no_ranks n2
	run -0 r -q --no-tag -H n2:2 /vc/t/client info
	all_clean n1 n2
}

# ---- the server's process ----

# PID...: sockets, pipes and files that these processes of n1 have open.
open_in() {
	on n1 sh -c 'for p; do
			for f in /proc/$p/fd/*; do readlink "$f"; done
		done | grep -v "^/dev/null$\|^anon_inode:" | sort -u' sh "$@"
}

@test "the server shares nothing with the agent, its cgroup neither with ranks; it listens on 127.0.0.1" {
	local server=() folder others cgroup
	mark_clean n1
	start -q --no-tag -H n1:2 /vc/t/client wait
	wait_for all_wait 2
	mapfile -t server < <(on n1 pgrep -x berth-pmix)
	[ "${#server[@]}" = 1 ]
	others=$(on n1 sh -c 'pgrep -x berth-agent; pgrep -x client')
	[ "$(wc -l <<< "$others")" = 4 ]
	folder=$(on n1 sh -c 'ls -d /tmp/berth-pmix-*')
	[[ $(on n1 stat -c %a "$folder") = 700 ]]
	open_in "${server[0]}" > "$T/server"
	# shellcheck disable=SC2086 # words
	open_in $others > "$T/others"
	[ -s "$T/server" ]
	[ -s "$T/others" ]
	run -0 comm -12 "$T/server" "$T/others"
	[ -z "$output" ]
	run -1 grep -v '^socket:\|^pipe:' <(grep -v "^$folder/" "$T/server")
	cgroup=$(on n1 cat "/proc/${server[0]}/cgroup")
	[[ $cgroup != *berth-* ]]
	# what it listens on: addresses of LISTEN sockets that are its own
	on n1 sh -c 'cat /proc/net/tcp /proc/net/tcp6' | awk '$4 == "0A" {print "socket:[" $10 "]", $2}' |
		grep -F -f <(grep ^socket: "$T/server") > "$T/listens"
	[ "$(wc -l < "$T/listens")" = 1 ]
	grep -q ' 0100007F:' "$T/listens"
	signal INT
	status_of_job 20
	all_clean n1
}

# ---- strangers ----

# RELEASE [OPTION...]: a job whose ranks wait before PMIx_Init for gate_opens; ENVIRONMENT is what
# rank 0 has for it, PORT the server's on n1.
gate() {
	releases "$1"
	rm -f "$STATE/t/open" "$STATE/t/environment"
	start "${WITH[@]}" "${@:2}" sh -c '[ "$RANK" != 0 ] || env | grep ^PMIX_ > /vc/t/environment; echo "rank $RANK: waits"
		until [ -e /vc/t/open ]; do sleep 0.01; done; exec /vc/t/client info fence=20'
	wait_for all_wait 4
	mapfile -t ENVIRONMENT < "$STATE/t/environment"
	PORT=$(sed -n 's/^PMIX_SERVER_URI41=.*:\([0-9]*\)$/\1/p' "$STATE/t/environment")
	[ -n "$PORT" ]
}

gate_opens() { : > "$STATE/t/open"; }

# The ranks of gate() come to their end as if there was nobody else.
ranks_are_well() {
	status_of_job "$1"
	output=$(cat "$T/out" "$T/err")
	[ "$status" = 0 ] || { echo "status $status: $output"; return 1; }
	said_by 4 "rank R of 4: ok"
	said_by 4 "rank R: fence: ok"
}

# Of a process: N connections to PORT, then "open"; at the end of its input, how many of them were
# closed, and heard nothing.
STRANGERS='import select, socket, sys
n, port = int(sys.argv[1]), int(sys.argv[2])
all = [socket.create_connection(("127.0.0.1", port)) for _ in range(n)]
print("open", flush=True)
sys.stdin.read()
def closed(s):
    s.settimeout(10)
    try: return s.recv(1) == b""
    except ConnectionResetError: return True
    except TimeoutError: return False
print("closed", sum(map(closed, all)))'

# RELEASE N -> MS: how long the ranks take for PMIx_Init and all after it, while N connections of another user
# to the server are open and silent.
time_beside() {
	local begun hold
	: > "$T/strangers"
	gate "$1" -H n1:4
	exec {hold}> >(as bob n1 /usr/bin/python3 -c "$STRANGERS" "$2" "$PORT" > "$T/strangers" 2>&1 3>&-)
	wait_for grep -qx open "$T/strangers"
	begun=$EPOCHREALTIME
	gate_opens
	ranks_are_well 30
	MS=$(((${EPOCHREALTIME/./} - ${begun/./}) / 1000))
	exec {hold}>&-
	wait_for grep -qx "closed $2" "$T/strangers" || { cat "$T/strangers"; return 1; }
}

# bats test_tags=all
@test "a thousand silent connections of another user do not hold up PMIx_Init" {
	local release alone
	mark_clean n1
	for release in "${RELEASES[@]}"; do
		time_beside "$release" 0
		alone=$MS
		time_beside "$release" 1000
		echo "release $release: $MS ms, $alone ms without strangers"
		[ "$MS" -lt 10000 ]
		all_clean n1
	done
}

# USER NAME=VALUE...: a client of PMIx that begins as rank 0 does, but for these, and says that it is root.
forged() {
	run as "$1" n1 env "${ENVIRONMENT[@]}" ASAN_OPTIONS="${ASAN_OPTIONS-}:verify_asan_link_order=0" LD_PRELOAD="$HELPERS/libforge.so" FORGED_ID=0 "${@:2}" timeout -k 5 30 /vc/t/client
	says "PMIx_Init: PMIx_Init: " "forged 0: heard 0 bytes"
	[ "$status" = 4 ]
}

# bats test_tags=all
@test "a client that is of another user, or knows no namespace, gets nothing and changes nothing" {
	local release with
	mark_clean n1 n2
	for release in "${RELEASES[@]}"; do
		gate "$release" -H n1:2,n2:2
		with=()
		[ "$release" = 4 ] || with=("LD_LIBRARY_PATH=$OMPI/lib/openmpi")
		forged bob "${with[@]}"
		forged bob "${with[@]}" PMIX_RANK=1
		forged root "${with[@]}" "PMIX_NAMESPACE=berth-$(printf '%032d' 0)"
		forged root "${with[@]}" PMIX_RANK=99
		forged root "${with[@]}" PMIX_RANK=2 # of another host
		gate_opens
		ranks_are_well 30
		all_clean n1 n2
	done
}

# The agent has seen no client then.
# bats test_tags=all
@test "the PMIx server is killed before PMIx_Init: the job says so" {
	mark_clean n1 n2
	gate 4 -H n1:2,n2:2
	on n1 pkill -KILL -x berth-pmix
	gate_opens
	status_of_job 20
	[ "$status" = 4 ]
	[[ $(head -1 "$T/err") = "rank "[01]": PMIx_Init: "* ]]
	[[ $(grep -m 1 '^runner: ' "$T/err") = "runner: rank "[01]" on 'n1' (pid "*") exited with status 4 after it lost its PMIx server: its process has ended" ]]
	all_clean n1 n2
}

# bats test_tags=all
@test "each epoch has a namespace of its own, which is not the id of the job" {
	local said job
	# of the first failure both have come: rank 1 waits for rank 0
	run r -q --no-tag --restarts 1 -H n1:2 sh -c 'echo "$PMIX_NAMESPACE $BERTH_JOB"; at=/tmp/$BERTH_JOB.$TORCHELASTIC_RESTART_COUNT
		[ "$RANK" = 1 ] || { : > "$at"; exec sleep 100; }
		until [ -e "$at" ]; do sleep 0.01; done; rm "$at"; exit 3'
	[ "$status" = 3 ]
	said=$(grep '^[^ ]* [0-9a-f]\{32\}$' <<< "$output")
	[ "$(wc -l <<< "$said")" = 4 ]
	[ "$(cut -d ' ' -f 1 <<< "$said" | sort -u | wc -l)" = 2 ]
	job=$(cut -d ' ' -f 2 <<< "$said" | sort -u)
	[ "$(wc -l <<< "$job")" = 1 ]
	[[ $(cut -d ' ' -f 1 <<< "$said") != *$job* ]]
}

@test "no libpmix, no folder for the server" {
	run -240 r -q -x BERTH_PMIX_LIBRARY=/nowhere/libpmix.so.2 -H n1:1 /vc/t/client info
	says "n1: this host has no PMIx server for MPI: /nowhere/libpmix.so.2"
	hinted
	run -240 on n0 env TMPDIR=/proc timeout -k 5 60 "$RUNNER" -q -np 1 /vc/t/client info
	says "this host has no PMIx server for MPI: cannot make a folder in '/proc': "
	hinted
}

# ---- what one rank tells another ----

@test "names that ranks publish, events, queries" {
	local release hosts one
	for release in "${RELEASES[@]}"; do
		releases "$release"
		for hosts in "${LAYOUTS[@]}"; do
			run -0 r "${WITH[@]}" -H "$hosts" /vc/t/client publish event query
			for one in publish event query; do
				said_by 4 "rank R: $one: ok"
			done
		done
		for hosts in n1:4 n1:2,n2:2; do
			fails "$release" "$hosts" 137 "was ended by SIGKILL" die=lookup
		done
	done
}
