#!/bin/bash
# terminal.sh [ROUNDS]: tests/cluster/terminal.bats with the real waits (a reader that stands
# still for 120 s, ^Z for 120 s, kill -STOP of runner for 40 s, all with the default
# --host-timeout), then its other tests ROUNDS times (10).
set -u
cd "$(dirname "$0")/../.." || exit
suite=tests/cluster/terminal.bats long='long ones'
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
trap 'exit 130' INT TERM
failed=0

row() { # NAME RUNS FAILURES
	printf '%-44s %6d %8d\n' "$@"
	failed=$((failed + $3))
}

count() { # FILE
	grep -c "^$2" "$1" || true
}

LONG_S=120 STOP_S=40 HOST_TIMEOUT=60 STOP_TIMEOUT=60 bats --tap -f "$long" "$suite" > "$log/long" 2>&1
for ((i = 0; i < ${1:-10}; i++)); do
	bats --tap "$suite" 2>&1 | grep -v "$long" >> "$log/short"
done
grep -hA 20 '^not ok' "$log/long" "$log/short"
printf '%-44s %6s %8s\n' "terminal: tests" runs failures
row "120 s without a reader, 120 s of ^Z, 40 s STOP" "$(grep -cE '^(not )?ok' "$log/long")" "$(count "$log/long" 'not ok')"
row "keys, job control, closed terminals" "$(grep -cE '^(not )?ok' "$log/short")" "$(count "$log/short" 'not ok')"
[ "$failed" = 0 ] && grep -q '^ok' "$log/long" "$log/short"
