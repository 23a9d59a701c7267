#!/bin/bash
# worlds.sh [WORLDS]: tests/helpers/worlds.c with so many worlds (1000), ranks killed or not, as it is
# and under both sanitizers, of which threads get a tenth.
set -u
cd "$(dirname "$0")/../.." || exit
export BUILD=${BUILD:-$PWD/build}
worlds=${1:-1000} failed=0 SEED=${SEED:-$RANDOM}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

run() { # DIRECTORY WORLDS [-k]
	local before=$SECONDS status=0 program=$BUILD/$1/helpers/worlds
	ASAN_OPTIONS=detect_leaks=1:log_path=$T/words \
		TSAN_OPTIONS=suppressions=$PWD/tests/tsan.suppressions:log_path=$T/words \
		timeout 3600 "$program" -n "$2" -s "$SEED" "${@:3}" > "$T/said" 2>&1 || status=$?
	if [ $status != 0 ] || compgen -G "$T/words*" > /dev/null; then
		failed=1
		cat "$T"/words* "$T/said" 2> /dev/null | head -100
		rm -f "$T"/words*
	fi
	printf '%-4s %5d worlds %2s: %d s, status %d\n' "$1" "$2" "${3:-}" $((SECONDS - before)) $status
}

build() { # SAN DIRECTORY
	SAN=$1 make -s -j "$(nproc)" "$BUILD/$2/helpers/worlds" || exit
}

echo "seed $SEED"
build "" .
build 1 san
build thread tsan
for kills in "" -k; do
	run . "$worlds" ${kills:+"$kills"}
	run san "$worlds" ${kills:+"$kills"}
	run tsan $((worlds / 10)) ${kills:+"$kills"}
done
exit $failed
