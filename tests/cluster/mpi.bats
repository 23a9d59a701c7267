#!/usr/bin/env bats
# limit_s: 600
# takes_s: 70
# all: runs each MPI
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2153,SC2154 # bats sets output
# MPI programs under runner: tests/mpi/ranks.c with each MPI that is here.
load jobs
load mpis
load inject
load rounds
load mpi_kills

setup_file() {
	cluster_up 4
	compile_ranks "$BATS_FILE_TMPDIR"
	compile_client "$BATS_FILE_TMPDIR"
}

teardown_file() {
	cluster_down
}

setup() {
	need_cluster
	[ -n "$(mpis)" ] || skip "no MPI (tests/deps launchers installs it)"
	mpi_programs
}

# OPTION... PROGRAM...: on several hosts a rank of MPICH 4.0.2 may wait in MPI_Finalize, in UCX, for one that
# is in MPICH's last barrier already (under hydra, too: half of the runs, and more on a busy machine).  Then
# its output counts, which has come by then.
runs() {
	local limit=30
	[[ $* != */mpich4* ]] || limit=8
	run on n0 timeout -k 5 $limit "$RUNNER" -q "$@" < /dev/null
	[[ $status = 124 && $* == */mpich4* ]] || return "$status"
	echo "# MPICH 4 hangs in MPI_Finalize" >&3
	output=$(grep -v '^runner: received SIGTERM' <<< "$output")
}

# HOSTS N [PROGRAM...]: all ranks say who they are, as Berth has it.
all_say_hello() {
	local p sum=$(($2 * ($2 - 1) / 2))
	for p in "${@:3}"; do
		runs --no-tag -H "$1" "$p" hello
		[ "$(grep -c "^rank [0-9]* of $2, local .*, sum $sum\$" <<< "$output")" = "$2" ] || {
			echo "$p on $1: $output"
			return 1
		}
	done
}

@test "hello on 1, 2 and 4 hosts, with equal and other numbers of ranks" {
	all_say_hello n1:1 1 "${PROGRAMS[@]}"
	all_say_hello n1:5 5 "${PROGRAMS[@]}"
	all_say_hello n1:2,n2:2 4 "${PROGRAMS[@]}"
	for hosts in "n1:2,n2:1,n3:3 6" "n[1-4] 4" "n[1-4]:2 8"; do
		# shellcheck disable=SC2046,SC2086 # words
		all_say_hello $hosts $(some)
	done
}

# MPI_SIZES: how many ranks; one number by chance.
@test "any number of ranks on 1, 2 and 4 hosts" {
	local n hosts p
	for n in ${MPI_SIZES:-$((RANDOM % 16 + 1))}; do
		for hosts in n1:16 n1:8,n2:8 "n[1-4]:4"; do
			for p in $(some); do
				runs --no-tag --map-by node -np "$n" -H "$hosts" "$p" hello
				[ "$(grep -c "^rank [0-9]* of $n, local .*, sum $((n * (n - 1) / 2))\$" <<< "$output")" = "$n" ] || {
					echo "$p -np $n -H $hosts: $output"
					return 1
				}
			done
		done
		[ -z "${MPI_SIZES-}" ] || echo "# $n ranks" >&3
	done
}

@test "messages and communicators" {
	for p in $(some); do
		runs --no-tag -H n1:2,n2:2 "$p" ring 20
		[ "$output" = "token 80" ]
		runs --no-tag -H n1:2,n2:2 "$p" dups 20
		[ "$(sort -u <<< "$output")" = "20 communicators, 0 wrong" ]
	done
}

# PROGRAM CASE NUMBER STATUS TEXT: the job ends with STATUS, and one line says why.
fails() {
	local begun=$SECONDS
	run -"$4" r -q -H n1:2,n2:2 "$1" "$2" "$3"
	[ "$(grep -c '^runner: ' <<< "$output")" = 1 ]
	[[ $output == *"runner: rank 1 on 'n1' (pid "*") $5"* ]] || { echo "$output"; return 1; }
	[ $((SECONDS - begun)) -lt 30 ]
}

