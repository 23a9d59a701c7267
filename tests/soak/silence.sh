#!/bin/bash
# silence.sh: with the limits that users have, a host that hangs is reported after 15 s and given up
# after 60 s; the others end.  Prints when, and ends with 1 if that is not so.
# shellcheck disable=SC1091,SC2034,SC2153,SC2154
set -u
tests=$(cd "$(dirname "$0")/.." && pwd)
export VC_NAME=${VC_NAME:-soaksilence} LC_ALL=C.UTF-8
. "$tests/cluster/rounds.bash"
outside_bats "$tests"
. "$tests/cluster/jobs.bash"
. "$tests/cluster/inject.bash"

trap 'cluster_down; rm -rf "$BATS_FILE_TMPDIR"' EXIT
trap 'exit 130' INT TERM
cluster_up 2 > /dev/null 2>&1 || exit
write_ranks
mark_clean n0 n1 n2

seconds_to() { # TEXT -> tenths of a second since blow_at
	local now
	until grep -q "^runner: n2: $1" "$T/err"; do
		over && { wrong "not said: $1"; exit 1; }
		pause 50
	done
	now=$EPOCHREALTIME
	tenths=$(((${now/./} - ${blow_at/./}) / 100000))
}

np=4
start -H n1:2,n2:2 bash /vc/t/messy
all_ready || exit
inject host_frozen n2
seconds_to 'no message for 15 s; given up after 60 s'
reported=$tenths
seconds_to 'no message for 6[0-9] s$'
given_up=$tenths
status_of_job 30 || exit
mend host_frozen n2
all_clean n0 n1 n2 || exit
printf 'a silent host: reported after %d.%d s, given up after %d.%d s, status %d\n' \
	$((reported / 10)) $((reported % 10)) $((given_up / 10)) $((given_up % 10)) "$status"
# the last word was up to 5 s before the host hung
[ "$status" = 241 ] && ((reported >= 99 && reported <= 170 && given_up >= 549 && given_up <= 620))
