#!/bin/bash
# flip.sh [PLACES [SEED]]: PLACES (10000) bits of data between ranks change on the way, each in a world
# of its own: no rank takes one.  About one place of 50 is in an operation of 4 to 64 MiB.
set -u
cd "$(dirname "$0")/../.." || exit
exec "${BUILD:-build}/helpers/flip" "${1:-10000}" "${2:-${SEED:-$RANDOM}}"
