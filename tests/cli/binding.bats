#!/usr/bin/env bats
# limit_s: 240
# takes_s: 7
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the ranks' shells; bats sets output and stderr
# Where ranks run: masks read back, plans for people and programs, GPUs between two jobs.
load common

setup_file() {
	/usr/bin/python3 "$ROOT/tests/machines/mkmachine.py" "$BATS_FILE_TMPDIR" \
		two-sockets-8gpu half-cores-2gpu no-gpu-4pu > /dev/null
}

setup() {
	cpus=$(nproc)
	allowed=$(mask self)
}

r() { timeout -k 5 30 "$RUNNER" "$@" < /dev/null; }
mask() { sed -n 's/^Cpus_allowed_list:\s*//p' "/proc/$1/status"; }
masks() { # OPTION... -> "RANK MASK" lines
	r "$@" grep Cpus_allowed_list /proc/self/status 2> "$T/err" |
		sed 's/^\[\([0-9]*\)\].*:\s*\([0-9,-]*\)$/\1 \2/' | sort -n
}
machine() { echo "$BATS_FILE_TMPDIR/$1.xml"; }

# python over the plan: `p` is the object of --plan=json, `ranks` its ranks.
plan() { # CODE OPTION...
	local code=$1; shift
	r --plan=json "$@" > "$T/plan" && /usr/bin/python3 -c '
import json, sys
p = json.load(open(sys.argv[2])); ranks = p["ranks"]
def members(s): return {c for part in s.split(",") for a, _, b in [part.partition("-")] for c in range(int(a), int(b or a) + 1)} if s else set()
exec(sys.argv[1])' "$code" "$T/plan"
}

@test "--bind-to auto: disjoint, equal shares of all CPUs" {
	[ "$cpus" -ge 2 ] || skip "one CPU"
	run -0 masks -np 2
	[ "${lines[0]}" != "0 $allowed" ]
	/usr/bin/python3 - "$allowed" "$output" << 'P'
import sys
def members(s): return {c for part in s.split(",") for a, _, b in [part.partition("-")] for c in range(int(a), int(b or a) + 1)}
got = [members(line.split()[1]) for line in sys.argv[2].splitlines()]
assert len(got) == 2 and not got[0] & got[1] and len(got[0]) == len(got[1]), got
assert got[0] | got[1] <= members(sys.argv[1]), got
P
}

@test "--bind-to none: as runner is; socket and numa hold core, core holds hwthread" {
	run -0 masks --bind-to none -np 2
	[ "$output" = "0 $allowed"$'\n'"1 $allowed" ]
	for what in socket numa l3 core hwthread core:1 hwthread:1; do
		run -0 masks --bind-to "$what" -np 1
		[[ $output =~ ^0\ [0-9,-]+$ ]]
	done
	[[ $(masks --bind-to hwthread -np 1) =~ ^0\ [0-9]+$ ]]
}

@test "--bind-to core:N gives N cores; more than there are is refused" {
	[ "$cpus" -ge 2 ] || skip "one CPU"
	run -0 masks --bind-to hwthread:2 -np 1
	[[ $output =~ ^0\ [0-9]+[,-][0-9]+$ ]]
	run -2 r --bind-to hwthread:4096 -np 1 true
	says "hwthread:4096"
	hinted
}

@test "runner under taskset: ranks stay within what it may use" {
	one=${allowed%%[,-]*}
	run -0 taskset -c "$one" timeout 20 "$RUNNER" -np 2 grep Cpus_allowed_list /proc/self/status
	[ "$(grep -c "Cpus_allowed_list:.$one\$" <<< "$output")" = 2 ]
	run -0 taskset -c "$one" timeout 20 "$RUNNER" --bind-to none -np 1 grep Cpus_allowed_list /proc/self/status
	[[ $output =~ Cpus_allowed_list:.$one$ ]]
}

@test "BERTH_CPUS is the mask, OMP_NUM_THREADS the cores in it" {
	run -0 r -np 1 bash -c '[ "$BERTH_CPUS" = "$(sed -n "s/^Cpus_allowed_list:\s*//p" /proc/self/status)" ] && echo same'
	says same
}

@test "--report-bindings says what was read back, one line a rank" {
	run -0 --separate-stderr r --report-bindings -np 2 true
	[ "$output" = "" ]
	[ "$(grep -cE '^runner: rank [01] on [^ ]+, pid [0-9]+: cpus [0-9,-]+, numa [0-9,-]+, GPU -$' <<< "$stderr")" = 2 ]
	[ "$(sed -n 's/.*rank \([01]\) .*cpus \([0-9,-]*\), numa.*/\1 \2/p' <<< "$stderr" | sort)" = "$(masks -np 2)" ]
}

