#!/usr/bin/env bats
# takes_s: 3
# shellcheck disable=SC2001,SC2016,SC2154 # sed trims lines; $ is for the ranks' shells; bats sets output
# --nccl-transports and --nccl-log: what NCCL's log says of the pairs of ranks.  No line comes from
# a GPU: a script prints them in the forms of NCCL, and tests/fuzz/corpus/fuzz_nccl_log has logs.
load common

setup() {
	cd "$T" || return
	LOGS=$ROOT/tests/fuzz/corpus/fuzz_nccl_log
	cat > rank.sh <<- 'S'
		# As NCCL: into NCCL_DEBUG_FILE, else to stdout, if NCCL_DEBUG is INFO.
		echo "step of rank $RANK"
		[ "$NCCL_DEBUG" = INFO ] || exit 0
		exec 3>&1
		[ -z "$NCCL_DEBUG_FILE" ] || exec 3> "$NCCL_DEBUG_FILE"
		to=$(((RANK + 1) % WORLD_SIZE)) head="box:$$:$$ [0] NCCL INFO"
		init="comm 0x1 rank $RANK nranks $WORLD_SIZE cudaDev 0 nvmlDev $RANK busId ${RANK}000 commId 0xabc"
		[ "$RANK" != 0 ] || echo "NCCL version 2.27.5+cuda12.9" >&3
		echo "$head $init - Init START" >&3
		via=P2P/CUMEM
		[ "$RANK" != 2 ] || via=SHM/direct
		echo "$head Channel 00/0 : $RANK[$RANK] -> $to[$to] via $via" >&3
		[ "$RANK" != 3 ] || printf '\n%s\n' "box:$$:$$ [0] x.cc:9 NCCL WARN trouble" >&3
		echo "$head $init - Init COMPLETE" >&3
	S
	expected="NCCL 2.27.5+cuda12.9: 4 ranks on 1 host, 4 channels
ranks via channels pairs NICs
within $(hostname) P2P/CUMEM 3 3
within $(hostname) SHM 1 1
runner: warning: host memory (SHM) between ranks 2-3 on $(hostname), where 3 pairs have P2P
hint: compare \`nvidia-smi topo -p2p r\` of these GPUs; without NVLink it may be the best way
runner: warning: NCCL of rank 3 on $(hostname): trouble"
}

# The table ends stderr, whatever the widths of its columns are.
table_is_there() {
	stderr=$(sed 's/^ *//' <<< "$stderr" | tr -s ' ')
	[[ $stderr == *"runner: $expected" ]] || { printf 'stderr: %s\n' "$stderr"; return 1; }
}

@test "a job: the table at the end, and of NCCL's log only version and warning" {
	run -0 --separate-stderr "$RUNNER" -np 4 --nccl-transports bash rank.sh
	table_is_there
	[ "$(grep -c 'step of rank' <<< "$output")" = 4 ]
	says '[0]<stdout>:NCCL version 2.27.5' '[0] x.cc:9 NCCL WARN trouble'
	silent_on 'NCCL INFO'
	# a line of its own for each: none is torn
	[ "$(wc -l <<< "$output")" = 7 ]
}

@test "a level of the user's: its lines are shown, and read all the same" {
	export NCCL_DEBUG=INFO
	run -0 --separate-stderr "$RUNNER" -np 4 --nccl-transports bash rank.sh
	table_is_there
	[ "$(grep -c 'NCCL INFO Channel' <<< "$output")" = 4 ]
}

@test "without the option nothing is asked of NCCL, and nothing is read" {
	run -0 --separate-stderr "$RUNNER" -np 4 bash rank.sh
	no_stderr
	[ "$(wc -l <<< "$output")" = 4 ]
	NCCL_DEBUG=INFO run -0 --separate-stderr "$RUNNER" -np 4 bash rank.sh
	no_stderr
}

@test "no rank logs anything" {
	run -0 "$RUNNER" -np 2 --nccl-transports true
	says 'runner: NCCL: no rank has logged what it does'
	NCCL_DEBUG=WARN run -0 "$RUNNER" -np 2 --nccl-transports bash rank.sh
	says 'no rank has logged'
	hinted
}

@test "--summary=json has it as a member" {
	run -0 --separate-stderr "$RUNNER" -np 4 --nccl-transports --summary=json bash rank.sh
	grep '^{' <<< "$stderr" | python3 -c '
import json, sys
nccl = json.loads(sys.stdin.read())["nccl"]
assert [p["via"] for p in nccl["pairs"]] == ["P2P/CUMEM", "SHM"], nccl
assert nccl["ranks"] == 4 and len(nccl["warnings"]) == 2, nccl'
	[[ $stderr != *'runner: NCCL'* ]]
}

@test "ranks that start again: the last start counts" {
	cat > again.sh <<- 'S'
		. ./rank.sh
		[ "$RANK" != 1 ] || [ -e once ] || { touch once; exit 1; }
	S
	run -0 --separate-stderr "$RUNNER" -np 4 --restarts 1 --nccl-transports bash again.sh
	table_is_there
}

@test "a rank that is killed in its init has said what it said" {
	echo 'kill -9 $$' >> rank.sh
	run -137 --separate-stderr "$RUNNER" -np 1 --nccl-transports bash rank.sh
	[[ $stderr == *'NCCL 2.27.5+cuda12.9: 1 rank on 1 host'* ]]
}

@test "logs of other launchers: the table of each version's forms" {
	run -1 "$RUNNER" --nccl-log "$LOGS/2.18-one-pair-by-shm"
	[ "$output" = 'NCCL 2.18.1+cuda12.1: 16 processes on 2 hosts, 32 channels, network IB, NVLS
  ranks                    via           channels  pairs  NICs
  within gpu01             P2P/CUMEM           14      7
  within gpu02             P2P/CUMEM           12      6
  within gpu02             SHM                  2      1
  between gpu01 and gpu02  NET/IB GDRDMA        4      2  mlx5_7
warning: host memory (SHM) between ranks 13-14 on gpu02, where 6 pairs have P2P
hint: compare `nvidia-smi topo -p2p r` of these GPUs; without NVLink it may be the best way' ]
	run -0 "$RUNNER" --nccl-log "$LOGS/rccl-libfabric"
	says 'NCCL 2.18.3+hip6.0: 4 processes on 2 hosts, 4 channels, network AWS Libfabric' \
		'between frontier00061 and frontier00062  NET/AWS Libfabric GDRDMA        2      2'
	run -0 "$RUNNER" --nccl-log - < "$LOGS/2.4-sockets"
	says 'between node1 and node2  NET/Socket        2      2  eno1'
	run -1 "$RUNNER" --nccl-log "$LOGS/2.30-split"
	says 'between gpu01 and gpu02  NET/IB GDRDMA        6      4  mlx5_[2-3]' \
		'NCCL of rank 5 on gpu02: NET/IB : Unable to open device mlx5_7'
	run -1 "$RUNNER" --nccl-log "$LOGS/2.22-no-gdr-on-one-host"
	says 'channels without GPUDirect RDMA on gpu02' 'rank 0 on gpu01 was 12.3 s in the bootstrap'
	run -1 "$RUNNER" --nccl-log "$LOGS/sockets-in-place-of-ib"
	says 'NET/Socket between n[1-4], although NCCL found InfiniBand on n[1-3]' 'different versions'
}

@test "several logs are one; a file that is not there" {
	split -n l/5 "$LOGS/2.18-one-pair-by-shm" part
	run -1 "$RUNNER" --nccl-log part*
	says '16 processes on 2 hosts, 32 channels'
	run -2 "$RUNNER" --nccl-log part* none
	says "runner: --nccl-log: cannot read 'none': No such file or directory"
}
