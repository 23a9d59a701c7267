#!/bin/bash
# pytorch.sh [NP...]: Berth for PyTorch with 1, 2, 3 and 4 ranks: all tests of lib/python/tests/pytorch, of which
# `make check` runs some; 300 rounds of init() and shutdown(); and Horovod's own test of its API, test_torch.py, if
# HOROVOD_TESTS names the folder that has it (test/parallel of its sources).
#
# test_torch.py fails at 3 tests, since it gives each optimizer of torch parameters that Muon refuses; and at 3
# ranks at 3 more, since a sum of three rounded halves is not the product that they expect.
set -u
cd "$(dirname "$0")/../.." || exit
build=${BUILD:-$PWD/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
python=$PWD/build/venv/bin/python3 tests=$PWD/lib/python/tests/pytorch
export PYTHONPATH=$PWD/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$build/lib/libberth.so RUNNER=$build/bin/runner
[ -e build/venv/installed ] || { echo "skipped: no build/venv (make venv)"; exit 0; }
[ $# -gt 0 ] || set -- 1 2 3 4
trap 'exit 130' INT
trap 'exit 143' TERM
said=$(mktemp)
trap 'rm -f "$said"' EXIT
failed=0

# What rank 0's pytest says at its end.
on() { # NP OPTION... -- PYTEST-ARGUMENT...
	local np=$1 options=()
	shift
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	timeout -k 5 900 "$RUNNER" -q --no-tag --oversubscribe --show 0 -np "$np" "${options[@]}" -x PYTHONPATH \
		-x PYTHONDONTWRITEBYTECODE -x BERTH_LIBRARY -x CYCLES \
		"$python" -m pytest -q -p no:cacheprovider "$@" > "$said" 2>&1 < /dev/null
	status=$?
	grep -E '^[0-9]+ (passed|failed)' "$said" | tail -1
}

row() { # WHAT NP OPTION... -- PYTEST-ARGUMENT...
	local what=$1 line
	line=$(on "${@:2}"; exit $status)
	status=$?
	printf '%-24s np %s  %s\n' "$what" "$2" "${line:-FAILED}"
	[ $status = 0 ] || { failed=$((failed + 1)); grep -E '^(FAILED|ERROR)' "$said" | head; }
}

for np; do
	for name in "$tests"/test_*.py; do
		case $name in
		*_ends.py) [ "$np" = 1 ] || continue ;; # it starts ranks of its own
		esac
		row "$(basename "$name" .py)" "$np" -- "$name"
	done
	CYCLES=300 row '300 rounds' "$np" -- "$tests/test_collectives.py" -k begin_and_end
	[ -n "${HOROVOD_TESTS:-}" ] || { echo "skipped: test_torch.py of Horovod: HOROVOD_TESTS does not name its folder"; continue; }
	[ "$np" -gt 1 ] || { echo "skipped: test_torch.py of Horovod at np 1: its process sets and joins need 2 ranks"; continue; }
	line=$(cd "$HOROVOD_TESTS" && on "$np" --horovod -- test_torch.py)
	case $np in 3) want='6 failed, 99 passed' ;; *) want='3 failed, 102 passed' ;; esac
	printf "%-24s np %s  %s\n" "Horovod's test_torch" "$np" "${line:-FAILED}"
	[[ $line == "$want"* ]] || failed=$((failed + 1))
done
[ "$failed" = 0 ]
