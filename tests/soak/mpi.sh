#!/bin/bash
# mpi.sh [MPI...]: tests/mpi/ranks.c with each MPI that is here (ompi4 ompi5 mpich4 mpich5 impi21), and
# clients of PMIx (pmix4 pmix5), on 1, 2 and 4 cluster hosts; then tests/cluster/mpi.bats and mpi_masks.bats
# with all of them.
# A row for each MPI and number of hosts, with "passed/runs" of each case:
#   all       hello, ring, sums, communicators, barriers, with each of SIZES (1 to 16) ranks; odd
#             numbers in turns on the hosts
#   own       stdout of all is that of the MPI's own launcher, with each of OWN_SIZES (2 5 8)
#   storm     1000 barriers, then 200 communicators, of 4 ranks
#   abort, exit, sessions, names      as ranks.c has them, with each of END_SIZES (2 3 4 8 16)
#   hung      runs of MPICH 4 that wrote all and did not end: it may wait in MPI_Finalize, under its own
#             launcher, too
# Of a client of PMIx `all` is 20 fences with data, 1000 of half of the ranks, groups and more.
# MPIs that spin take long on few cores: all are told to yield, and the more ranks, the fewer turns.
# What fails is printed with its command; exit status 1 then.
set -u
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${BUILD:-$ROOT/build}
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
export VC_NAME=${VC_NAME:-soakmpi}
VCLUSTER=$ROOT/tests/cluster/vcluster RUNNER=$BUILD/bin/runner PEERS=$ROOT/build/peers
STATE=${VC_STATE:-/run/vcluster-$VC_NAME}
. "$ROOT/tests/cluster/mpis.bash"
unset "${!BERTH_@}"
read -r -a sizes <<< "${SIZES:-$(seq -s ' ' 16)}"
read -r -a own_sizes <<< "${OWN_SIZES-2 5 8}"
read -r -a end_sizes <<< "${END_SIZES-2 3 4 8 16}"
yield=(OMPI_MCA_mpi_yield_when_idle=1 MPIR_CVAR_POLLS_BEFORE_YIELD=1 I_MPI_THREAD_YIELD=2)
yield_options=()
for y in "${yield[@]}"; do yield_options+=(-x "$y"); done
cases=(all own storm abort exit sessions names)

if [ "$(id -u)" != 0 ] || ! unshare --mount --net --pid true 2> /dev/null; then
	echo "skipped: this machine or user makes no namespaces, so no cluster"
	exit 0
fi
work=$(mktemp -d)
trap '"$VCLUSTER" down > /dev/null 2>&1; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

on_n0() { "$VCLUSTER" exec n0 "$@" < /dev/null; }

# Sets hosts to a list for NP ranks on HOSTS hosts, and by_node to runner's option.
layout() { # NP HOSTS
	local slots=$((($1 + $2 - 1) / $2)) i
	hosts=
	for ((i = 1; i <= $2; i++)); do
		hosts+=,n$i:$slots
	done
	hosts=${hosts#,} by_node=()
	[ $(($1 % 2)) = 0 ] || by_node=(--map-by node)
}

# The command that starts NP ranks as `layout` has them, by the MPI's own launcher.
own_launcher() { # MPI NP
	local odd=$(($2 % 2)) words=(-launcher ssh -hosts "$hosts")
	[ "$odd" = 0 ] || words=(-launcher ssh -ppn 1 -hosts "${hosts//:[0-9]/}")
	case $1 in
	ompi4) own=(mpirun.openmpi --allow-run-as-root --oversubscribe -H "$hosts" "${by_node[@]}") ;;
	ompi5) own=("$PEERS/ompi/bin/mpirun" --allow-run-as-root -H "$hosts"
		--map-by "$([ "$odd" = 0 ] && echo slot || echo node):oversubscribe") ;;
	mpich4) own=(mpiexec.hydra "${words[@]}") ;;
	*) own=("$PEERS/mpich/bin/mpiexec" "${words[@]}") ;;
	esac
	[[ $1 != ompi* ]] || own+=("${yield_options[@]}")
	for y in "${yield[@]}"; do
		[[ $1 == ompi* ]] || own+=(-genv "${y%=*}" "${y#*=}")
	done
	own+=(-np "$2")
}

