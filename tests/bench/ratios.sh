#!/bin/bash
# ratios.sh [PART...]: operations of libberth over others of the same library, between ranks of this
# machine, in turns within one process; some 60 s.  Parts and goals:
#   average   average over sum, 2 and 4 ranks: f32 and f64 1.05, f16 and bf16 1.1
#   division  the same with 3 ranks, where it is a division: 4 KiB 1.25, from 64 KiB 1.1
#   adasum    Adasum over sum, 16 MiB of f32, 2 and 4 ranks: 3
#   plans     irregular steps of 64 gradients of 16 KiB over regular ones: median 1.3, and 1.6 of
#             the times within which 90 % of the steps end
#   kinds     all other kinds over allreduce of as many bytes, 2 and 8 ranks: 1.5
# A row says whether its goal is met; none fails the bench.  OLD=DIR runs each part with the
# libberth.so of DIR as well.
set -eu
. "$(dirname "$0")/common.bash"
cd "$ROOT"
[ $# -gt 0 ] || set -- average division adasum plans kinds
tool ratios -I. -L"$BUILD/lib" -lberth -Wl,-rpath,"$BUILD/lib"
[ -z "${OLD:-}" ] || [ -e "$OLD/libberth.so" ] || { echo "ratios.sh: no libberth.so in '$OLD'" >&2; exit 2; }
failed=

rows() { # TITLE PART RANKS...
	local title=$1 part=$2 n library; shift 2
	for n; do
		for library in "$BUILD/lib" ${OLD:+"$OLD"}; do
			echo "== $title, $n ranks${OLD:+, $library}"
			LD_LIBRARY_PATH=$library timeout 120 "$RUNNER" --no-tag --oversubscribe -np "$n" \
				"$BUILD/bench/ratios" "$part" || failed+=" $part"
		done
	done
}

for part; do
	case $part in
	average) rows "average over sum" average 2 4 ;;
	division) rows "average over sum" division 3 ;;
	adasum) rows "Adasum over sum" adasum 2 4 ;;
	plans) rows "steps of 64 gradients of 16 KiB over regular ones" plans 2 ;;
	kinds) rows "others over allreduce" kinds 2 8 ;;
	*) echo "ratios.sh: no part '$part'" >&2; exit 2 ;;
	esac
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
