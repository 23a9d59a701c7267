#!/bin/bash
# device.sh [ROUNDS]: what the library's own code takes for operations on the memory of a GPU
# (device.c), 1 and 2 ranks of this machine; some 20 s.  There is no GPU: streams are threads of a
# stand-in (tests/standin), and none of its time is in a figure.  Columns, medians in us:
#   calls    calls of CUDA and NCCL that were timed, in the call and in the start
#   agree    from the last rank's call to the back end's begin(): marks, agreement, order
#   start    that begin(), and the begun() that finds the launch done
#   end      from the test that finds the work done until the caller has it
#   all      the median of their sum; tenth: its tenth percentile
# Rank 0 has the last call, unless a row says otherwise.  A row says whether its median meets the
# limit; none fails the bench.  Where other programs use the cores, the medians of 2 ranks are mostly
# theirs.
set -eu
. "$(dirname "$0")/common.bash"
cd "$ROOT"
library_tool device -Wl,--wrap=dlsym,--wrap=dlopen
make -s BUILD="$AS_GIVEN" "$AS_GIVEN/standin/libnccl.so.2"

echo "== the search for CUDA, where there is none"
"$BUILD/bench/device" look
for ranks in 1 2; do
	echo "== the library's own time, $ranks rank(s) in memory"
	LD_LIBRARY_PATH=$BUILD/standin timeout 120 "$BUILD/bench/device" "$ranks" "$@"
done
