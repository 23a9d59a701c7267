# common.bash: what the benches share.  Each prints the machine, its commands, and its figures.
# shellcheck shell=bash
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${BUILD:-build}
# shellcheck disable=SC2034 # make's dependencies name its files as it was told to
AS_GIVEN=$BUILD
case $BUILD in /*) ;; *) BUILD=$ROOT/$BUILD ;; esac
# shellcheck disable=SC2034 # for the benches
PEERS=$ROOT/build/peers RUNNER=$BUILD/bin/runner BENCH=$ROOT/tests/bench
export VC_NAME=${VC_NAME:-bench}
VCLUSTER=$ROOT/tests/cluster/vcluster
unset "${!BERTH_@}"
[ -x "$RUNNER" ] || { echo "bench: no $RUNNER: make comes first" >&2; exit 1; }

# A row "NAME=COMMAND" into peers, if its program is there; else says so.
peers=()
peer() { # NAME PROGRAM ARGUMENT...
	if command -v "$2" > /dev/null; then
		peers+=("$1=${*:2}")
	else
		echo "skipped: $1 (no $2; tests/bench/peers.sh installs it)"
	fi
}

# One of our own small programs, compiled into BUILD/bench.
tool() { # NAME LIBRARY...
	mkdir -p "$BUILD/bench"
	gcc -O2 -std=c11 -D_GNU_SOURCE -o "$BUILD/bench/$1" "$BENCH/$1.c" "${@:2}"
}

# The same, with all of libberth inside it: every room of lib/ but ops, which is a program of its own.
library_tool() { # NAME
	local objects=("$ROOT"/lib/[!o]*/*.c)
	objects=("${objects[@]/#$ROOT/$AS_GIVEN/obj}")
	objects=("${objects[@]/%.c/.o}")
	make -s -C "$ROOT" -j "$(nproc)" BUILD="$AS_GIVEN" "${objects[@]}"
	(cd "$ROOT" && tool "$1" "${@:2}" -I. "${objects[@]}" -l:libsodium.a -lm -ldl -lpthread)
}

cluster() { # N HOSTS, gone when the bench ends
	if [ "$(id -u)" != 0 ] || ! unshare --mount --net --pid true 2> /dev/null; then
		echo "skipped: this machine or user makes no namespaces, so no cluster"
		exit 0
	fi
	trap '"$VCLUSTER" down > /dev/null 2>&1' EXIT
	trap 'exit 130' INT TERM
	"$VCLUSTER" up "$1"
}

on_n0() {
	"$VCLUSTER" exec n0 "$@"
}