@test "--plan starts nothing, and says the same masks as then are bound" {
	run -0 --separate-stderr r --plan -np 2 touch "$T/started"
	says "plan: 2 ranks on 1 host" "rank  local  GPU" "why"
	[ ! -e "$T/started" ]
	[ "$(plan 'for r in ranks: print(r["rank"], r["cpus"])' -np 2 true)" = "$(masks -np 2)" ]
	run -0 r --dry-run -np 1
	says "plan: 1 rank on 1 host"
}

@test "--plan fits the terminal, a file has 80 columns, -v prints all; equal hosts share a table" {
	local m
	m=$(machine two-sockets-8gpu)
	run -0 --separate-stderr r --plan -H 'n[01-64]:8' --topology "$m"
	says "plan: 512 ranks on 64 hosts" "n[01-64]: 8 ranks each, shown for n01; 8 higher"
	[ "${#lines[@]}" -lt 20 ]
	[ "$(wc -L <<< "$output")" -le 80 ]
	run -0 --separate-stderr r --plan -v -H 'n[01-64]:8' --topology "$m"
	says "GPU 7 (0000:5d:00.0 NVIDIA H100 80GB HBM3) by PCI order; its home is Package#1; 6 of 6 cores there"
	run -0 /usr/bin/python3 - "$RUNNER" "$m" << 'P'
import fcntl, os, pty, struct, sys, termios
for columns in (70, 120):
    pid, fd = pty.fork()
    if not pid:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execv(sys.argv[1], ["runner", "--plan", "-np", "12", "--topology", sys.argv[2]])
    text = b""
    try:
        while part := os.read(fd, 65536):
            text += part
    except OSError:
        pass
    assert os.waitpid(pid, 0)[1] == 0, text
    rows = [line for line in text.decode().splitlines() if line[:4].strip().isdigit()]
    assert len(rows) == 12, text
    assert max(map(len, rows)) <= columns, rows
    assert (max(map(len, rows)) > 80) == (columns == 120), rows
P
}

@test "--plan=json: all that is promised, of the promised type" {
	plan '
assert p["np"] == 3 == len(ranks)
for i, r in enumerate(ranks):
    assert r["rank"] == i and r["local_rank"] == i, r
    assert set(r) >= {"rank", "local_rank", "host", "gpu", "gpu_index", "cpus", "numa", "shared_with", "why", "visible"}
    assert r["gpu"] is None and r["gpu_index"] is None and r["shared_with"] == [] and r["visible"] == ""
    assert r["host"] and r["why"] and members(r["cpus"])' -np 3 true
}

@test "--topology: eight GPUs on two sockets, no host is asked" {
	plan '
assert [r["gpu_index"] for r in ranks] == list(range(8))
assert [r["visible"] for r in ranks] == [str(i) for i in range(8)]
assert ranks[0]["gpu"] == "0000:10:00.0"
assert [r["numa"] for r in ranks] == ["0"] * 4 + ["1"] * 4
sets = [members(r["cpus"]) for r in ranks]
assert all(len(s) == 12 for s in sets) and len(set.union(*sets)) == 96
assert all(r["host"] == "far-away" for r in ranks)' --topology "$(machine two-sockets-8gpu)" -H far-away:8
}

@test "--topology: more ranks than GPUs share evenly, and know with whom" {
	plan '
assert [r["shared_with"] for r in ranks] == [[1], [0], [3], [2]] or \
       [r["shared_with"] for r in ranks] == [[2], [3], [0], [1]], ranks
assert not set.intersection(*[members(r["cpus"]) for r in ranks])' --topology "$(machine half-cores-2gpu)" -np 4
	run -2 r --plan --no-gpu-sharing --topology "$(machine half-cores-2gpu)" -np 3
	says "3 ranks" "this host has 2"
	hinted
}

@test "--topology HOST=FILE: each host its own machine; ranks shared_with are global" {
	plan '
assert [r["host"] for r in ranks] == ["a"] * 8 + ["b"] * 4
assert ranks[8]["gpu"] is not None and ranks[8]["local_rank"] == 0
assert all(x >= 8 for r in ranks[8:] for x in r["shared_with"])
assert sorted(len(r["shared_with"]) for r in ranks[8:]) == [1, 1, 1, 1]' \
		--topology "a=$(machine two-sockets-8gpu)" --topology "b=$(machine half-cores-2gpu)" -H a:8,b:4
}

@test "--topology: without -np one rank per GPU; a:gpus; without GPUs per core" {
	plan 'assert len(ranks) == 8' --topology "$(machine two-sockets-8gpu)"
	plan 'assert len(ranks) == 10' --topology "a=$(machine two-sockets-8gpu)" \
		--topology "b=$(machine half-cores-2gpu)" -H a:gpus,b:gpus
	plan 'assert len(ranks) == 2 and all(r["gpu"] is None for r in ranks)' --topology "$(machine no-gpu-4pu)"
}

