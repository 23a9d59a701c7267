#!/usr/bin/env bats
# limit_s: 300
# takes_s: 12
# more: a second one of torch's stores
# Processes that no launcher started: they find each other through what their program has.
load common

PYTHON=$ROOT/build/venv/bin/python3

setup() {
	[ "${SAN:-}" != 1 ] || skip "a sanitized library cannot be loaded into Python"
	"$PYTHON" -c 'from importlib.util import find_spec; exit(not find_spec("torch"))' 2> /dev/null ||
		skip "no torch in build/venv (make venv)"
}

# One memory in the first round; in the second, rank 2 is on a host of its own.
sums() {
	run -0 "$PYTHON" "$ROOT/tests/cli/bootstrap.py" "$BUILD/lib/libberth.so" "$@"
	says 'first 6.0 6.0 on 3 here' 'second 6.0 6.0 on 2 here'
}

@test "torch's TCPStore" { sums tcp -; }

# bats test_tags=all
@test "torch's FileStore" { sums file "$T/store"; }
