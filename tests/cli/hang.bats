#!/usr/bin/env bats
# limit_s: 300
# takes_s: 9
# more: each way to hang, several times; a long training
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output
# Ranks that hang: --hang-timeout and --on-hang name and end them, and no others.
# tests/helpers/elastic.c hangs, and compares what it computed with an undisturbed training.
load common

trains() { # OPTION... : ELASTIC_ARGUMENT...
	local options=()
	while [ "$1" != : ]; do options+=("$1"); shift; done
	timeout -k 5 60 "$RUNNER" --no-tag --oversubscribe -np 4 "${options[@]}" "$BUILD/helpers/elastic" "${@:2}" < /dev/null
}

# RANK hangs in WAY at STEP, and is named, alone, and starts again alone.  The others go on meanwhile,
# and wait at step 40 until it is back: 40 steps, or more where that takes longer.
replaces() { # WAY RANK STEP WHY
	run -0 trains --hang-timeout 0.4 --restarts 3 --events "$T/events" : 40 1 all "$2@$3$1"
	says "runner: warning: rank $2 on '" " hangs: $4" ") hung: $4" "it starts again: restart 1 of 3" \
		"rank $2 is back"
	grep -Eq '^4 ranks, ([4-9][0-9]|[0-9]{3,}) steps$' <<< "$output"
	[ "$(grep -c '"event": "hang", "rank": '"$2, \"action\": \"replace\"" "$T/events") $(grep -c '"event": "hang"' "$T/events")" = "1 1" ]
	[ "$(grep -c ' starts again"' "$T/events")" = 1 ]
}

@test "E_HANG, E_RANK_HUNG: a rank that is stopped, or asleep: the others go on, and it is back" {
	replaces s 2 10 "stopped (state T) for 0."
	replaces l 0 7 "it has done nothing for 0."
}

# bats test_tags=all
@test "in an endless loop, and in the kernel" {
	replaces r 1 9 "it works, and does not come for 2."
	replaces v 3 5 "blocked in the kernel (state D) for 0."
}

@test "--on-hang restart: all start again; kill: the job ends, though a restart is left" {
	run -0 trains --hang-timeout 0.4 --restarts 3 --on-hang restart : 20 1 all 1@5s
	says "runner: restart 1 of 3: 4 ranks" "4 ranks, 20 steps"
	silent_on "is back"
	run -137 trains --hang-timeout 0.4 --restarts 3 --on-hang kill : 20 1 all 1@5s
	says "rank 1 on '" ") hung: stopped (state T)"
	silent_on "runner: restart"
}

@test "--on-hang report: one warning, and the ranks go on" {
	cat > "$T/stops" <<- 'EOF'
		[ "$BERTH_RANK" = 0 ] || { (sleep 1.5; kill -CONT $$) & kill -STOP $$; exit; }
		for ((i = 0; i < 40; i++)); do sleep 0.05; echo works; done
	EOF
	run -0 timeout 30 "$RUNNER" --oversubscribe --hang-timeout 0.3 --on-hang report -np 2 bash "$T/stops"
	[ "$(grep -c "rank 1 on '.*' hangs: stopped (state T)" <<< "$output")" = 1 ]
	[[ $output == *"hint: --hang-timeout TIME ends ranks"* ]]
}

@test "without libberth: no rank does anything" {
	run -134 timeout 30 "$RUNNER" --oversubscribe --hang-timeout 0.4 -np 2 sleep 29
	says "runner: warning: all ranks hang: none has used a CPU, read, written or printed for 0.4 s" ") hung: none has used"
	# one that works is enough, and so is a child of one
	run -0 timeout 30 "$RUNNER" --oversubscribe --hang-timeout 0.3 -np 2 bash -c \
		'[ $BERTH_RANK = 0 ] && exec sleep 1.2; timeout 1.2 sh -c "while :; do :; done"; true'
	silent_on hangs
	run -0 timeout 30 "$RUNNER" --hang-timeout off -np 1 bash -c '(sleep 0.5; kill -CONT $$) & kill -STOP $$'
	silent_on hangs
}

# bats test_tags=all
@test "Python on a lock prints where it is" {
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
	cat > "$T/lock.py" <<- 'EOF'
		import os, threading
		import berth
		berth.init()
		for step in range(10):
		    if step == 5 and berth.rank() == 1:
		        lock = threading.Lock()
		        lock.acquire()
		        lock.acquire()
		    berth.broadcast_object(step, 0)
	EOF
	run -134 timeout 60 "$RUNNER" --oversubscribe --hang-timeout 0.5 -x PYTHONFAULTHANDLER=1 -x "PYTHONPATH=$ROOT/lib/python" \
		-x PYTHONDONTWRITEBYTECODE=1 -x "BERTH_LIBRARY=$BUILD/lib/libberth.so" -np 2 /usr/bin/python3 "$T/lock.py"
	says "rank 1 on '" ") hung: it has done nothing for 0." "Fatal Python error: Aborted" "lock.py\", line 8 in"
}

@test "no innocent is ended: rank 0 saves for 10 steps at random moments" {
	run -0 trains --hang-timeout 0.2 --restarts 3 : 100 10 all saves=10
	silent_on hang
	says "4 ranks, 100 steps"
}

# bats test_tags=all
@test "each way to hang, at random steps of random ranks" {
	RANDOM=${SEED:-7}
	for ((turn = 0; turn < 5; turn++)); do
		replaces s $((RANDOM % 4)) $((1 + RANDOM % 20)) "stopped (state T) for "
		replaces l $((RANDOM % 4)) $((1 + RANDOM % 20)) "it has done nothing for "
		replaces r $((RANDOM % 4)) $((1 + RANDOM % 20)) "it works, and does not come for "
		replaces v $((RANDOM % 4)) $((1 + RANDOM % 20)) "blocked in the kernel (state D) for "
	done
	run -0 trains --hang-timeout 0.2 --restarts 3 : 1000 10 all saves=20
	silent_on hang
}
