#!/bin/bash
# aarch64.sh [quick]: both programs built for aarch64, their unit tests under qemu-user; prints
# TAP.  quick leaves out the suites that take longest.
#
# The libraries' arm64 archives are fetched (1.3 MB) into build/aarch64/root with an apt of their
# own: installed beside this machine's, their -dev packages would replace its.  Three suites start
# agents of which they expect all, and qemu-user has neither PR_SET_CHILD_SUBREAPER nor
# clone(CLONE_VM): skipped.  With tests/helpers/libfork.c an agent starts ranks there all the same,
# by its own bare system calls.
set -u
cd "$(dirname "$0")/../.." || exit
unset SAN "${!BERTH_@}"
build=${BUILD:-build} how=${1:-}
out=$build/aarch64
root=$PWD/$out/root
[[ $out != /* ]] || root=$out/root
machine=aarch64-linux-gnu
emulate=(qemu-aarch64 -L "/usr/$machine")
packages=(libevent-dev libhwloc-dev libsodium-dev zlib1g-dev check libsubunit-dev)

skip() { echo "1..0 # skip: $*"; exit; }

command -v $machine-gcc > /dev/null || skip "no $machine-gcc (tests/deps aarch64 installs it)"
command -v qemu-aarch64 > /dev/null || skip "no qemu-aarch64 (tests/deps aarch64 installs it)"

fetch() {
	local apt=$root.apt
	[ -e "$root/complete" ] && return
	command -v apt-get > /dev/null || return
	mkdir -p "$apt"/{state,cache,lists/partial,debs} "$root"
	: > "$apt/status"
	cat > "$apt/conf" <<-E2
		APT::Architecture "arm64";
		APT::Architectures { "arm64"; };
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Dir::State "$apt/state";
		Dir::State::lists "$apt/lists";
		Dir::State::status "$apt/status";
		Dir::Cache "$apt/cache";
	E2
	export APT_CONFIG=$apt/conf
	apt-get update -qq > "$apt/log" 2>&1
	(cd "$apt/debs" && apt-get download "${packages[@]}") >> "$apt/log" 2>&1 || return
	for deb in "$apt"/debs/*.deb; do
		dpkg-deb -x "$deb" "$root" || return
	done
	rm -rf "$apt"
	touch "$root/complete"
}
fetch || skip "the arm64 libraries can't be fetched: $(tail -1 "$root.apt/log" 2> /dev/null)"

suites=()
for file in tests/unit/test_*.c; do
	suites+=("$(basename "$file" .c)")
done
programs=(bin/runner bin/berth-agent helpers/libnvidia-ml.so helpers/libfork.so examples/train_digits \
	"${suites[@]/#/tests/}")
make -s -j "$(nproc)" BUILD="$out" OBJCOPY=$machine-objcopy \
	CC="$machine-gcc -isystem $root/usr/include -isystem $root/usr/include/$machine -B$root/usr/lib/$machine/" \
	"${programs[@]/#/$out/}" > "$out/log" 2>&1
built=$?

n=0
result() { # STATUS NAME [FILE]: the file says why not
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" && return
	echo "not ok $n - $2"
	[ -z "${3:-}" ] || tail -20 "$3" | sed 's/^/# /'
	failed=1
}

echo "1..$((${#suites[@]} + 6))"
result $built "both programs and the unit tests build" "$out/log"

run_suite() { # NAME -> NAME.log, NAME.status.  Its tests' stand-in for NVML is found where main would have started itself again
	local dir
	dir=$(mktemp -d /tmp/test_gpu.XXXXXX)
	ln -s "$(realpath "$out")/helpers/libnvidia-ml.so" "$dir/libnvidia-ml.so.1"
	CK_TIMEOUT_MULTIPLIER=20 FAKE_NVML=$dir STAND_IN_DIR=$dir timeout 240 "${emulate[@]}" -E LD_LIBRARY_PATH="$dir" \
		"$out/tests/$1" > "$out/$1.log" 2>&1
	echo $? > "$out/$1.status"
	rm -rf "$dir"
}

why_not() { # NAME
	case $1 in
	test_agent* | test_pmi_* | test_ranks_guard | test_ranks_io) echo "qemu-user lacks what its agents need" ;;
	test_boot_memory) echo "qemu-user lacks limits of memory" ;;
	test_output_output | test_placement_place | test_job_gpu_visible | test_common_wire | test_net | test_backend_tcp | test_backend_hier)
		[ "$how" != quick ] || echo "takes long: tests/soak/aarch64.sh runs it" ;;
	esac
}
for suite in "${suites[@]}"; do
	[ -z "$(why_not "$suite")" ] || continue
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	run_suite "$suite" &
done
wait
for suite in "${suites[@]}"; do
	why=$(why_not "$suite")
	if [ -n "$why" ]; then
		n=$((n + 1))
		echo "ok $n - $suite # SKIP $why"
		continue
	fi
	result "$(cat "$out/$suite.status")" "$suite: $(sed -n 's/.*Checks: \([0-9]*\).*/\1 checks/p' "$out/$suite.log")" \
		"$out/$suite.log"
done

"${emulate[@]}" "$out/examples/train_digits" 2>&1 | diff - <("$build/examples/train_digits") > "$out/digits"
result "${PIPESTATUS[1]}" "libberth: train_digits prints what it prints here" "$out/digits"

here=$(realpath "$build/bin") there=$(realpath "$out")
stand_in() { # PROGRAM QEMU'S OPTION...: a script of its name that emulates it
	local program=$1; shift
	printf '#!/bin/sh\nexec %s %s "$@"\n' "${emulate[*]} $*" "$there/bin/$program" > "$there/$program"
	chmod +x "$there/$program"
}

# A plan by launcher and agent of either machine.
mkdir -p "$out/machines"
tests/machines/mkmachine.py "$out/machines" two-sockets-8gpu
stand_in runner
stand_in berth-agent
plan() {
	timeout 60 "$1" --plan=json -H gpu01:8 --topology "$out/machines/two-sockets-8gpu.xml" --launch-agent "$2" 2>&1
}
plan "$here/runner" "$here/berth-agent" > "$out/plan"
grep -q '"rank": 7,' "$out/plan"
result $? "the plan to compare with" "$out/plan"
for pair in "$here/runner $there/berth-agent" "$there/runner $here/berth-agent"; do
	# shellcheck disable=SC2086 # two words
	plan $pair > "$out/plan.other"
	diff "$out/plan" "$out/plan.other" > "$out/plan.diff"
	result $? "the same plan of ${pair//"$PWD/"/}" "$out/plan.diff"
done

# Ranks of this machine, started by an agent of the other.
stand_in berth-agent -E "LD_PRELOAD=$there/helpers/libfork.so"
said=$there/said # by rank 0, before the status of rank 1 ends it
rm -f "$said"
# shellcheck disable=SC2016 # for the ranks' shell
(umask 027; cd / && timeout 60 "$here/runner" --launch-agent "$there/berth-agent" --bind-to hwthread --report-bindings \
	-np 2 sh -c 'echo "$RANK $(umask) $PWD $(sed -n "s/SigIgn:.*\(.......\)$/\1/p" /proc/self/status) \
		$(sed -n "s/Cpus_allowed_list:[^0-9]*//p" /proc/self/status)"
		[ "$RANK" = 1 ] || { touch "$0"; exit; }
		until [ -e "$0" ]; do sleep 0.1; done
		exit 5' "$said") \
	> "$out/job" 2>&1
echo "status $?" >> "$out/job"
grep -q 'stdout>:0 0027 / .*0000000' "$out/job" && grep -q 'stdout>:1 0027 / ' "$out/job" && grep -q '^status 5$' "$out/job"
result $? "ranks of an emulated agent: umask, folder, signals, status" "$out/job"
exit "${failed:-0}"
