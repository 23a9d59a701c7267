#!/bin/bash
# agreement.sh [ROUNDS]: what ranks do on the host before an operation on a device begins, beside an
# allreduce of 8 bytes (tests/helpers/agreement.c): 2 ranks in memory, and on 2 cluster hosts over TCP.
# Goals, of medians: 2 x in memory and 1.2 x over TCP; twice that where ranks are in two sets.
set -eu
. "$(dirname "$0")/common.bash"
rounds=${1:-41}
cd "$ROOT"
make -s BUILD="$AS_GIVEN" "$AS_GIVEN/helpers/agreement"
cluster 2
failed=

agreement() { # GOAL TITLE COMMAND...
	local goal=$1 out
	echo "== $2"
	out=$("${@:3}" "$BUILD/helpers/agreement" "$rounds")
	echo "$out"
	awk -v goal="$goal" '{ sub(/ x \(.*/, ""); most = /two sets/ ? 2 * goal : goal; if ($NF > most) bad = 1 }
		END { exit bad }' <<< "$out" || failed=1
}

agreement 2 "2 ranks of this machine" "$RUNNER" --no-tag -np 2
agreement 1.2 "one rank on each of 2 hosts, over TCP" on_n0 "$RUNNER" --no-tag -H n0,n1
[ -z "$failed" ]
