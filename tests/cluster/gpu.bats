#!/usr/bin/env bats
# limit_s: 120
# takes_s: 5
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # $ is for the ranks' shells; bats sets output, stderr and lines
# GPUs of hosts and jobs that want them at the same time.  The GPUs are stand-ins: each host has
# a tree as the driver lays it out mounted over its /sys/bus/pci and /proc/driver, and device
# files of its own.
load jobs

UUID=GPU-00000000-0000-0000-0000-00000000000

setup_file() {
	cluster_up 3
	[ -z "$(why_no_cluster)" ] || return 0
	gpus n1 0000:53:00.0 0000:54:00.0 0000:d3:00.0 0000:d4:00.0
	gpus n2 0000:53:00.0 0000:54:00.0 0000:d3:00.0 0000:d4:00.0
	script holds <<- 'S'
		echo "gpu$RANK $CUDA_VISIBLE_DEVICES"
		trap 'exit 0' TERM
		sleep 1000 &
		wait
	S
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

teardown() {
	[ -n "$(why_no_cluster)" ] || [ -z "${pid-}" ] || on n0 pkill -KILL -x runner || true
}

# HOST gets GPUs at these addresses, index k with minor number k.
gpus() { # HOST ADDRESS...
	local h=$1 spec=() k=0 address; shift
	for address; do
		spec+=("nvidia,$address,minor=$k,uuid=$UUID$k,numa=0,cpus=0-$(($(nproc) - 1))")
		k=$((k + 1))
	done
	/usr/bin/python3 "$ROOT/tests/machines/mktree.py" "$STATE/gpus.$h" "${spec[@]}"
	on "$h" sh -c 'mount --bind /vc/gpus.$1/sys/bus/pci /sys/bus/pci && mount --bind /vc/gpus.$1/proc/driver /proc/driver
		for f in /vc/gpus.$1/dev/nvidia*; do mknod -m 666 /dev/${f##*/} c 1 3; done' sh "$h"
}

# A job that runs until it gets TERM; $T/out has its GPUs.
hold() { # NP HOSTS OPTION...
	local rank np=$1 hosts=$2; shift 2
	start -np "$np" -H "$hosts" "$@" bash /vc/t/holds
	for ((rank = 0; rank < np; rank++)); do
		wait_for grep -q "gpu$rank " "$T/out" || { cat "$T/err"; return 1; }
	done
}

let_go() {
	signal TERM
	ended_with 0 n1 n2
}

got() { # the GPUs of the ranks, in order
	sed -n 's/^\[[0-9]*\]<stdout>:gpu//p' "${1:-/dev/stdin}" | sort -n | cut -d' ' -f2 | xargs
}

@test "each rank of a host sees one GPU of its own" {
	run -0 r -H n1:4,n2:2 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER'
	[ "$(got <<< "$output")" = "0 1 2 3 0 1" ]
	says PCI_BUS_ID
	silent_on "in use"
}

@test "-H host:gpus: as many ranks as that host has GPUs" {
	gpus n3 0000:01:00.0
	run -0 --separate-stderr r -H n1:gpus,n3:gpus sh -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'
	[ "$(plain)" = $'n1 0\nn1 1\nn1 2\nn1 3\nn3 0' ]
}

@test "two jobs at once on one host get different GPUs, on the other host any" {
	hold 3 n1:2,n2:1
	[ "$(got "$T/out")" = "0 1 0" ]
	run -0 --separate-stderr r -H n1:2,n2:2 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES'
	[ "$(got <<< "$output")" = "2 3 1 2" ]
	[[ $stderr != *GPU* ]]
	let_go
	run -0 r -H n1:2 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES'
	[ "$(got <<< "$output")" = "0 1" ]
}

@test "too few are free: the second job runs, and says which GPU is whose" {
	hold 3 n1:3
	run -0 --separate-stderr r -H n1:2,n2:2 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES'
	[ "$(got <<< "$output")" = "3 0 0 1" ]
	holder=$(on n1 pgrep -x berth-agent | tail -1)
	[[ $stderr == *"n1: GPU 0000:53:00.0 is in use by another job: pid $holder (berth-agent) of uid 0"*"hint: "* ]]
	[ "$(grep -c 'is in use' <<< "$stderr")" = 1 ]
	let_go
}

@test "a job that is killed gives its GPUs back" {
	hold 4 n1:4
	on n1 sh -c 'kill -KILL $(pgrep -x berth-agent)'
	ended_with 241 n1
	run -0 --separate-stderr r -H n1:4 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES'
	[ "$(got <<< "$output")" = "0 1 2 3" ]
	[[ $stderr != *GPU* ]]
}

@test "more ranks than GPUs: one loud line; --no-gpu-sharing refuses" {
	run -0 --separate-stderr r -H n1:2,n3:2 true
	[[ $stderr == *"n3: 2 ranks share 1 GPU"* ]]
	run ! grep "n1: .* GPU" <<< "$stderr"
	run -2 r --no-gpu-sharing -H n1:2,n3:2 touch /vc/t/started
	says "n3: cannot give each of 2 ranks its own GPU: this host has 1"
	hinted
	[ ! -e "$STATE/t/started" ]
}

@test "--gpus and --gpu-visible node on every host" {
	run -0 r --gpus 3,0000:54:00.0 -H n1:2,n2:2 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES'
	[ "$(got <<< "$output")" = "1 3 1 3" ]
	run -0 r --gpu-visible node -H n1:2,n2:1 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES'
	[ "$(got <<< "$output")" = "0,1,2,3 0,1,2,3 0,1,2,3" ]
	run -0 r --gpu-id uuid -H n2:2 sh -c 'echo gpu$RANK $CUDA_VISIBLE_DEVICES'
	[ "$(got <<< "$output")" = "${UUID}0 ${UUID}1" ]
	run -2 r --gpu-visible node -H n3:2 true
	says "--gpu-visible node needs a GPU for each rank"
}

@test "the failure of a rank names its GPU; --plan shows GPUs and claims none" {
	run -5 r -H n1:2 sh -c 'exit $((RANK * 5))'
	says "rank 1 on 'n1' (pid " ", GPU 1 0000:54:00.0) exited with status 5"
	hold 2 n1:2
	run -0 --separate-stderr r --plan -H n1:4
	says 0000:53:00.0 0000:54:00.0 0000:d3:00.0 0000:d4:00.0
	[[ $stderr != *"in use"* ]]
	let_go
}
