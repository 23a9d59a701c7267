#!/usr/bin/env bats
# limit_s: 400
# takes_s: 60
# all: starts Slurm
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # $ is for the tasks' shells; bats sets output
# srun --berth: Slurm's plugin on two hosts of 2 sockets and 8 GPUs that they do not have, with true
# affinity masks; what the agent would place for the same machine is what the tasks have.
load jobs
load spank

setup_file() {
	[ -n "$(why_no_slurm)" ] && return
	two_sockets_up 2
	script show <<-'E'
		#!/bin/sh
		echo "$RANK of $WORLD_SIZE local $LOCAL_RANK node $NODE_RANK is $SLURM_PROCID: ${CUDA_VISIBLE_DEVICES-none} $(taskset -pc $$ | sed 's/.*: //')"
	E
	chmod 755 "$STATE/t/show"
}

teardown_file() {
	cluster_down
}

setup() {
	need_slurm
	use_stack
}

# What a step of 2 x 4 tasks says that has half of the GPUs.
half() { srun -N2 --ntasks-per-node=4 -c 12 --gpus-per-node=4 "$@" /vc/t/show | sort; }

# The same by the agent's own plan.
planned() {
	"$RUNNER" --plan=json -np 8 -H n[1-2]:4 --topology "$BATS_FILE_TMPDIR/two-sockets-8gpu.xml" --gpus 0,1,2,3 "$@" |
		/usr/bin/python3 -c 'import json, sys
for r in json.load(sys.stdin)["ranks"]:
    print("%d of 8 local %d node %d is %d: %s %s" % (r["rank"], r["rank"] % 4, r["rank"] // 4, r["rank"], r["gpu_index"], r["cpus"]))'
}

unbound() { # N: N tasks said that they have nothing of Berth's
	[ "$(grep -c ' of  local  node  is ' <<< "$output")" = "$1" ] || { echo "$output"; return 1; }
}

@test "masks, GPUs and variables are those of the agent's placement" {
	local want
	want=$(planned)
	run -0 half --berth
	[ "$output" = "$want" ] || { echo "$output"; echo "planned: $want"; return 1; }
}

@test "the same for root" {
	run -0 on n0 timeout 60 srun -N2 --ntasks-per-node=4 -c 12 --gpus-per-node=4 --berth /vc/t/show
	[ "$(sort <<< "$output")" = "$(planned)" ]
}

@test "bind-to=core, bind-to=none, gpu-visible=node" {
	run -0 half --berth=bind-to=core
	[ "$output" = "$(planned --bind-to core)" ]
	run -0 half --berth=gpu-visible=node
	[[ ${lines[0]} == '0 of 8 local 0 node 0 is 0: 0,1,2,3 '* ]]
	run -0 half --berth=bind-to=none
	[[ ${lines[0]} == '0 of 8 local 0 node 0 is 0: 0 '* ]]
}

@test "without the option, and with off, Slurm's tasks are as they were" {
	run -0 half
	unbound 8
	run -0 half --berth=off
	unbound 8
}

@test "report: one line for each task" {
	run -0 half --berth=report
	[ "$(grep -c '^berth: rank [0-7] on n[12]: cpus .*: GPU ' <<< "$output")" = 8 ]
}

@test "the site's default is on, and off wins over it" {
	use_stack agent=/usr/lib/berth/berth-agent default=report
	run -0 half
	[ "$(grep -c '^berth: rank' <<< "$output")" = 8 ]
	use_stack agent=/usr/lib/berth/berth-agent default=on
	run -0 half
	[ "$output" = "$(planned)" ]
	run -0 half --berth=off
	unbound 8
}

@test "sbatch --berth and salloc --berth: the steps have it, the batch script does not" {
	script batch <<-'E'
		#!/bin/sh
		/vc/t/show
		srun -n8 -c 12 /vc/t/show
	E
	run -0 as alice n0 timeout 60 sbatch -W -o /vc/t/batch.out -N2 --ntasks-per-node=4 -c 12 --gpus-per-node=4 --berth /vc/t/batch
	run -0 cat "$STATE/t/batch.out"
	unbound 1
	[ "$(sort <<< "$output" | grep -v ' of  local')" = "$(planned)" ]
	run -0 as alice n0 timeout 60 salloc -Q -N2 --ntasks-per-node=4 -c 12 --gpus-per-node=4 --berth srun -n8 -c 12 /vc/t/show
	[ "$(sort <<< "$output")" = "$(planned)" ]
}

@test "runner's own agents are left alone" {
	run -0 as alice n0 timeout 60 env BERTH_STEP_OF_RUNNER=1 srun -N2 -n2 --berth /vc/t/show
	unbound 2
}

@test "the user's --cpu-bind wins: masks stay, GPUs fit them" {
	run -0 srun -N1 -n2 -c 24 --gpus-per-node=8 --cpu-bind=map_cpu:24,0 --berth /vc/t/show
	[ "$(sort <<< "$output")" = $'0 of 2 local 0 node 0 is 0: 4 24\n1 of 2 local 1 node 0 is 1: 0 0' ]
}

@test "--gpus-per-task: each task has the GPU that Slurm gave it, and the CPUs near that one" {
	run -0 srun -N1 -n2 -c 24 --gpus-per-task=1 --berth=report /vc/t/show
	says 'rank 0 on n1' 'Slurm chose its GPU (--gpus-per-task)' '0 of 2 local 0 node 0 is 0: 0 0-11,48-59' '1 of 2 local 1 node 0 is 1: 1 12-23,60-71'
}

@test "a word that is none ends srun, sbatch and salloc before they ask for hosts; as root, too" {
	local start
	as alice n0 squeue -h -t all -o %i > "$BATS_TEST_TMPDIR/jobs"
	for start in 'srun -N1 -n2' 'sbatch' 'salloc'; do
		# shellcheck disable=SC2086 # words
		run ! as alice n0 timeout 60 $start --berth=report,nonsense /vc/t/show
		says "berth: --berth: unknown word 'nonsense'" 'hint: use on, off, report' 'Invalid --berth argument: report,nonsense'
		silent_on 'local'
	done
	run ! srun -N1 -n2 --berth=bind-to=moon /vc/t/show
	says "berth: 'moon' is not one of auto, none, "
	run ! on n0 timeout 60 srun -N1 -n2 --berth=off,nonsense /vc/t/show
	says "berth: --berth: unknown word 'nonsense'"
	script typo <<-'E'
		#!/bin/sh
		#SBATCH --berth=strict,nonsense
		/vc/t/show
	E
	run ! as alice n0 timeout 60 sbatch /vc/t/typo
	says "berth: --berth: unknown word 'nonsense'"
	run -0 as alice n0 squeue -h -t all -o %i
	[ "$output" = "$(cat "$BATS_TEST_TMPDIR/jobs")" ]
}

@test "a word that is none, where srun has no agent to ask: a warning, and the tasks run; with strict they do not" {
	on n0 mv /usr/lib/berth/berth-agent /usr/lib/berth/aside
	run -0 srun -N1 -n2 --berth=frobnicate /vc/t/show
	says "berth: warning: --berth: unknown word 'frobnicate'; the tasks run as Slurm binds them"
	unbound 2
	run -240 srun -N1 -n2 --berth=frobnicate,strict /vc/t/show
	says "the tasks do not run"
	unbound 0
	on n0 mv /usr/lib/berth/aside /usr/lib/berth/berth-agent
}

@test "a value with a line break is refused, and that is said" {
	run ! srun -N1 -n1 -w n1 --berth=$'report\nstrict' true
	says 'berth: the value of --berth has a line break in it'
}

@test "an agent that is missing, another user's, in a folder of all, garbage, hanging, endless" {
	local bad
	use_stack agent=/usr/lib/berth/none
	run -0 srun -N1 -n2 --berth /vc/t/show
	says 'berth: warning: /usr/lib/berth/none: No such file or directory; the tasks run'
	unbound 2
	on n1 sh -c 'cp /usr/lib/berth/berth-agent /usr/lib/berth/foreign && chown alice /usr/lib/berth/foreign
		cp /usr/lib/berth/berth-agent /tmp/agent
		printf "#!/bin/sh\ncat > /dev/null; echo berth-step 1; echo set LD_PRELOAD=x; echo end\n" > /usr/lib/berth/garbage
		printf "#!/bin/sh\necho \$\$ > /vc/t/hanging; sleep 1000\n" > /usr/lib/berth/hanging
		printf "#!/bin/sh\nexec yes\n" > /usr/lib/berth/endless
		chmod 755 /usr/lib/berth/*'
	for bad in /usr/lib/berth/foreign /tmp/agent; do
		use_stack agent=$bad
		run -0 srun -N1 -n2 -w n1 --berth /vc/t/show
		says "berth: warning: $bad: not only root can write to a part of its path"
		unbound 2
	done
	use_stack agent=/usr/lib/berth/garbage
	run -0 srun -N1 -n2 -w n1 --berth /vc/t/show
	says 'its answer is not valid'
	unbound 2
	use_stack agent=/usr/lib/berth/endless
	run -0 srun -N1 -n2 -w n1 --berth /vc/t/show
	says 'its answer is too long'
	use_stack agent=/usr/lib/berth/hanging
	run -0 srun -N1 -n2 -w n1 --berth /vc/t/show
	says 'it did not answer in time'
	unbound 2
	wait_for on n1 sh -c '! kill -0 "$(cat /vc/t/hanging)" 2> /dev/null'
}

@test "the agent runs as the user alone: ids, groups, environment, descriptors, no new rights" {
	on n1 sh -c 'printf "#!/bin/bash\n(grep -E \"^(Uid|Gid|Groups|NoNewPrivs)\" /proc/self/status; tr \"\\\\0\" \"\\\\n\" < /proc/\$\$/environ; ls /proc/\$\$/fd) > /vc/t/seen 2>&1\n" > /usr/lib/berth/spy; chmod 755 /usr/lib/berth/spy'
	use_stack agent=/usr/lib/berth/spy
	run -0 srun -N1 -n1 -w n1 --berth /vc/t/show
	run -0 cat "$STATE/t/seen"
	says $'Uid:\t2001\t2001\t2001\t2001' $'Gid:\t2001\t2001\t2001\t2001' $'NoNewPrivs:\t1'
	silent_on SLURM
	[ "$(grep -cx '[0-9]*' <<< "$output")" -le 4 ] # 0, 1, 2 and the script's own
}

@test "BERTH_LIBRARY is the libberth of the agent's installation, unless it has a value or another user could replace it" {
	local lib=/opt/berth/share/berth/python/berth/libberth.so.0.2 h
	make -s -C "$ROOT" BUILD="$BUILD" PREFIX=/opt/berth DESTDIR="$STATE/t/stage" install > /dev/null
	for h in n1 n2; do
		on $h sh -c 'cp -r /vc/t/stage/opt/berth /opt/ && chown -R root: /opt/berth && chmod -R go-w /opt/berth'
	done
	use_stack agent=/opt/berth/bin/berth-agent
	run -0 srun -N2 -n2 --berth printenv BERTH_LIBRARY
	[ "$output" = "$lib"$'\n'"$lib" ]
	run -0 srun -N1 -n1 -w n1 --berth /usr/bin/python3 -c 'import ctypes, os; ctypes.CDLL(os.environ["BERTH_LIBRARY"])'
	run -0 srun -N1 -n1 -w n1 --berth env PYTHONPATH=/opt/berth/share/berth/python /usr/bin/python3 -c 'import berth'
	run -0 as alice n0 env BERTH_LIBRARY=/own.so timeout 60 srun -N2 -n2 --berth printenv BERTH_LIBRARY
	[ "$output" = $'/own.so\n/own.so' ]
	run ! srun -N2 -n2 --berth=off printenv BERTH_LIBRARY
	on n1 chmod o+w /opt/berth/share/berth/python
	run -0 srun -N1 -n1 -w n1 --berth printenv BERTH_LIBRARY
	[ "$output" = /opt/berth/lib/libberth.so.0.2 ]
	on n1 chmod o+w /opt/berth/lib
	run ! srun -N1 -n1 -w n1 --berth printenv BERTH_LIBRARY
	use_stack
	run ! srun -N1 -n1 -w n2 --berth printenv BERTH_LIBRARY
}

@test "--mpi=pmix: Open MPI and libberth find each other as before" {
	srun --mpi=list | grep -q pmix || skip 'Slurm has no PMIx'
	run -0 pmix_again srun -N2 --ntasks-per-node=4 -c 12 --gpus-per-node=4 --mpi=pmix --berth "$HELPERS/joins" way join world leave
	[ "$(grep -cx PMIx <<< "$output")" = 8 ]
	command -v mpicc.openmpi > /dev/null || skip 'no Open MPI'
	mpicc.openmpi -o "$BATS_TEST_TMPDIR/hello" "$ROOT/examples/mpi_hello.c"
	cp "$BATS_TEST_TMPDIR/hello" "$STATE/t/hello"
	run -0 pmix_again srun -N2 --ntasks-per-node=4 -c 12 --gpus-per-node=4 --mpi=pmix --berth /vc/t/hello
	says '0 of 8' '7 of 8'
}

@test "cgroups of --gpus-per-task: a task has the CPUs near the GPU that it can open; het jobs" {
	cluster_down
	plain_up 2 --gpus 4 --constrain-devices SchedulerType=sched/backfill SchedulerParameters=sched_interval=1,bf_interval=1
	script gpus <<-'E'
		#!/bin/sh
		for i in 0 1 2 3; do [ ! -w /dev/nvidia$i ] || open="$open$i"; done
		echo "rank $RANK sees $CUDA_VISIBLE_DEVICES, is near $BERTH_GPU, opens $open"
	E
	chmod 755 "$STATE/t/gpus"
	run -0 srun -N1 -n2 --gpus-per-task=1 --berth /vc/t/gpus
	[ "$(sort <<< "$output" | grep rank)" = 'rank 0 sees 0, is near 0000:10:00.0, opens 0
rank 1 sees 0, is near 0000:11:00.0, opens 1' ]
	run -0 srun -N1 -n2 --gpus=2 --berth /vc/t/gpus
	says 'rank 0 sees 0, is near 0000:10:00.0, opens 01' 'rank 1 sees 1, is near 0000:11:00.0, opens 01'
	script het <<-'E'
		#!/bin/sh
		echo "$RANK is $SLURM_PROCID of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"
	E
	chmod 755 "$STATE/t/het"
	run -0 srun -n2 -w n1 --berth /vc/t/het : -n3 -w n2 --berth /vc/t/het
	echo "$output"
	[ "$(grep -cE '^([0-4]) is \1 of 5 at n1:' <<< "$output")" = 5 ]
	[ "$(sed -n 's/.* at //p' <<< "$output" | sort -u | wc -l)" = 1 ]
}
