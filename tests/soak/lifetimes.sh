#!/bin/bash
# lifetimes.sh [ROUNDS]: threads call all of berth.h while another shuts the library down and begins
# anew, ROUNDS times (10000), on 1 and 2 ranks, under AddressSanitizer and ThreadSanitizer.
set -u
cd "$(dirname "$0")/../.." || exit
export BUILD=${BUILD:-$PWD/build}
rounds=${1:-10000} failed=0 SEED=${SEED:-$RANDOM}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
trap 'exit 130' INT TERM

run() { # SANITIZER NP
	local program=$BUILD/$1/helpers/collectives before=$SECONDS status=0
	ROUNDS=$rounds ASAN_OPTIONS=detect_leaks=1:log_path=$T/words TSAN_OPTIONS=log_path=$T/words \
		timeout 3600 "$BUILD/bin/runner" --no-tag -np "$2" "$program" "$SEED" lifetimes > "$T/said" 2>&1 || status=$?
	if [ $status != 0 ] || compgen -G "$T/words*" > /dev/null; then
		failed=1
		cat "$T"/words* "$T/said" 2> /dev/null | head -100
		rm -f "$T"/words*
	fi
	printf '%-4s np %d: %d rounds in %d s, status %d\n' "$1" "$2" "$rounds" $((SECONDS - before)) $status
}

build() { # SAN DIRECTORY
	SAN=$1 make -s -j "$(nproc)" "$BUILD/$2/helpers/collectives" || exit
}

echo "seed $SEED"
build 1 san
build thread tsan
for np in 1 2; do
	run san $np
	run tsan $np
done
exit $failed
