#!/bin/bash
# sanitizers.sh [NAME...]: all suites under AddressSanitizer, its leak checker and UBSan, but the
# fuzzers, which are always built so.  With NAMEs those whose path has one.
cd "$(dirname "$0")/../.." || exit
[ $# -gt 0 ] || set -- tests/unit tests/cli tests/golden tests/cluster
SAN=1 exec tests/run "$@"
