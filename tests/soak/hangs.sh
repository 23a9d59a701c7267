#!/bin/bash
# hangs.sh [TIMES [SECONDS [BUSY]]]: each way to hang TIMES (20) times, and SECONDS (7200) of a training in
# which nobody does, beside BUSY (0) loops a CPU; see hangs.py.
set -u
cd "$(dirname "$0")/../.." || exit
export BUILD=${BUILD:-$PWD/build}
tests/soak/hangs.py "$BUILD/bin/runner" "$BUILD/helpers/elastic" --times "${1:-20}" --quiet-s "${2:-7200}" --busy "${3:-0}" \
	--seed "${SEED:-$RANDOM}" --python "$PWD/lib/python" --library "$BUILD/lib/libberth.so"