@test "MPI_Abort, and ranks that end without MPI_Finalize or MPI_Init" {
	for p in $(some); do
		fails "$p" abort 5 5 "called MPI_Abort with 5"
		fails "$p" abort 256 1 "called MPI_Abort with 256"
		fails "$p" exit 3 3 "exited with status 3"
		fails "$p" exit 0 1 "exited with status 0 between MPI_Init and MPI_Finalize"
		fails "$p" early 7 7 "exited with status 7"
		fails "$p" early 0 1 "exited with status 0 while others waited for it in MPI"
	done
}

@test "with --keep-going the others do not wait for ever" {
	for p in $(some); do
		run r -q --keep-going -H n1:2,n2:2 "$p" early 0
		[[ $status != 0 && $status != 124 ]]
	done
}

@test "each MPI publishes names, looks them up and takes them back" {
	local found='found\(, not twice\)\?, no other, gone$'
	for p in "${PROGRAMS[@]}"; do
		for hosts in n1:3 n1:2,n2:2,n3:1; do
			runs --no-tag -H "$hosts" "$p" published
			[ "$(grep -c "^rank [0-9]: $found" <<< "$output")" = "$(wc -l <<< "$output")" ] || { echo "$p: $output"; return 1; }
			[[ $output == *"rank 0: found, not twice, no other, gone"* ]]
		done
	done
}

# MPI_Open_port of MPICH 4.0.2 with UCX is "currently not supported", and that of MPICH 5.0.2 says "no space for
# port_name tag"; Intel MPI's ranks of one host end by SIGSEGV in MPI_Comm_accept (all of it under hydra, too).
@test "Open MPI and Intel MPI connect by names and ports; MPI Sessions of Open MPI" {
	for p in $(sound | grep -v mpich); do
		for hosts in n1:4 n1:2,n2:2; do
			[[ $p != *impi* || $hosts == *,* ]] || continue
			runs --no-tag -H "$hosts" "$p" names
			[ "$(grep -c '^connected, sum 6$' <<< "$output")" = 4 ] || { echo "$p: $output"; return 1; }
			[[ $p == *ompi5 ]] || continue
			runs --no-tag -H "$hosts" "$p" sessions
			[ "$(grep -c '^session of 4, sum 6$' <<< "$output")" = 4 ]
		done
	done
}

@test "--mpi=pmi1 and --mpi=pmix each connect programs of their kind" {
	local p kind
	for p in $(some); do
		kind=pmi1
		[[ $p != *ompi? ]] || kind=pmix
		runs --no-tag --mpi=$kind -H n1:2,n2:2 "$p" hello
		[ "$(grep -c 'sum 6$' <<< "$output")" = 4 ]
	done
}

@test "no MPI moves its threads to other CPUs" {
	local p n
	for p in "${PROGRAMS[@]}"; do
		for n in 1 2; do
			runs --no-tag -H n1:"$n" "$p" masks
			[ "$(grep -c ', seen, 0 threads elsewhere$' <<< "$output")" = "$n" ] || { echo "$p: $output"; return 1; }
		done
	done
}

@test "the examples, in C and in Python" {
	local cc peers=$ROOT/build/peers
	for cc in mpicc.openmpi "$peers/mpich/bin/mpicc"; do
		[ -n "$(command -v "$cc")" ] || continue
		"$cc" -o "$STATE/t/hello" "$ROOT/examples/mpi_hello.c"
		runs --no-tag -H n1:2,n2:2 /vc/t/hello
		[[ $output == *"rank 3 of 4 on n2"*  && $output == *"the sum of all ranks is 6"* ]]
	done
	[ -e "$peers/ompi/complete" ] || skip "no mpi4py (tests/bench/peers.sh ompi installs it)"
	runs --no-tag -H n1:2,n2:2 "$peers/ompi/bin/python" "$ROOT/examples/mpi_hello.py"
	[[ $output == *"rank 3 of 4 on n2"* && $output == *"the sum of all ranks is 6"* ]]
}