# ---- one run ----

# Its output, of LINES lines, goes to $work/out.  MPICH 4 is ended when it has written all.
run() { # LIMIT_S LINES WORD...
	local limit=$1 lines=$2 pid
	shift 2
	command="$*" status=0
	on_n0 timeout -k 5 "$limit" "$@" > "$work/out" 2>&1 &
	pid=$!
	if [[ $mpi = mpich4 && $nhosts != 1 ]] && waits "$pid" "$lines"; then
		hung=$((hung + 1))
		on_n0 pkill -x timeout
		wait "$pid"
		return
	fi
	wait "$pid" || status=$?
}

# Has PID written so many lines, and not ended 3 s later?
waits() { # PID LINES
	local more=30
	while [ "$more" -gt 0 ]; do
		kill -0 "$1" 2> /dev/null || return
		[ "$(wc -l < "$work/out")" -lt "$2" ] || more=$((more - 1))
		sleep 0.1
	done
}

start() { # LIMIT_S LINES NP OPTION... PROGRAM...
	local limit=$1 lines=$2 np=$3
	shift 3
	layout "$np" "$nhosts"
	run "$limit" "$lines" "$RUNNER" -q --no-tag "${yield_options[@]}" "${by_node[@]}" -np "$np" -H "$hosts" "$@"
}

# The case CASE of this row is as it should be if the command says so.
count() { # CASE COMMAND...
	local case=$1
	shift
	runs[$case]=$((${runs[$case]:-0} + 1))
	if "$@"; then
		passed[$case]=$((${passed[$case]:-0} + 1))
		return
	fi
	failed=$((failed + 1))
	echo "FAILED: $mpi $case, status $status: $command"
	tail -n 5 "$work/out" | sed 's/^/  | /'
}

said_by() { # N PATTERN
	[ "$(grep -c -- "^$2\$" "$work/out")" = "$1" ]
}

# ---- the cases ----

turns() { # NP: sets times
	times=10
	[ "$1" -le 4 ] || times=3
	[ "$1" -le 8 ] || times=1
}

did_all() { # NP
	[ "$status" = 0 ] && said_by "$1" "rank [0-9]* of $1, local [0-9]* of [0-9]*, sum $(($1 * ($1 - 1) / 2))" &&
		said_by 1 "token $(($1 * times))" && said_by "$1" "$times sums, 0 numbers wrong" &&
		said_by "$1" "$times communicators, 0 wrong" && said_by "$1" "$((10 * times)) barriers"
}

# Launchers say something, too, when they are ended.
of_ranks() {
	grep '^rank [0-9]\|^token [0-9]\|^[0-9][0-9]* [bcs]' "$work/out" | sort
}

is_own() {
	[ "$status" = 0 ] && of_ranks > "$work/own" && diff "$work/ours" "$work/own" > "$work/out"
}

all() { # NP
	turns "$1"
	start 90 $((4 * $1 + 1)) "$1" "/vc/t/$mpi" all "$times"
	count all did_all "$1"
	[[ " ${own_sizes[*]} " == *" $1 "* ]] || return 0
	of_ranks > "$work/ours"
	own_launcher "$mpi" "$1"
	run 90 $((4 * $1 + 1)) sh -c 'exec "$@" 2> /dev/null' sh "${own[@]}" "/vc/t/$mpi" all "$times"
	count own is_own
}

did_storm() { # TEXT
	[ "$status" = 0 ] && said_by 4 "$1"
}

storm() {
	start 90 4 4 "/vc/t/$mpi" barriers 1000
	count storm did_storm "1000 barriers"
	start 90 4 4 "/vc/t/$mpi" dups 200
	count storm did_storm "200 communicators, 0 wrong"
}

failed_by_rank_1() { # STATUS TEXT
	[ "$status" = "$1" ] && [ "$(grep -c '^runner: ' "$work/out")" = 1 ] &&
		grep -q "^runner: rank 1 on 'n[12]' (pid [0-9]*) $2" "$work/out"
}

