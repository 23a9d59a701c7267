#!/usr/bin/env bats
# limit_s: 300
# takes_s: 10
# shellcheck disable=SC2154 # bats sets output
# What both programs are, however a packager sets the flags.
load common

# Flags that ask for the opposite of what we want, and libsodium as a shared library.
setup_file() {
	[ "${SAN:-}" != 1 ] || return 0
	make -s -j "$(nproc)" -C "$ROOT" BUILD="$BATS_FILE_TMPDIR" SODIUM=-lsodium \
		CFLAGS='-O0 -fno-pie -no-pie -fno-stack-protector' \
		LDFLAGS='-no-pie -Wl,-z,norelro,-z,lazy,--no-as-needed' \
		"$BATS_FILE_TMPDIR/bin/runner" "$BATS_FILE_TMPDIR/bin/berth-agent"
}

setup() {
	[ "${SAN:-}" != 1 ] || skip "the sanitizers' build is not installed"
	cd "$BATS_FILE_TMPDIR" || return
}

@test "both programs are position-independent, with read-only relocations" {
	for program in bin/runner bin/berth-agent; do
		readelf -hldW "$program" > elf
		for wanted in '^ *Type: *DYN ' '^ *GNU_RELRO ' '\(FLAGS\).*BIND_NOW' '\(FLAGS_1\).* PIE'; do
			grep -Eq "$wanted" elf || { echo "$program: no $wanted"; cat elf; false; }
		done
		if grep -E 'GNU_STACK.* RWE|TEXTREL' elf; then echo "$program"; false; fi
	done
}

@test "libberth has read-only relocations, and resolves its symbols when it is loaded" {
	readelf -ldW "$BUILD/lib/libberth.so" > elf
	for wanted in '^ *GNU_RELRO ' '\(FLAGS\).*BIND_NOW'; do
		grep -Eq "$wanted" elf || { echo "no $wanted"; cat elf; false; }
	done
	if grep -E 'GNU_STACK.* RWE|TEXTREL' elf; then false; fi
}

@test "the stack protector is in each object that needs it" {
	find obj -name '*.o' -exec nm -Au {} + > needs
	for object in launcher/cli/values launcher/job/report launcher/transport/dial agent/main agent/ranks/procs common/err; do
		grep -q "^obj/$object.o:.* __stack_chk_fail" needs || { echo "$object"; false; }
	done
}

@test "the agent needs no library of libsodium: a host may have none" {
	readelf -dW bin/runner | grep -q 'NEEDED.*libsodium' # that of runner is the shared one here
	run readelf -dW bin/berth-agent
	[[ $output != *sodium* ]]
}