@test "Slurm's and mpirun's variables do not reach the ranks" {
	for p in $(some); do
		run on n0 env BERTH_TRANSPORT=ssh SLURM_JOB_ID=1 SLURM_NODELIST=n1 SLURM_PROCID=3 SLURM_STEP_ID=0 SLURM_NTASKS=9 PMIX_RANK=7 \
			PMIX_NAMESPACE=old PMI_RANK=5 PMI_FD=9 PMI_SIZE=1 OMPI_MCA_ess=env OMPI_COMM_WORLD_SIZE=1 \
			timeout -k 5 30 "$RUNNER" -q --no-tag -H n1:4 "$p" hello < /dev/null
		[ "$(grep -c 'sum 6$' <<< "$output")" = 4 ] || { echo "$p: $output"; return 1; }
	done
}

# As srun sets them for the only task of its step, inside a job of five tasks on two hosts.  Its rank
# and its PMI are not those that a rank of runner has.
SRUN=(BERTH_TRANSPORT=ssh SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_JOB_NODELIST='n[1-2]' SLURM_NODELIST='n[1-2]' SLURM_JOB_NUM_NODES=2 SLURM_NNODES=2
	"SLURM_TASKS_PER_NODE=2,3" SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NODELIST='n[1-2]' SLURM_STEP_NUM_NODES=2
	SLURM_STEP_NUM_TASKS=1 "SLURM_STEP_TASKS_PER_NODE=1" SLURM_NTASKS=5 SLURM_NPROCS=5 SLURM_PROCID=2 SLURM_LOCALID=0
	SLURM_NODEID=1 "SLURM_GTIDS=2,3,4" SLURM_SRUN_COMM_HOST=10.77.0.3 SLURM_SRUN_COMM_PORT=4001 SLURM_MPI_TYPE=pmix
	SLURM_PMIXP_ABORT_AGENT_PORT=4002 SLURM_PMIX_MAPPING_SERV='(vector,(0,1,2),(1,1,3))'
	PMIX_NAMESPACE=slurm.pmix.7.0 PMIX_RANK=2 PMIX_SERVER_URI2='slurm.pmix.7.0;tcp4://127.0.0.1:4003'
	PMIX_SERVER_URI3='slurm.pmix.7.0;tcp4://127.0.0.1:4003' PMI_RANK=2 PMI_SIZE=1 PMI_FD=9)

# NP: each of so many ranks has found that MPI or PMIx says of it what Berth does.
all_agree() {
	[ "$(grep -c "^rank [0-9]* of $1: ok\$\|^rank [0-9]* of $1, local [0-9]* of [0-9]*, sum $(($1 * ($1 - 1) / 2))\$" \
		<<< "$output")" = "$1" ] || { echo "$output"; return 1; }
}

@test "MPI, PMIx and Berth agree on ranks, sizes, local ranks and nodes" {
	local p who second
	if [ -e "$BATS_FILE_TMPDIR/client" ]; then cp "$BATS_FILE_TMPDIR/client" "$STATE/t"; fi
	for p in $(some) $([ ! -e "$STATE/t/client" ] || echo /vc/t/client); do
		who=hello second=hello
		[[ $p != */client ]] || who=ids second=ids=1
		runs --no-tag --map-by node -H n1:3,n2:2 -np 2 "$p" $who : -np 3 "$p" $second
		all_agree 5
		# the second host is lost, the third takes its place
		runs --no-tag --restarts 1 -np 4 -H n1:2,n2:2,n3:2 sh -c 'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
				[ "$RANK" != 2 ] || pkill -KILL -x berth-agent
				exec sleep 100
			fi
			echo "on $(uname -n)"; exec "$0" "$1"' "$p" $who
		all_agree 4
		[ "$(grep -c '^on n3$' <<< "$output")" = 2 ]
		runs --no-tag --allow-same-host --map-by node -np 3 -H n1:2,10.77.0.1:2 "$p" $who
		all_agree 3
		run on n0 env "${SRUN[@]}" timeout -k 5 30 "$RUNNER" -q --no-tag -H n1:2,n2:1 sh -c '
			[ "$SLURM_PROCID $SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID" = \
				"$BERTH_RANK $BERTH_SIZE $BERTH_LOCAL_RANK $BERTH_NODE_RANK" ] || echo "srun says other things"
			exec "$0" "$1"' "$p" $who < /dev/null
		all_agree 3
		silent_on "other things"
	done
}

