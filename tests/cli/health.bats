#!/usr/bin/env bats
# takes_s: 1
# shellcheck disable=SC2016,SC2154 # $ is for the command; bats sets output
# --health-check: ranks start on hosts where the user's command ends with 0.
load common

r() { timeout -k 5 60 "$RUNNER" --oversubscribe -np 2 "$@" < /dev/null; }

@test "E_HEALTH: its status, the last line that it printed, and no rank" {
	run -0 r --health-check 'echo fine; cat' echo hi
	says "<stdout>:hi"
	silent_on fine
	run -240 r --health-check 'echo first; echo "bad disk" >&2; exit 3' touch "$T/ran"
	says "--health-check failed: status 3: bad disk"
	hinted
	run -240 r --health-check 'sleep 77 & kill -KILL $$' touch "$T/ran"
	says "--health-check failed: status 137"
	run -240 r --health-check 'kill -KILL $PPID' touch "$T/ran"
	says "--health-check failed: its shell was killed"
	run -240 r --start-timeout 1 --health-check 'sleep 77' touch "$T/ran"
	says "--health-check failed: it runs longer than --start-timeout"
	[ ! -e "$T/ran" ]
	[ -z "$(pgrep -x -f 'sleep 77')" ]
}

@test "it ends with the job, and runs again before all ranks start anew, not before one does" {
	cd "$T"
	"$RUNNER" --oversubscribe -np 2 --health-check 'touch begun; sleep 78' true 3>&- < /dev/null &
	wait_for test -e begun
	kill -TERM $!
	status=0
	wait $! || status=$?
	[ "$status" = 143 ]
	wait_for sh -c '! pgrep -x -f "sleep 78"'
	run -5 r --restarts 2 --health-check 'echo checked >> each' sh -c 'exit 5'
	[ "$(wc -l < each)" = 3 ]
}
