#!/usr/bin/env bats
# takes_s: 5
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for a shell below; bats sets output
# berth-agent --step, as berth_spank.so asks it, and what that library needs.
load common

setup_file() {
	/usr/bin/python3 "$ROOT/tests/machines/mkmachine.py" "$BATS_FILE_TMPDIR" two-sockets-8gpu pu256-8gpu > /dev/null
}

# Of 4 tasks of 8, on the first of 2 nodes.
ask() { # LINE...
	printf '%s\n' 'berth-step 1' "uid $(id -u)" 'job 7' 'step 0' 'node 0' 'nodes 2' 'size 8' 'ranks 0,1,2,3' \
		'hosts n[1-2]' 'layout 4(x2)' "$@" | timeout 10 "$AGENT" --step | cat
}


@test "each task gets the contract's variables, and the last line is end" {
	run -0 ask
	[ "${lines[0]}" = 'berth-step 1' ]
	[ "${lines[-1]}" = end ]
	[ "$(grep -c ^task <<< "$output")" = 4 ]
	says 'set RANK=3' 'set WORLD_SIZE=8' 'set LOCAL_RANK=3' 'set MASTER_ADDR=n1' 'set MASTER_PORT=2' 'set HOROVOD_CROSS_SIZE=2' \
		'default NCCL_DEBUG=WARN' 'unset TORCHELASTIC_ERROR_FILE'
	silent_on 'SLURM_PROCID='
	silent_on ' PMI_RANK'
	silent_on ' BERTH_AGENT'
	silent_on ' OMPI_MCA_'
	silent_on 'CUDA_VISIBLE_DEVICES='
}

@test "MASTER_PORT is the same on all nodes of a step" {
	local one two
	one=$(ask | grep -m 1 MASTER_PORT)
	two=$(ask 'cuda 0' | sed 's/^node 0/node 1/' | grep -m 1 MASTER_PORT)
	[ -n "$one" ] && [ "$one" = "$two" ]
}

@test "off, an unknown word, a bad value, a request that is none" {
	run -0 ask 'options off'
	[ "$output" = $'berth-step 1\noff\nend' ]
	run -0 ask 'options frobnicate'
	says "error --berth: unknown word 'frobnicate'" 'hint use on, off'
	run -0 ask 'options bind-to=moon'
	says "error 'moon' is not one of auto, none"
	run -0 ask 'colour red'
	says 'error the request of berth_spank.so is not valid: colour'
	run -0 bash -c 'head -c 300000 /dev/zero | tr "\0" a | "$0" --step | cat' "$AGENT"
	says 'error the request of berth_spank.so is not valid: it is too long'
	run -0 ask "topology $T/none.xml"
	says "error cannot read the topology of '$T/none.xml'"
}

@test "only the options are asked about: no machine is looked at" {
	only() { printf '%s\n' 'berth-step 1' "uid $(id -u)" 'only options' "topology $T/none.xml" "options $1" | timeout 10 "$AGENT" --step | cat; }
	run -0 only report,bind-to=core:2
	[ "$output" = $'berth-step 1\noff\nend' ]
	run -0 only nonsense
	says "error --berth: unknown word 'nonsense'" 'hint use on, off'
	run -0 only off,gpu-id=serial
	says "error 'serial' is not one of index, uuid"
}

@test "another user's id, and unequal ids, are refused" {
	run -0 ask 'uid 4242'
	says 'error --step runs with the user ids' '4242'
	[ "$(id -u)" = 0 ] || skip 'not root, so all its ids are equal'
	run -0 bash -c "printf 'berth-step 1\nuid 0\njob 1\nnodes 1\nsize 1\nranks 0\n' | setpriv --euid 65534 '$AGENT' --step | cat"
	says 'error --step runs with the user ids 0, 65534 and 65534, and is asked for 0'
}

@test "a person is not asked for a request" {
	run -2 "$AGENT" --step < /dev/null
	says 'it is not for the command line'
}

@test "the fixed masks of --cpu-bind stay, and GPUs fit them" {
	run -0 ask "topology $BATS_FILE_TMPDIR/two-sockets-8gpu.xml" 'cuda 0,1,2,3,4,5' 'bind-type map_cpu:' 'bind-list 24,30,0,6'
	[ "$(grep -c '^cpus' <<< "$output")" = 0 ]
	[ "$(sed -n 's/^set CUDA_VISIBLE_DEVICES=//p' <<< "$output" | tr '\n' ' ')" = '4 5 0 1 ' ]
}

@test "masks that come later are asked for, and each task keeps the GPUs that Slurm gave it" {
	run -0 ask 'bind-type cores' 'bind-list cores'
	[ "$(grep -cx masks <<< "$output")" = 1 ]
	[ "$(grep -c '^cpus' <<< "$output")" = 0 ]
	run -0 ask 'bind-type mask_cpu:' 'bind-list 0x1,0x1,0x1,0x1'
	[ "$(grep -cx masks <<< "$output")" = 0 ]
	run -0 ask "topology $BATS_FILE_TMPDIR/two-sockets-8gpu.xml" 'cuda 0,1,2,3,4,5,6,7' 'step-gpus 0,1,2,3,4,5,6,7' \
		'task-gpus 6,7;0,1;4,5;2,3' 'options gpu-visible=node'
	[ "$(sed -n 's/^gpu //p' <<< "$output" | tr '\n' ' ')" = '6 0 4 2 ' ]
	says visible
	run -0 ask "topology $BATS_FILE_TMPDIR/two-sockets-8gpu.xml" 'cuda 0,1,2,3' 'step-gpus 0,1,2,3' 'task-gpus 0,1;2' # two lists for four tasks
	[ "$(sed -n 's/^gpu //p' <<< "$output" | tr '\n' ' ')" = '0 1 2 3 ' ]
}

@test "Slurm's own numbers of GPUs in a cgroup are kept: CUDA counts from 0" {
	run -0 ask "topology $BATS_FILE_TMPDIR/two-sockets-8gpu.xml" 'step-gpus 2,3,6,7' 'cuda 0,1,2,3'
	[ "$(sed -n 's/^set CUDA_VISIBLE_DEVICES=//p' <<< "$output" | tr '\n' ' ')" = '0 1 2 3 ' ]
	[ "$(sed -n 's/^set BERTH_GPU=//p' <<< "$output" | tr '\n' ' ')" = '0000:26:00.0 0000:31:00.0 0000:52:00.0 0000:5d:00.0 ' ]
}

@test "berth_spank.so needs libc alone, and resolves its symbols when it is loaded" {
	[ -e /usr/include/slurm/spank.h ] || skip 'no slurm/spank.h (tests/deps launchers installs it)'
	[ "${SAN:-}" != 1 ] || skip 'the sanitizers add libraries'
	make -s -C "$ROOT" BUILD="$BUILD" spank
	run -0 readelf -d "$BUILD/lib/berth_spank.so"
	[ "$(grep NEEDED <<< "$output" | sed 's/.*\[\(.*\)\]/\1/')" = libc.so.6 ]
	[[ $output =~ \(FLAGS\)\ +BIND_NOW ]]
}
