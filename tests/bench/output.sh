#!/bin/bash
# output.sh [MIB]: one rank on another host writes 1 GiB of 80-byte lines, labelled, into a pipe;
# against OpenSSH alone, which labels nothing.
set -eu
. "$(dirname "$0")/common.bash"
bytes=$((${1:-1024} << 20))
tool lines
cluster 1

lines="$BUILD/bench/lines $bytes"
echo "== $((bytes >> 20)) MiB of 80-byte lines from one rank through ssh into a pipe"
on_n0 "$BENCH/rounds.py" -n "${ROUNDS:-5}" -l 120 -b "$bytes" \
	"runner=bash -o pipefail -c '$RUNNER -np 1 -H n1 $lines | cat > /dev/null'" \
	"openssh=bash -o pipefail -c 'ssh n1 $lines | cat > /dev/null'"
