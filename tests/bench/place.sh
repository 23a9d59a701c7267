#!/bin/bash
# place.sh [XML]: time of one placement, topology loaded, on the largest machine of the golden
# tests (256 PUs and 8 GPUs), for one rank per GPU, one more, and two per GPU.
set -eu
. "$(dirname "$0")/common.bash"
make -s -C "$ROOT" BUILD="$AS_GIVEN" "$AS_GIVEN/helpers/place_table"
xml=${1:-$(find "$ROOT/tests/golden" "$BUILD" -name '*256*8*.xml' 2> /dev/null | sort | head -1)}
if [ ! -e "$xml" ]; then
	echo "skipped: placement (no topology; give an hwloc XML file)"
	exit 0
fi
echo "== one placement on $(basename "$xml")"
for np in 8 9 16; do
	printf 'np %-3s %8s ns\n' "$np" "$("$BUILD/helpers/place_table" "$xml" "$np" --times 1000)"
done
