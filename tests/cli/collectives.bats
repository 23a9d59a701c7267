#!/usr/bin/env bats
# limit_s: 480
# takes_s: 100
# more: each number of ranks in place of two
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# All of berth.h between ranks of this machine: tests/helpers/collectives.c says what is checked.
load common

PROGRAM=$BUILD/helpers/collectives

# With CHECK=user on the most of these up to 4, or MOST (more ranks than cores wait long for each
# other), and on another one that the day chooses.
on() { # CASE RANKS...
	local case=$1 n ranks=("${@:2}")
	if [ "${CHECK:-}" = user ]; then
		while [ "${ranks[-1]}" -gt "${MOST:-4}" ]; do unset 'ranks[-1]'; done
		ranks=("${ranks[$(date +%-j) % ${#ranks[@]}]}" "${ranks[-1]}")
		[ "${ranks[0]}" != "${ranks[1]}" ] || unset 'ranks[0]'
	fi
	for n in "${ranks[@]}"; do
		run -0 timeout -k 5 $((60 * ${SLOW:-1})) "$RUNNER" --no-tag -np "$n" "$PROGRAM" "${SEED:-1}" "$case"
		[[ $output == *"$case: "*" checks"* ]] || { echo "np $n: $output"; return 1; }
	done
}

@test "every reduction of every type and op against a reference" { on reductions 1 2 3 5 8; }
@test "scaling, and averages of integers" { on scaled 1 2 3 4 8; }
@test "the bits are the same, submitted in any order and together, or called" {
	on bits 1 2 3 5
	HOROVOD_FUSION_THRESHOLD=0 on bits 2 3
	HOROVOD_FUSION_THRESHOLD=2000 on bits 3
}
@test "allgather, alltoall, broadcast, with and without counts" { on moves 1 2 3 5 8; }
@test "sets: added, split, split again, removed" { on sets 1 2 3 4 5 8; }
@test "50 sets in flight, in another order on each rank; those that stand still have no thread" { on idle 1 2 4; }
@test "asynchronous: in any order, tensors left out, blocking calls between" { on async 1 2 3 4 8; }
@test "asynchronous: who only looks, and leaves tensors out" { on poll 1 2 3 4 8; }
@test "asynchronous: what is done anew, and ranks of other thresholds" { on thresholds 1 2 3 4; }
@test "asynchronous: random steps against a plain reference" {
	MOST=2 PROGRAM=$BUILD/helpers/plans on random 1 2 3 5
}
@test "asynchronous: what is new, has no name or is missing costs one round" {
	MOST=2 PROGRAM=$BUILD/helpers/plans on strangers 1 2 3 5
}
@test "asynchronous: what is more important is done first" { PROGRAM=$BUILD/helpers/plans on priorities 2 3 4; }
@test "ranks without data join" { on join 1 2 3 4 5 8; }
@test "allreduce in all forms and barrier go on beside them, nothing else does; all know the last" {
	on joined 1 2 3 4 5
}
@test "a rank that blocks and one that submits do one operation" { on meet 1 2 3 4 5; }
@test "callbacks, one of several requests, slices of time" { on requests 1 2 3 4; }
@test "a set that is aborted by one rank" { on abort 1 2 3 4; }
@test "a set that its members alone make" { on make 1 2 3 4; }
@test "counts that only their rank knows, and room for what comes" { on counts 1 2 3 5; }
@test "sends and receives" { on sends 1 2 3 4; }
@test "sets that overlap: sums and messages in all of them, in another order on each rank" { on overlap 2 3 4 5; }
@test "Adasum is what its formula says" { on adasum 1 2 3 5 6 7 8; }
@test "what ranks call for differently is an error on all that names both sides" { on mismatch 2 3 4 8; }
@test "arguments that can't be" { on arguments 1 2 4; }
@test "threads, each with a set of its own and all with one" { on threads 1 2 3 4; }
@test "a rank that waits uses no core" { on waiting 2 3 4; }
@test "a rank that does not come in time is named" { on late 2 3 4; }
@test "so is one that has other things to do" { on lacking 2 3 4; }
@test "a rank without memory is waited for by nobody" {
	[ -z "${SAN:-}" ] || skip "a sanitizer ends what has no memory"
	on starved 1 2 3 4
}
@test "berth_shutdown while threads wait, in calls and for requests" { MOST=2 on stop 1 2 3 4; }
@test "sets and requests of an ended world, or that another thread removes" { on ended 1 2 3 4; }
@test "threads that call while the library is shut down and begun anew" { MOST=2 on lifetimes 1 2 3; }
@test "a child of fork() is no rank, and holds neither lock nor socket" {
	BERTH_MPI=none on children 1 2 3 # PMI_FD is kept on exec
}
@test "berth_init and berth_shutdown again and again leave nothing" { on again 1 2 4; }

@test "ranks under a limit that leaves no room for the heap" {
	[ -z "$SAN" ] || skip "the sanitizers' own mappings are above any such limit"
	run -0 timeout -k 5 60 "$RUNNER" --no-tag -np 3 \
		bash -c "[ \$RANK = 0 ] || ulimit -v 2000000; exec $PROGRAM without-heap"
	[[ $output == *"without-heap: "*" checks"* ]]
}

@test "a limit of file sizes that the ranks' memory is beyond is an error, and ends nobody" {
	run -3 bash -c "ulimit -f 100000; exec timeout -k 5 60 $RUNNER --no-tag -np 2 $PROGRAM scaled"
	says "cannot make shared memory of " "File too large"
	run -3 bash -c "ulimit -f 100000; exec $PROGRAM scaled"
	says "cannot make shared memory of " "File too large"
}

# CASE on N ranks, of which the last dies: all others know it, and say after how long.  While
# runner ends them the leak sanitizer would stop their threads: SIGCONT resumes one for good.
dies() { # CASE N
	local case=$1 n=$2
	ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 run -137 timeout -k 5 60 "$RUNNER" --no-tag -np "$n" "$PROGRAM" "$case"
	[[ $output == *"rank $((n - 1)) on "*" has ended"* && $output == *"$case: "* ]] ||
		{ echo "np $n: $output"; return 1; }
	[[ $output != *"line "* ]] || { echo "np $n: $output"; return 1; }
	[ "$(grep -c '^after ' <<< "$output")" = "$((n - 1))" ]
}

# 0.2 s pass before it dies.
within_a_second() {
	awk -v most=$((200 + 1000 * ${SLOW:-1})) '/^after / && $2 >= most { late = 1 } END { exit late }' <<< "$output"
}

@test "a rank that dies after it has given up for another's sake is named, too" {
	for n in 3 4 6; do
		run -137 timeout -k 5 60 "$RUNNER" --no-tag -np "$n" "$PROGRAM" lost-again
		[[ $output == *"lost-again: 5 checks"* && $output != *"line "* ]] || { echo "np $n: $output"; return 1; }
	done
}

@test "a rank that dies is an error on all others within a second" {
	local case n
	for case in lost lost-async; do
		for n in 2 3 4 8; do
			for _ in 1 2 3; do # one that is held up is not so each time
				dies "$case" "$n"
				! within_a_second || break
			done
			within_a_second || { echo "np $n: $output"; return 1; }
		done
	done
}
