#!/usr/bin/env bats
# limit_s: 120
# takes_s: 5
# shellcheck disable=SC2016,SC2030,SC2031,SC2153,SC2154 # bats sets output, stderr and lines
# --plan on hosts that are different machines: sshd gives each host's agent a topology of its own.
SHARED=${BERTH_SHARED-}
load jobs
SHARED=${SHARED:-$ROOT/../shared}

setup_file() {
	cluster_up 3
	[ -z "$(why_no_cluster)" ] || return 0
	"$ROOT/tests/machines/mkmachine.py" "$STATE" two-sockets-8gpu three-gpus-1-2 no-gpu
	machine n1 two-sockets-8gpu
	machine n2 three-gpus-1-2
	machine n3 no-gpu
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
}

# From now on HOST is this machine; sshd takes a moment to read its configuration again.
machine() { # HOST NAME
	"$VCLUSTER" topo "$1" "/vc/$2.xml"
	wait_for is_machine "$1" "/vc/$2.xml"
}

is_machine() { [[ $(on n0 ssh -o BatchMode=yes "$1" 'echo $HWLOC_XMLFILE' 2> /dev/null) = "$2" ]]; }

# $output is JSON; EXPRESSION of plan P and its ranks R, as Python prints it.
plan_says() { # EXPRESSION TEXT
	local is
	is=$(/usr/bin/python3 -c 'import json, sys; P = json.load(sys.stdin); R = P["ranks"]; print('"$1"')' <<< "$output")
	[ "$is" = "$2" ] || { echo "$1 is $is, not $2"; return 1; }
}

@test "--plan=json: three different machines in one plan" {
	run -0 --separate-stderr r --plan=json -H n1:8,n2:3,n3:2 true
	plan_says 'len(R), P["np"]' '13 13'
	plan_says '[(r["rank"], r["host"], r["local_rank"]) for r in R if r["local_rank"] == 0]' \
		"[(0, 'n1', 0), (8, 'n2', 0), (11, 'n3', 0)]"
	plan_says '[r["gpu_index"] for r in R]' '[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, None, None]'
	plan_says '[r["visible"] for r in R if r["host"] == "n2"]' "['0', '1', '2']"
	plan_says 'R[0]["gpu"], R[0]["cpus"], R[7]["gpu"], R[7]["cpus"]' '0000:10:00.0 0-5,48-53 0000:5d:00.0 42-47,90-95'
	plan_says 'R[11]["gpu"], R[12]["gpu"], R[11]["shared_with"]' 'None None []'
	plan_says 'sorted(R[0])' "['cpus', 'gpu', 'gpu_index', 'host', 'local_rank', 'numa', 'rank', 'shared_with', 'visible', 'why']"
}

@test "the plan that agents make is the one that --topology makes" {
	run -0 --separate-stderr r --plan=json -H n1:8,n2:3,n3:2 true
	asked=$output
	run -0 --separate-stderr r --plan=json -H n1:8,n2:3,n3:2 --topology n1=/vc/two-sockets-8gpu.xml \
		--topology n2=/vc/three-gpus-1-2.xml --topology /vc/no-gpu.xml true
	[ "$asked" = "$output" ]
}

@test "gpus as slots, --map-by node, sharing across ranks of one host" {
	run -0 --separate-stderr r --plan=json -H n1:gpus,n2:gpus true
	plan_says 'len(R)' 11
	run -0 --separate-stderr r --plan=json --map-by node -H n1:2,n2:4 true
	plan_says '[r["host"] for r in R]' "['n1', 'n2', 'n1', 'n2', 'n2', 'n2']"
	plan_says '[(r["rank"], r["gpu_index"], r["shared_with"]) for r in R if r["shared_with"]]' '[(1, 0, [3]), (3, 0, [1])]'
	[[ $stderr == *"n2: 4 ranks share 3 GPUs"* ]]
	run -2 r --plan --no-gpu-sharing -H n1:2,n2:4 true
	says "n2: cannot give each of 4 ranks its own GPU: this host has 3"
	run -2 r --plan --bind-to l3:9 -H n1:2,n2:2 true
	says "--bind-to l3:9: the CPUs allowed on this host have "
	hinted
}

@test "the text has every host once, its ranks, and a certificate for each" {
	run -0 r --plan -H n1:8,n2:3
	says "plan: 11 ranks on 2 hosts" $'\nn1: 8 ranks\n' $'\nn2: 3 ranks\n'
	[ "$(grep -cE '^ *[0-9]+ +[0-7]  [0-9] 0000:' <<< "$output")" = 11 ]
	[ "$(grep -c "^0 cores outside their GPU's socket" <<< "$output")" = 2 ]
	[ "$(wc -L <<< "$output")" -le 80 ]
	run -0 r --plan -v -H n1:8,n2:3
	[ "$(grep -c 'by PCI order; its home is ' <<< "$output")" = 11 ]
}

@test "a job on a host with another machine's topology runs, unbound" {
	run -0 --separate-stderr r -H n1:2,n2:1 sh -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'
	[ "$(plain)" = $'n1 0\nn1 1\nn2 0' ]
}

@test "a plan of agents on real machines holds before the reference checker" {
	[ -e "$SHARED/placement/oracle.py" ] || skip "no $SHARED/placement/oracle.py"
	command -v lstopo-no-graphics > /dev/null || skip "no lstopo-no-graphics (package hwloc-nox)"
	for name in aws-p5-8xh100 azure-ndv4-8xa100; do
		# lstopo refuses comments, as hwloc does without libxml
		/usr/bin/python3 -c 'import re, sys; print(re.sub(r"<!--.*?-->\s*", "", sys.stdin.read(), flags=re.S), end="")' \
			< "$SHARED/topologies/$name.xml" > "$STATE/$name.xml"
	done
	machine n1 aws-p5-8xh100
	machine n2 azure-ndv4-8xa100
	run -0 --separate-stderr r --plan=json -H n1:8,n2:8 true
	echo "$output" > "$T/plan"
	for pair in n1:aws-p5-8xh100 n2:azure-ndv4-8xa100; do
		/usr/bin/python3 -c 'import json, sys; P = json.load(open(sys.argv[1]))
P["ranks"] = [r for r in P["ranks"] if r["host"] == sys.argv[2]]
json.dump(P, sys.stdout)' "$T/plan" "${pair%:*}" > "$T/one.json"
		run -0 /usr/bin/python3 "$SHARED/placement/oracle.py" check "$STATE/${pair#*:}.xml" "$T/one.json"
	done
}
