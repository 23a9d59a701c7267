#!/usr/bin/env bats
# limit_s: 180
# takes_s: 12
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the stand-ins; bats sets output
# What srun is asked for, and what becomes of a step that Slurm refuses.  Stand-ins speak for srun
# and scontrol: a real Slurm does not refuse when it should, and no release after 22.05 is here.
# tests/cluster/slurm_srun.bats has a real srun.
load common

setup() {
	mkdir "$T/bin"
	export PATH=$T/bin:$PATH
	export SLURM_JOB_ID=77 SLURM_NTASKS=1
	job n1
	export SLURM_CONF=$T/slurm.conf
	echo AuthType=auth/none > "$SLURM_CONF"
	scontrol_says 'slurm-wlm 22.05.8' 'Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:3(IDX:0-2)'
}

job() { # NODES
	export SLURM_JOB_NODELIST=$1 SLURM_TASKS_PER_NODE='1(x2)' SLURM_JOB_CPUS_PER_NODE='1(x2)'
	[ "$1" != n1 ] || export SLURM_TASKS_PER_NODE=1 SLURM_JOB_CPUS_PER_NODE=1
}

# Both files must be there: scontrol has no environment of the test.
scontrol_says() { # VERSION DETAILS
	printf '%s\n' "$1" > "$T/version"
	printf '     %s\n' "$2" > "$T/details"
	stand_in scontrol '
		echo "scontrol $*" >> $T/calls
		case $* in
		--version) cat $T/version ;;
		"show config") cat $T/config ;;
		"show job --details 77") cat $T/details ;;
		*) exit 1 ;;
		esac'
}

stand_in() { # NAME SCRIPT: srun and scontrol have few variables
	printf '%s\n' '#!/bin/sh' "T='$T'" "$2" > "$T/bin/$1"
	chmod +x "$T/bin/$1"
}

# A munged for this test, as tests/helpers/libmunge.c has it; it is down until munge_up.
munge_standin() {
	mkdir -p "$T/lib" "$T/munge"
	ln -sf "$HELPERS/libmunge.so" "$T/lib/libmunge.so.2"
	export STANDIN_MUNGE=$T/munge LD_LIBRARY_PATH=$T/lib
}

munge_up() { echo 'of the cluster' > "$T/munge/key"; }