@test "--mpi=none: each rank is alone" {
	run -0 r -q --no-tag --mpi=none -H n1:2 "${PROGRAMS[0]}" hello
	[ "$(grep -c '^rank 0 of 1, ' <<< "$output")" = 2 ]
}

@test "ranks in turns on the hosts, programs, several names for one machine" {
	local sum='sum 6$'
	for p in $(some); do
		runs --no-tag --map-by node -H n1:2,n2:2 "$p" hello
		[ "$(grep -c "$sum" <<< "$output")" = 4 ]
		runs --no-tag -H n1:2,n2:2 -np 1 "$p" hello : -np 3 "$p" hello
		[ "$(grep -c "$sum" <<< "$output")" = 4 ]
	done
}

@test "in a shell, under env and timeout, and again after a failure" {
	for p in $(some); do
		runs --no-tag -H n1:2,n2:2 sh -c 'env timeout 30 "$0" ring 10' "$p"
		[ "$output" = "token 40" ]
		runs --no-tag --restarts 1 -H n1:2,n2:2 \
			sh -c 'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then exec "$0" exit 3; fi; exec "$0" ring 10' "$p"
		[[ $output == *"token 40"* ]]
	done
}

# Open MPI and MPICH find the memory of a rank by its PID, also under their own launchers: they may not here.
@test "in bwrap, with PIDs of their own" {
	local p isolated=(bwrap --dev-bind / / --unshare-pid --proc /proc)
	on n1 "${isolated[@]}" true || skip "no bwrap that can make namespaces (tests/deps check installs it)"
	for p in $(some); do
		runs --no-tag -x OMPI_MCA_btl=tcp,self -x MPIR_CVAR_CH4_CMA_ENABLE=0 -H n1:2 "${isolated[@]}" "$p" hello
		[ "$(grep -c '^rank [01] of 2, local [01] of 2, sum 1$' <<< "$output")" = 2 ] || { echo "$p: $output"; return 1; }
	done
}

@test "nothing is left when a rank, an agent, a PMIx server or runner is killed in MPI" {
	local p name
	for h in n1 n2; do on "$h" sh -c 'rm -f /dev/shm/ucx_shm_posix_* /dev/shm/mpich_sh*'; done
	mark_clean n1 n2
	for p in "$(sound | head -1)" $(of_openmpi | head -1); do
		name=$(basename "$p")
		for victim in rank agent server runner; do
			[[ $victim$name != servermpich* ]] || continue
			start -q --no-tag -H n1:2,n2:2 "$p" ring 100000000
			wait_for on n2 pgrep -x "$name"
			case $victim in
			rank) on n2 pkill -KILL -x "$name" ;;
			agent) on n2 pkill -KILL -x berth-agent ;;
			server) on n2 pkill -KILL -x berth-pmix ;;
			runner) signal KILL ;;
			esac
			wait "$pid" || true
			# MPIs leave the memory of processes that are killed, under any launcher
			for h in n1 n2; do on "$h" sh -c 'rm -f /dev/shm/ucx_shm_posix_* /dev/shm/mpich_sh*'; done
			all_clean n1 n2
		done
	done
}

# tests/soak/mpi_kills.sh has all of them, many times.
@test "a rank, an agent, a PMIx server and runner are each killed at a random moment" {
	local victim p seed=${SEED:-$RANDOM} END_MOST_MS=10000
	local moments=(init loop finalize) programs
	RANDOM=$seed
	for h in n0 n1 n2; do on "$h" sh -c 'rm -f /dev/shm/ucx_shm_posix_* /dev/shm/mpich_sh*'; done
	mark_clean n0 n1 n2
	for victim in rank agent server runner; do
		mapfile -t programs < <(of_openmpi; [ "$victim" = server ] || sound | grep mpich5)
		[ ${#programs[@]} -gt 0 ] || continue
		p=${programs[RANDOM % ${#programs[@]}]}
		kill_round "$p" "$victim" "${moments[RANDOM % 3]}" || { echo "$p, SEED=$seed"; return 1; }
	done
}
