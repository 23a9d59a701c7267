#!/usr/bin/env bats
# all: it needs 1.3 GB of wheels
# limit_s: 180
# takes_s: 4
# shellcheck disable=SC2154 # bats sets output and lines
# CUDA and NCCL of several versions, as their wheels have them (tests/wheels.txt): what libberth declares
# of them, against their headers; and each libnccl.so.2, where there is no GPU.  `make wheels` brings
# the wheels.  A test that misses some tries the others, then skips.
load common

WHEELS=$ROOT/build/wheels

look_for() { # PACKAGE -> here=(NAME-VERSION...) absent=("NAME-VERSION: WHY"...)
	local pin name
	here=() absent=()
	while read -r pin; do
		name=${pin%% *} name=${name/==/-}
		if [ "$(cat "$WHEELS/$name/installed" 2> /dev/null)" = "$pin" ]; then
			here+=("$name")
		else
			absent+=("$name: $(cat "$WHEELS/$name/why" 2> /dev/null || echo "not here (make wheels)")")
		fi
	done < <(grep "^$1" tests/wheels.txt)
	[ ${#absent[@]} = 0 ] || printf 'absent: %s\n' "${absent[@]}"
}

declared() { # TABLE... -> how many calls they have
	cat "${@/%/_calls.def}" | grep -c '^CALL('
}

skip_if_absent() {
	[ ${#absent[@]} = 0 ] || skip "${#absent[@]} wheels are absent: ${absent[0]}"
}

@test "no wheel is another one than that of its hash" {
	look_for nvidia
	[[ ${absent[*]} != *"another wheel than"* ]]
	skip_if_absent
}

@test "declarations of CUDA and NCCL are those of the headers of each version" {
	local name version
	look_for nvidia
	run -0 tests/standin/check_calls.py
	printf '# %s\n' "${lines[@]}" >&3
	for name in "${here[@]}"; do
		version=${name##*-}
		case $name in
		*nccl*) says "NCCL $version: $(declared lib/backend/nccl) calls" ;;
		*) says "CUDA ${version%.*}: $(declared {lib/backend,tests/standin}/cuda) calls" ;;
		esac
	done
	skip_if_absent
}

@test "each NCCL has all that the library calls, and refuses in words where there is no GPU" {
	local name
	look_for nvidia-nccl
	unset "${!NCCL_@}"
	export BERTH_DEVICE=nccl-only CUDA_VISIBLE_DEVICES=
	for name in "${here[@]}"; do
		export BERTH_NCCL=$WHEELS/$name/lib/libnccl.so.2
		run -0 timeout -k 5 60 "$HELPERS/real_nccl"
		echo "$name: $output"
		[[ ${#lines[@]} = 1 && $output == *"rank 0 has no device for it: no NVIDIA driver: "* ]]
		run -0 timeout -k 5 60 "$HELPERS/real_nccl" driver
		echo "$name: $output"
		[[ ${#lines[@]} = 2 && ${lines[0]} == *"the ranks' devices can't be joined: "* ]]
		[ "${lines[1]}" = "NCCL ${name##*-} of $BERTH_NCCL" ]
	done
	skip_if_absent
}
