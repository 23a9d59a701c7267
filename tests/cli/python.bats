#!/usr/bin/env bats
# limit_s: 120
# shellcheck disable=SC2030,SC2031,SC2154 # bats sets output
# lib/python: the package berth, with the ranks of runner and alone.
load common

setup() {
	export PYTHONPATH=$ROOT/lib/python PYTHONDONTWRITEBYTECODE=1 BERTH_LIBRARY=$BUILD/lib/libberth.so
	[ "${SAN:-}" != 1 ] || skip "Python is built without the sanitizers"
}

# All ranks have passed all tests.
tested() { # NP
	run timeout -k 5 60 "$RUNNER" -q --no-tag --oversubscribe -np "$1" -x PYTHONPATH -x PYTHONDONTWRITEBYTECODE \
		-x BERTH_LIBRARY /usr/bin/python3 -m pytest -q -p no:cacheprovider "$ROOT/lib/python/tests"
	[ "$status $(grep -c '^[0-9]* passed' <<< "$output")" = "0 $1" ] || { echo "$output"; return 1; }
}

@test "the common part, with 1, 2 and 3 ranks" {
	/usr/bin/python3 -c 'import pytest' || skip "no pytest (tests/deps check installs it)"
	for np in 1 2 3; do tested $np; done
}

@test "a program that no launcher started is alone" {
	run -0 /usr/bin/python3 -c 'import berth as hvd; hvd.init(); print(hvd.rank(), hvd.size(), hvd.allgather_object(7))'
	[ "$output" = "0 1 [7]" ]
}

@test "no libberth, or another: what to do" {
	export BERTH_LIBRARY=/nowhere/libberth.so
	run -1 /usr/bin/python3 -c 'import berth; print("imported"); berth.init()'
	[[ $output == "imported"*"ImportError: no libberth.so.0.2 (/nowhere/libberth.so: cannot open shared object file"* ]]
	[[ $output == *"build it with make, install it with make install, or give its file in BERTH_LIBRARY" ]]
	export BERTH_LIBRARY=libc.so.6
	run -1 /usr/bin/python3 -c 'import berth; berth.init()'
	[[ $output == *"ImportError: no libberth.so.0.2 ("*"undefined symbol: berth_init); "* ||
		$output == *"ImportError: no libberth.so.0.2 ("*"undefined symbol: berth_init): build"* ]]
	echo 'const char *berth_version(void) { return "9.1.0"; }' > "$T/foreign.c"
	grep -oE '"berth_[a-z_]+": \(' "$ROOT/lib/python/berth/clib.py" | grep -oE 'berth_[a-z_]+' | grep -vx berth_version |
		sed 's/.*/void &(void) {}/' >> "$T/foreign.c"
	gcc -w -shared -fPIC -o "$T/foreign.so" "$T/foreign.c"
	export BERTH_LIBRARY=$T/foreign.so
	run -1 /usr/bin/python3 -c 'import berth; berth.init()'
	[[ $output == *"HorovodVersionMismatchError: $T/foreign.so has version 9.1.0, but 0.2 is needed" ]]
}

@test "its version is that of runner" {
	run -0 /usr/bin/python3 -c 'import berth; print("runner", berth.__version__)'
	[ "$output" = "$("$RUNNER" --version)" ]
}

@test "each name of __all__ is there" {
	run -0 /usr/bin/python3 -c 'import berth; print([n for n in berth.__all__ if not hasattr(berth, n)])'
	[ "$output" = "[]" ]
}

@test "in the tree the library is found without a variable" {
	[ "$BUILD" = "$ROOT/build" ] || skip "the library is not in build/"
	unset BERTH_LIBRARY
	run -0 /usr/bin/python3 -c 'import berth; berth.init(); print(berth.size())'
	[ "$output" = 1 ]
}
