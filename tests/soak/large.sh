#!/bin/bash
# large.sh: a sum of 2.2 GB between two ranks: counts and offsets beyond 31 bits.  Needs 6 GiB.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
free_kib=$(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo)
if [ "$free_kib" -lt $((6 << 20)) ]; then
	echo "skipped: $((free_kib >> 20)) GiB of memory are free, and it takes 6"
	exit 0
fi
make -s -j "$(nproc)" "$build/tests/test_lib_shm"
LARGE=1 "$build/tests/test_lib_shm"
