#!/usr/bin/env bats
# limit_s: 300
# takes_s: 1
# more: builds both programs whole
# shellcheck disable=SC2154 # bats sets output
# What both programs are, however a packager sets the flags.
load common

OBJECTS=(launcher/cli/values launcher/job/report launcher/transport/dial agent/main agent/ranks/procs common/err)

setup() {
	[ "${SAN:-}" != 1 ] || skip "the sanitizers' build is not installed"
	cd "$BATS_TEST_TMPDIR" || return
}

# Flags that ask for the opposite of what we want, and libsodium as a shared library.
build() { # LDFLAGS-OF-ITS-OWN VARIABLE...
	make -s -j "$(nproc)" -C "$ROOT" BUILD="$PWD" SODIUM=-lsodium \
		CFLAGS='-O0 -fno-pie -no-pie -fno-stack-protector' \
		LDFLAGS="-no-pie -Wl,-z,norelro,-z,lazy,--no-as-needed $1" "${@:2}" \
		"$PWD/bin/runner" "$PWD/bin/berth-agent"
}

objects() { printf "$PWD/obj/%s.o " "${OBJECTS[@]:$1:$2}"; } # of a variable of make

are_hardened() {
	for program in bin/runner bin/berth-agent; do
		readelf -hldW "$program" > elf
		for wanted in '^ *Type: *DYN ' '^ *GNU_RELRO ' '\(FLAGS\).*BIND_NOW' '\(FLAGS_1\).* PIE'; do
			grep -Eq "$wanted" elf || { echo "$program: no $wanted"; cat elf; return 1; }
		done
		if grep -E 'GNU_STACK.* RWE|TEXTREL' elf; then echo "$program"; return 1; fi
	done
	find obj -name '*.o' -exec nm -Au {} + > needs
	for object in "${OBJECTS[@]}"; do
		grep -q "^obj/$object.o:.* __stack_chk_fail" needs || { echo "$object: no stack protector"; return 1; }
	done
	readelf -dW bin/runner | grep -q 'NEEDED.*libsodium' || return # that of runner is the shared one here
	run readelf -dW bin/berth-agent
	[[ $output != *sodium* ]] || { echo "a host may have no libsodium"; return 1; }
}

@test "programs of a few objects are position-independent, with read-only relocations and the stack protector" {
	build -Wl,--unresolved-symbols=ignore-all launcher="$(objects 0 3)" agent="$(objects 4 1)" common="$(objects 5 1)"
	are_hardened
}

# bats test_tags=all
@test "so are both programs" {
	build ''
	are_hardened
}

@test "libberth has read-only relocations, and resolves its symbols when it is loaded" {
	readelf -ldW "$BUILD/lib/libberth.so" > elf
	for wanted in '^ *GNU_RELRO ' '\(FLAGS\).*BIND_NOW'; do
		grep -Eq "$wanted" elf || { echo "no $wanted"; cat elf; false; }
	done
	if grep -E 'GNU_STACK.* RWE|TEXTREL' elf; then false; fi
}