did_sessions() { # NP
	[ "$status" = 0 ] && said_by "$1" "session of $1, sum $(($1 * ($1 - 1) / 2))"
}

did_names() { # NP
	[ "$status" = 0 ] && said_by "$1" "connected, sum $(($1 * ($1 - 1) / 2))"
}

ends() { # NP
	start 60 1000 "$1" "/vc/t/$mpi" abort 5
	count abort failed_by_rank_1 5 "called MPI_Abort with 5"
	start 60 1000 "$1" "/vc/t/$mpi" exit 3
	count exit failed_by_rank_1 3 "exited with status 3"
}

# What only some MPIs have: ports need PMIx here, MPI Sessions an MPI of 2021 or later.
more() { # NP
	if [ "$mpi" != ompi4 ]; then
		start 60 "$1" "$1" "/vc/t/$mpi" sessions
		count sessions did_sessions "$1"
	fi
	if [[ $mpi == ompi* ]]; then
		start 60 "$1" "$1" "/vc/t/$mpi" names
		count names did_names "$1"
	fi
}

did_client() { # NP
	local one
	[ "$status" = 0 ] && said_by "$1" "rank [0-9]* of $1: ok" && said_by "$1" "rank [0-9]*: 1000 fences" || return
	for one in fence nodata connect group publish event query; do
		said_by "$1" "rank [0-9]*: $one: ok" || return
	done
}

client() { # NP
	local of5=$PEERS/ompi/lib/openmpi with=(-x BERTH_PMIX_LIBRARY=libpmix.so.2)
	[ "$mpi" = pmix4 ] || with=(-x "LD_LIBRARY_PATH=$of5" -x "BERTH_PMIX_LIBRARY=$of5/libpmix.so.2")
	start 90 1000 "$1" "${with[@]}" /vc/t/client info fence=20 nodata some=1000 connect group publish event query
	count all did_client "$1"
}

# ---- the table ----

# A number of ranks that fills so many hosts?
fits() { [ "$1" -ge "$nhosts" ]; }

row() {
	local -A passed=() runs=()
	local np case hung=0 begun=$EPOCHREALTIME text
	if [[ $mpi == pmix? ]]; then
		for np in "${end_sizes[@]}"; do
			! fits "$np" || client "$np"
		done
	else
		for np in "${sizes[@]}"; do
			! fits "$np" || all "$np"
		done
		storm
		for np in "${end_sizes[@]}"; do
			fits "$np" || continue
			ends "$np"
			more "$np"
		done
	fi
	text=$(printf '%-7s %5s' "$mpi" "$nhosts")
	for case in "${cases[@]}"; do
		text+=$(printf ' %8s' "$([ -z "${runs[$case]-}" ] && echo - || echo "${passed[$case]:-0}/${runs[$case]}")")
	done
	text+=$(printf ' %6s %8.1f' "$hung" "$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')")
	table+=("$text")
	echo "$text"
}

"$VCLUSTER" up 4
mkdir -p "$STATE/t"
chmod 1777 "$STATE/t"
compile_ranks "$STATE/t"
compile_client "$STATE/t"
failed=0 table=("$(printf '%-7s %5s' MPI hosts; printf ' %8s' "${cases[@]}"; printf ' %6s %8s' hung seconds)")
[ $# -gt 0 ] || set -- ompi4 ompi5 mpich4 mpich5 impi21 pmix4 pmix5
for mpi; do
	program=$mpi
	case $mpi in
	pmix4) program=client ;;
	pmix5) program=client && [ -e "$PEERS/ompi/complete" ] || program=none ;;
	esac
	[ -x "$STATE/t/$program" ] || { echo "skipped: $mpi (tests/deps launchers, tests/bench/peers.sh)"; continue; }
	for nhosts in 1 2 4; do
		row
	done
done
"$VCLUSTER" down
if [ -z "${NO_BATS-}" ]; then
	MPI_SIZES=4 bats --print-output-on-failure "$ROOT/tests/cluster/mpi.bats" "$ROOT/tests/cluster/mpi_masks.bats" || failed=$((failed + 1))
fi
printf '%s\n' "${table[@]}" "$failed failed"
[ "$failed" = 0 ]