# An srun that starts an agent for each host of its step, here.  BETWEEN, a filter, stands between
# its stdin and theirs: who is on the network.
srun_starts() { # [BETWEEN]
	echo "${1:-cat}" > "$T/between"
	stand_in srun '
		echo "srun $*" >> $T/calls
		export STANDIN_MUNGE=$T/munge LD_LIBRARY_PATH=$T/lib
		while [ "${1#--}" != "$1" ]; do
			case $1 in
			--bcast=*) copy=${1#*=} ;;
			--nodelist=*) hosts=$(echo ${1#*=} | tr , " ") ;;
			esac
			shift
		done
		if [ "${copy-}" ]; then
			cp "$1" "$copy" && shift
			set -- "$copy" "$@"
		fi
		exec 3<&0
		for host in $hosts; do
			mkfifo $T/stdin.$$.$host
			SLURMD_NODENAME=$host "$@" < $T/stdin.$$.$host 3<&- &
			agents="${agents-} $!"
		done
		sh $T/between <&3 | tee $(for host in $hosts; do echo $T/stdin.$$.$host; done) > /dev/null &
		exec 3<&-
		for agent in $agents; do wait $agent || status=$?; done
		exit ${status-0}'
}

# An srun that refuses the first N steps and then starts their agent, here.
srun_refuses() { # N
	echo "$1" > "$T/refuse"
	stand_in srun '
		echo "srun $*" >> $T/calls
		turn=$(grep -c ^srun $T/calls)
		if [ $turn -le "$(cat $T/refuse)" ]; then
			echo "srun: error: Unable to create step: Unspecified error $turn" >&2
			exit 1
		fi
		while [ "${1#--}" != "$1" ]; do
			case $1 in --bcast=*) copy=${1#*=} ;; esac
			shift
		done
		if [ "${copy-}" ]; then
			cp "$1" "$copy" && shift
			set -- "$copy" "$@"
		fi
		SLURMD_NODENAME=n1 exec "$@"'
}

sruns() { grep -c '^srun' "$T/calls"; }

@test "GPUs that differ: a step that Slurm refuses is tried 4 times more" {
	export SLURM_GPUS=3
	srun_refuses 4
	run -0 timeout 60 "$RUNNER" --no-tag echo started
	says started
	silent_on 'Unspecified error'
	[ "$(sruns)" -ge 5 ]
	[ "$(grep '^srun' "$T/calls" | head -5 | grep -c -- '--nodelist=n1 --gpus=3')" = 5 ]
}

@test "the tries are used up: srun's own words" {
	export SLURM_GPUS=3
	srun_refuses 99
	run -240 timeout 60 "$RUNNER" true
	[ "$(sruns)" = 5 ]
	says 'n1: srun ended with status 1 before the agent called: ' 'Unable to create step: Unspecified error 5'
	hinted
}

@test "GPUs that do not differ: a refused step is not tried again, and scontrol is not asked" {
	export SLURM_GPUS_ON_NODE=2
	srun_refuses 99
	run -240 timeout 60 "$RUNNER" true
	[ "$(cut -d' ' -f1 "$T/calls")" = srun ]
	grep -q -- '--gpus-per-node=2' "$T/calls"
	says 'Unspecified error 1'
}

@test "GPUs that differ: a step for each host before Slurm 23.11, one step from then on" {
	export SLURM_GPUS=3
	job 'n[1-2]'
	srun_refuses 99
	details='Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)'
	for version in 'slurm 23.02.7' '' 'no version'; do
		scontrol_says "$version" "$details"
		run -240 timeout 60 "$RUNNER" true
		grep -q -- '--nodes=1 .*--nodelist=n1 --gpus=1' "$T/calls"
		grep -q -- '--nodes=1 .*--nodelist=n2 --gpus=1' "$T/calls"
		[ "$(grep -c external "$T/calls")" = 0 ]
		rm "$T/calls"
	done
	for version in 'slurm 23.11.0' 'slurm-wlm 24.05.1'; do
		scontrol_says "$version" "$details"
		run -240 timeout 60 "$RUNNER" true
		says 'n[1-2]: srun ended with status 1'
		[ "$(cut -d' ' -f1-2 "$T/calls")" = "scontrol --version"$'\n'"srun --overlap" ]
		grep -q -- '--nodes=2 --ntasks=2 --nodelist=n1,n2 --external-launcher ' "$T/calls"
		[ "$(grep -c -- --gpus "$T/calls")" = 0 ]
		rm "$T/calls"
	done
}

@test "GPUs that differ: the one step of Slurm 23.11 starts agents" {
	export SLURM_GPUS=3
	scontrol_says 'slurm 23.11.1' ''
	srun_refuses 0
	run -0 timeout 60 "$RUNNER" --no-tag echo started
	says started
	grep -q -- '--external-launcher ' "$T/calls"
}

# ---- how the key comes to agents ----

clear='agents call back without MUNGE ('

starts() { # runner, with agents that are told --connect=HOW
	rm -f "$T/calls"
	run -0 timeout 60 "$RUNNER" "${@:2}" --no-tag echo started
	says started
	grep -q -- "berth-agent --connect=$1\$" "$T/calls" || { cat "$T/calls"; return 1; }
}

fails() { # REASON: nothing is started
	rm -f "$T/calls"
	run -240 timeout 60 "$RUNNER" true
	says "runner: cannot make a credential for the agents: $1"
	hinted
	[ ! -e "$T/calls" ] || ! grep -q ^srun "$T/calls"
}

@test "MUNGE works: whatever Slurm has, the key is in a credential" {
	munge_standin
	munge_up
	srun_starts
	for type in munge slurm none; do
		echo AuthType=auth/$type > "$SLURM_CONF"
		starts munge
		silent_on "$clear"
	done
	printf '%s\n' AuthType=auth/munge 'AuthInfo=ttl=60,socket=/run/other' > "$SLURM_CONF"
	echo /run/other > "$T/munge/socket"
	starts munge:/run/other
	fails_without_socket
}

fails_without_socket() {
	echo AuthType=auth/munge > "$SLURM_CONF"
	fails 'MUNGE: the stand-in is down'
}

@test "E_SRUN_MUNGE: MUNGE fails, and Slurm has it: nothing starts, with its reason" {
	munge_standin
	srun_starts
	echo AuthType=auth/munge > "$SLURM_CONF"
	fails 'MUNGE: the stand-in is down'
	# slurm.conf does not say it: scontrol does, or nobody
	echo 'Include more.conf' > "$SLURM_CONF"
	for config in 'AuthType                = auth/munge' 'AuthInfo = (null)' ''; do
		echo "$config" > "$T/config"
		fails 'MUNGE: the stand-in is down'
		grep -qx 'scontrol show config' "$T/calls"
	done
	rm "$T/config"
	fails 'MUNGE: the stand-in is down'
}

@test "MUNGE fails, and Slurm does without it: the key is in clear, and one line says so, with -q too" {
	munge_standin
	srun_starts
	for type in slurm none; do
		echo AuthType=auth/$type > "$SLURM_CONF"
		for option in '' -q; do
			starts clear $option
			[ "$(grep -cF "runner: $clear" <<< "$output")" = 1 ]
			says "${clear}MUNGE: the stand-in is down): a process that reads what srun sends can pose as an agent, or as runner; to use ssh, --transport ssh"
		done
	done
	echo > "$SLURM_CONF"
	echo 'AuthType                = auth/slurm' > "$T/config"
	starts clear
	says "$clear"
}

# What stands on the network between srun and an agent; it also listens.
attacker() { # NAME=VALUE...
	export TEST_VERSION TEST_WIRE
	TEST_VERSION=$("$AGENT" --version | sed 's/.* //')
	TEST_WIRE=$(sed -n 's/^enum { WIRE_VERSION = \([0-9]*\) };/\1/p' "$ROOT/common/wire.h")
	/usr/bin/python3 "$ROOT/tests/cli/connect.py" listen silent > "$T/listener" 3>&- &
	listener=$!
	wait_for test -s "$T/listener"
	/usr/bin/python3 "$ROOT/tests/cli/connect.py" call port="$(head -1 "$T/listener")" "$@" > "$T/forged"
}

teardown() {
	[ -z "${listener-}" ] || kill "$listener"
}

@test "a host in between exchanges the call for one with its own key: no agent calls there" {
	munge_standin
	munge_up
	srun_starts "cat $T/forged; exec cat > /dev/null"
	echo AuthType=auth/munge > "$SLURM_CONF"
	attacker within_ms=2000
	run -240 timeout 60 "$RUNNER" true
	says 'n1: srun ended with status 125 before the agent called: ' \
		'cannot call runner: runner uses MUNGE, and the message on stdin is not a credential'
	run ! grep called "$T/listener"
}

@test "without MUNGE it can: runner and the agent say where the agent called" {
	munge_standin
	srun_starts "cat $T/forged; exec cat > /dev/null"
	echo AuthType=auth/none > "$SLURM_CONF"
	attacker within_ms=1000
	run -240 timeout 60 "$RUNNER" true
	says "cannot call runner at 127.0.0.1 (port $(head -1 "$T/listener")): Connection timed out"
	grep -q called "$T/listener"
}

@test "MUNGE fails later: no restart, no second agent, and its reason" {
	munge_standin
	munge_up
	srun_starts
	echo AuthType=auth/none > "$SLURM_CONF" # it has worked: nothing falls back
	job 'n[1-2]'
	run -241 timeout 60 "$RUNNER" --no-tag --allow-same-host --restarts 1 -np 1 -H n1,n2 --kill-grace 1 \
		sh -c "rm $T/munge/key; kill -9 \$PPID"
	says 'n1: lost its agent'
	[ "$(grep -cF 'cannot make a credential for the agents: MUNGE: the stand-in is down' <<< "$output")" = 2 ]
	run ! grep -q -- --connect=clear "$T/calls"
}

@test "a copy of the agent removes itself when runner has proved to be it" {
	munge_standin
	munge_up
	srun_starts
	mkdir -m 777 "$T/open"
	cp "$RUNNER" "$AGENT" "$T/open"
	chmod 777 "$T/open"
	run -0 timeout 60 "$T/open/runner" --no-tag sh -c 'readlink /proc/$PPID/exe'
	[[ ${lines[-1]} =~ ^/tmp/berth-agent-[0-9a-f]{64}\ \(deleted\)$ ]]
	[ ! -e "${lines[-1]% *}" ]
}
