#!/bin/bash
# hash.sh [KIB]: the keyed hash of data between hosts (lib/net/net_hash.h) in each form that this
# processor has, of a buffer that lies in L2.  Goals: 18 GB/s with AVX2, 5 GB/s plain, and AVX-512 not
# slower than AVX2.
set -eu
. "$(dirname "$0")/common.bash"
cd "$ROOT"
library_tool hash
table=$("$BUILD/bench/hash" "$@")
echo "$table"
awk '{ rate[$1] = $2 }
	END { exit rate["plain"] < 5 || ("AVX2" in rate && rate["AVX2"] + 0 > 0 && rate["AVX2"] < 18) ||
		(rate["AVX-512"] + 0 > 0 && rate["AVX-512"] < 0.97 * rate["AVX2"]) }' <<< "$table"