@test "--gpus by index, PCI address and UUID's absence; --gpu-visible and its values" {
	local m
	m=$(machine two-sockets-8gpu)
	plan 'assert [r["gpu_index"] for r in ranks] == [2, 5], ranks' --topology "$m" --gpus 2,5 -np 2
	plan 'assert [r["gpu_index"] for r in ranks] == [1], ranks' --topology "$m" --gpus 0000:1b:00.0 -np 1
	run -2 r --plan --topology "$m" --gpus 8 -np 1
	says "no GPU '8'"
	hinted
	plan 'assert [r["visible"] for r in ranks] == ["0,1,2,3,4,5,6,7"] * 8, ranks' --topology "$m" --gpu-visible node -np 8
	plan 'assert [r["visible"] for r in ranks] == [""] * 2, ranks' --topology "$m" --gpu-visible inherit -np 2
}

@test "--gpu-visible auto: a script that takes its local rank for a device gets node, and the plan says why" {
	printf 'import torch, os\ntorch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n' > "$T/train.py"
	run -0 r --plan --topology "$(machine two-sockets-8gpu)" -np 8 python3 "$T/train.py"
	says "gpu-visible: node" "train.py:2"
	printf 'print("local_rank")\n' > "$T/plain.py"
	run -0 r --plan --topology "$(machine two-sockets-8gpu)" -np 8 python3 "$T/plain.py"
	says "gpu-visible: one"
}

@test "--share and --bind-to on a machine with GPUs" {
	local m
	m=$(machine two-sockets-8gpu)
	plan 'assert [len(members(r["cpus"])) for r in ranks] == [48], ranks' --topology "$m" -np 1
	plan 'assert [len(members(r["cpus"])) for r in ranks] == [2], ranks' --topology "$m" --bind-to core -np 1
	plan 'assert [len(members(r["cpus"])) for r in ranks] == [6], ranks' --topology "$m" --bind-to core:3 -np 1
	plan 'assert [len(members(r["cpus"])) for r in ranks] == [1], ranks' --topology "$m" --bind-to hwthread -np 1
	plan 'assert [r["cpus"] for r in ranks][0] == [r["cpus"] for r in ranks][1], ranks' --topology "$m" --bind-to socket -np 2
	plan 'assert [len(members(r["cpus"])) for r in ranks] == [96] * 2, ranks' --topology "$m" --bind-to none -np 2
}

@test "ranks on a machine with GPUs get their own alone" {
	HWLOC_XMLFILE=$(machine two-sockets-8gpu) run -0 --separate-stderr r -np 3 sh -c \
		'echo "$RANK $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $BERTH_GPU"'
	[ "$(sort <<< "$output")" = "[0]<stdout>:0 0 PCI_BUS_ID 0000:10:00.0
[1]<stdout>:1 1 PCI_BUS_ID 0000:1b:00.0
[2]<stdout>:2 2 PCI_BUS_ID 0000:26:00.0" ]
}

@test "a preset CUDA_VISIBLE_DEVICES is a filter and an order" {
	CUDA_VISIBLE_DEVICES=6,3 HWLOC_XMLFILE=$(machine two-sockets-8gpu) run -0 --separate-stderr r -np 2 sh -c \
		'echo "$RANK $CUDA_VISIBLE_DEVICES"'
	[ "$(sort <<< "$output")" = $'[0]<stdout>:0 6\n[1]<stdout>:1 3' ]
}

# The k-th rank of the command sees VALUE k.
sees() { # VALUES OPTION...
	local values=$1
	shift
	HWLOC_XMLFILE=$(machine two-sockets-8gpu) run -0 --separate-stderr r --no-tag "$@" sh -c \
		'echo "$RANK ${CUDA_VISIBLE_DEVICES-unset}"'
	[ "$(sort -n <<< "$output" | cut -d' ' -f2 | paste -sd ' ')" = "$values" ]
}

@test "-x CUDA_VISIBLE_DEVICES=2,3 is as --gpus 2,3: each rank gets its own" {
	sees '2 3' -np 2 -x CUDA_VISIBLE_DEVICES=2,3
	sees '2 3' -np 2 -x ROCR_VISIBLE_DEVICES=2,3
	CUDA_VISIBLE_DEVICES=6,3 sees '6 3' -np 2 -x 'CUDA_VISIBLE_*'
	sees '2,3 2,3' -np 2 -x CUDA_VISIBLE_DEVICES=2,3 --gpu-visible node
	sees '2 3' -np 2 -x CUDA_VISIBLE_DEVICES=2,3 --gpus '2, 3'
	printf 'CUDA_VISIBLE_DEVICES=5\n' > "$T/env"
	sees 5 -np 1 --env-file "$T/env"
	HWLOC_XMLFILE=$(machine two-sockets-8gpu) run -2 r -np 2 -x CUDA_VISIBLE_DEVICES=2,9 true
	says "--gpus: there is no GPU '9'"
}

@test "-x CUDA_VISIBLE_DEVICES that hides all GPUs, or with --gpu-visible inherit, or without GPUs, stays" {
	sees '' -np 1 -x CUDA_VISIBLE_DEVICES=
	sees '-1 -1' -np 2 -x CUDA_VISIBLE_DEVICES=-1
	sees '2,3 2,3' -np 2 -x CUDA_VISIBLE_DEVICES=2,3 --gpu-visible inherit
	HWLOC_XMLFILE=$(machine no-gpu-4pu) run -0 --separate-stderr r --no-tag -np 1 -x CUDA_VISIBLE_DEVICES=2 sh -c \
		'echo $CUDA_VISIBLE_DEVICES'
	[ "$output" = 2 ]
}

@test "slots by GPU count those of --gpus" {
	sees '2 5' --gpus 2,5
	sees '2 5' -H localhost:gpus -x CUDA_VISIBLE_DEVICES=2,5
}

@test "more ranks than GPUs: one loud line" {
	HWLOC_XMLFILE=$(machine half-cores-2gpu) run -0 --separate-stderr r -np 4 true
	[ "$(grep -c 'share 2 GPUs' <<< "$stderr")" = 1 ]
	HWLOC_XMLFILE=$(machine half-cores-2gpu) run -2 r --no-gpu-sharing -np 3 true
	hinted
}

# Two jobs, each of one rank; GPUs are what FIND says: both print what they see.
two_jobs() { # COMMAND before runner...
	mkfifo "$T/go"
	"$@" timeout 30 "$RUNNER" --no-tag -np 1 sh -c 'echo "$CUDA_VISIBLE_DEVICES"; read x < "$0"' "$T/go" \
		< /dev/null > "$T/first" 2> "$T/err" &
	wait_for grep -q . "$T/first"
	run -0 --separate-stderr "$@" timeout 30 "$RUNNER" --no-tag -np 1 sh -c 'echo "$CUDA_VISIBLE_DEVICES"' < /dev/null
	second=$output
	run -0 --separate-stderr "$@" timeout 30 "$RUNNER" --no-tag -np 2 sh -c 'echo "$CUDA_VISIBLE_DEVICES"' < /dev/null
	both=$(sort <<< "$output") said=$stderr
	echo > "$T/go"
	wait $!
	run -0 --separate-stderr "$@" timeout 30 "$RUNNER" --no-tag -np 1 sh -c 'echo "$CUDA_VISIBLE_DEVICES"' < /dev/null
	[ "$(cat "$T/first") $second $output" = "0 1 0" ]
	# too few: both are used, and the holder of the other is named
	[ "$both" = $'0\n1' ]
	[[ $said == *"is in use by another job: pid "* ]]
}

@test "two jobs at once get different GPUs (topology from a file)" {
	HWLOC_XMLFILE=$(machine half-cores-2gpu) two_jobs env
}

@test "two jobs at once get different GPUs (a driver's files stand in)" {
	[ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null || skip "needs a mount namespace"
	/usr/bin/python3 "$ROOT/tests/machines/mktree.py" "$T/tree" \
		nvidia,0000:53:00.0,minor=0,uuid=GPU-11111111-2222-3333-4444-000000000000,model=H,numa=0,cpus=0-1 \
		nvidia,0000:5a:00.0,minor=1,uuid=GPU-11111111-2222-3333-4444-000000000001,model=H,numa=0,cpus=0-1
	two_jobs "$ROOT/tests/machines/withtree" "$T/tree"
}

@test "--map-by ppr:N:socket and ppr:N:numa: as many ranks on each" {
	/usr/bin/python3 "$ROOT/tests/machines/mkmachine.py" "$T" two-sockets-8gpu no-locality-4socket no-gpu > /dev/null
	plan 'assert len(ranks) == 4, ranks' --topology "$T/two-sockets-8gpu.xml" --map-by ppr:2:socket
	plan 'assert len(ranks) == 8, ranks' --topology "$T/no-locality-4socket.xml" --map-by ppr:2:package
	plan 'assert len({r["numa"] for r in ranks}) == len(ranks) > 1, ranks' --topology "$T/no-gpu.xml" --map-by ppr:1:numa
}
