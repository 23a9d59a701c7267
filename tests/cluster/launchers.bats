#!/usr/bin/env bats
# limit_s: 300
# takes_s: 55
# all: starts Slurm and the launchers of each MPI
# shellcheck disable=SC2016,SC2030,SC2031,SC2086,SC2154 # $ is for the hosts' shells; bats sets output; words of commands
# libberth under launchers that are not ours: Slurm with and without PMIx, Open MPI 4 and 5, hydra.
# tests/helpers/joins.c and collectives.c are the ranks.
load jobs

setup_file() {
	[ -n "$(why_no_slurm)" ] || "$ROOT/tests/cluster/vslurm" up 2 >&2
}

teardown_file() {
	cluster_down
}

setup() {
	local why
	why=$(why_no_slurm | head -1)
	[ -z "$why" ] || skip "$why"
	JOINS=$HELPERS/joins COLLECTIVES=$HELPERS/collectives
}

why_no_slurm() {
	local program
	why_no_cluster
	[ "${SAN:-}" != 1 ] || echo "libpmix and Open MPI leak: not under sanitizers"
	for program in munged slurmctld slurmd srun mpirun.openmpi mpiexec.hydra; do
		PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
			echo "no $program (tests/deps launchers installs it)"
			return
		}
	done
}

# By a user who is not root.
srun() { pmix_again as alice n0 timeout -k 5 60 srun "$@" < /dev/null; }

# Open MPI 4 on two hosts, over ssh; its ranks have no terminal and no binding.
mpirun() { on n0 timeout -k 5 60 mpirun.openmpi --allow-run-as-root --bind-to none -H n1:8,n2:8 "$@" < /dev/null; }

said_by() { # N LINE
	[ "$(grep -cxF -- "$2" <<< "$output")" = "$1" ] || { echo "not said $1 times: $2"; echo "$output"; return 1; }
}

# A job of 8 ranks, 4 on each of two hosts, has found itself.
two_times_four() {
	says 'rank 1 of 8, local 1 of 4, cross 0 of 2, on n1 n1 n1 n1 n2 n2 n2 n2, key' \
		'rank 6 of 8, local 2 of 4, cross 1 of 2, on n1 n1 n1 n1 n2 n2 n2 n2, key'
	said_by 8 PMIx
	said_by 8 'all 4 ranks of this host share it'
	said_by 8 'all: 0-x 1-x 2-x 3-x 4-x 5-x 6-x 7-x'
	[ "$(grep -o 'key .*' <<< "$output" | sort -u | wc -l)" = 1 ]
}

# Nothing of libberth's: no names in memory, no sockets, no processes.
all_gone() {
	local h
	for h in n1 n2; do
		wait_for on "$h" sh -c '[ -z "$(ls /dev/shm | grep -v "^berth-[0-9]"; pgrep -x joins; pgrep -x collectives; grep @berth- /proc/net/unix)" ]'
	done
}

# ---- who is where ----

@test "srun --mpi=pmix: 2 hosts, 4 ranks each" {
	run -0 srun -N2 --ntasks-per-node=4 --mpi=pmix "$JOINS" way join world memory share fence=-x leave
	two_times_four
	all_gone
}

@test "an observer of Slurm's network sees the cards, and not the job's key" {
	mkdir -p "$STATE/t"
	on n2 sh -c 'echo $$ > /run/sniff.pid; exec "$@"' sh "$HELPERS/sniff" /vc/t/sniffed > "$T/sniff" 2>&1 3>&- &
	wait_for grep -q 'sniff: ready' "$T/sniff"
	run -0 srun -N2 -n4 --mpi=pmix env BERTH_NET_SECURE=aead "$JOINS" join world memory fence leave
	on n2 sh -c 'kill $(cat /run/sniff.pid)'
	wait
	[ "$(grep -o 'key .*' <<< "$output" | sort -u | wc -l)" = 1 ]
	grep -aq 'berth\.card\.0' "$STATE/t/sniffed"
	grep -aq 'MUNGE:' "$STATE/t/sniffed"
	if grep -aoE '[0-9a-f]{64}' "$STATE/t/sniffed"; then false; fi
}

@test "a rank without MUNGE: the key goes in clear, and aead says so in one line" {
	local line="berth: BERTH_NET_SECURE=aead does not protect against an observer of the PMIx server's network"
	script join.py <<< 'import berth; berth.init(); print(berth.rank())'
	printf '%s\n' 'int munge_encode(void) { return 6; }' 'int munge_decode(void) { return 6; }' \
		'const char *munge_strerror(void) { return "no munged"; }' 'void *munge_ctx_create(void) { return 0; }' \
		'void munge_ctx_destroy(void) {}' 'int munge_ctx_set(void) { return 6; }' |
		cc -shared -fPIC -x c -o "$STATE/t/libmunge.so.2" - # libpmix needs one, too
	python() { # SECURE
		srun -N2 -n2 --mpi=pmix sh -c 'export BERTH_NET_SECURE=$1 PYTHONPATH=$2 PYTHONDONTWRITEBYTECODE=1
			[ "$SLURM_PROCID" = 0 ] || export LD_LIBRARY_PATH=/vc/t
			exec /usr/bin/python3 /vc/t/join.py' sh "$1" "$BUILD/share/berth/python"
	}
	run -0 python aead
	says 1
	[ "$(grep -cF "$line" <<< "$output")" = 1 ]
	run -0 python mac
	says 1
	[[ $output != *$line* ]]
}

@test "Open MPI 4's mpirun: the same" {
	run -0 mpirun -np 8 --map-by ppr:4:node "$JOINS" way join world memory share fence=-x leave
	two_times_four
	all_gone
}

@test "Open MPI 5's mpirun: the same, by the libpmix that comes with it" {
	ompi=$ROOT/build/peers/ompi
	[ -e "$ompi/complete" ] || skip "Open MPI 5 is not installed (tests/bench/peers.sh ompi)"
	run -0 on n0 timeout -k 5 60 "$ompi/bin/mpirun" --allow-run-as-root --bind-to none -H n1:8,n2:8 \
		-np 8 --map-by ppr:4:node "$JOINS" way join world memory share fence=-x leave
	two_times_four
	run -0 on n1 "$ompi/bin/mpirun" --allow-run-as-root --bind-to none --oversubscribe -np 4 \
		env TIMES=1000 "$COLLECTIVES" 1 again
	says 'again: '
	all_gone
}

@test "one rank; hosts with unequal ranks; ranks dealt out" {
	run -0 srun -N1 -n1 --mpi=pmix "$JOINS" join world memory fence leave
	says 'rank 0 of 1, local 0 of 1, cross 0 of 1, on n1, key'
	run -0 srun -N2 -n3 --mpi=pmix "$JOINS" join world memory fence leave
	says 'rank 0 of 3, local 0 of 2, cross 0 of 2, on n1 n1 n2' 'rank 1 of 3, local 1 of 2, cross 0 of 1' \
		'rank 2 of 3, local 0 of 1, cross 1 of 2'
	run -0 srun -N2 -n4 --distribution=cyclic --mpi=pmix "$JOINS" join world memory fence leave
	says 'rank 1 of 4, local 0 of ' 'cross 1 of 2, on n1 n2 n1 ' 'all: 0 1 2 3'
}

@test "texts of the most bytes" {
	local long
	long=$(printf '%02030d' 0)
	run -0 srun -N2 -n4 --mpi=pmix sh -c '"$0" join memory fence="$1" leave | md5sum' "$JOINS" "$long"
	said_by 4 "$(echo "all: 0$long 1$long 2$long 3$long" | md5sum)"
}

# ---- operations ----

@test "the operations, over two hosts" {
	for case in reductions moves join mismatch; do
		run -0 srun -N2 -n4 --mpi=pmix "$COLLECTIVES" "${SEED:-1}" $case
		says "$case: "
	done
	run -0 mpirun -np 4 --map-by ppr:2:node "$COLLECTIVES" "${SEED:-1}" join
	says 'join: '
	run -0 srun -N2 -n4 --mpi=pmix "$BUILD/examples/allreduce"
	[ "$(sort <<< "$output")" = "$(for i in 0 1 2 3; do echo "rank $i of 4: 6 46 86 126"; done)" ]
}

@test "1000 times on a host, 100 times on two: nothing is left" {
	run -0 srun -N1 -n4 --mpi=pmix env TIMES=1000 "$COLLECTIVES" 1 again
	says 'again: '
	run -0 on n1 mpirun.openmpi --allow-run-as-root --bind-to none --oversubscribe -np 4 \
		env TIMES=1000 "$COLLECTIVES" 1 again
	says 'again: '
	run -0 srun -N2 -n4 --mpi=pmix env TIMES=100 "$COLLECTIVES" 1 again
	says 'again: '
	all_gone
}

# Open MPI 4.1.4 calls a NULL pointer in its mca_btl_tcp under MPI_Init, once in 80 runs on a busy
# machine, before the program has called libberth: such a run is repeated.
run_mpi() { # COMMAND...
	local i
	for i in 1 2 3; do
		run "$@"
		[[ $status:$output = 139:*"Signal: Segmentation fault"* ]] || break
		echo "# Open MPI crashed in MPI_Init: once more" >&3
	done
	[ "$status" = 0 ]
}

@test "MPI in the same program" {
	words='join memory fence leave join memory fence leave'
	for launch in 'srun -N2 -n4 --mpi=pmix' 'mpirun -np 4 --map-by ppr:2:node'; do
		run_mpi $launch "$JOINS" mpi $words mpi_end
		said_by 4 'MPI: 4 ranks'
		run_mpi $launch "$JOINS" join memory fence mpi mpi_end leave $words
		said_by 4 'MPI: 4 ranks'
		said_by 12 'all: 0 1 2 3'
	done
	ompi=$ROOT/build/peers/ompi
	[ -e "$ompi/complete" ] || skip "the rest: Open MPI 5 is not installed (tests/bench/peers.sh ompi)"
	for words in "mpi $words mpi_end" "mpi join memory fence mpi_end leave $words" "mpi mpi_end $words"; do
		# its server takes a rank that leaves PMIx in order and comes back for one that is lost, if
		# others are in a fence by then
		for ((i = 0; i < 3; i++)); do
			run on n1 timeout -k 5 20 "$ompi/bin/mpirun" --allow-run-as-root --bind-to none \
				--oversubscribe -np 4 "$JOINS" $words
			[[ $words = "mpi mpi_end"* && $output = *PARTIAL?SUCCESS* ]] || break
			echo "# again: Open MPI's server lost a rank" >&3
		done
		[ "$status" = 0 ]
		said_by 4 'MPI: 4 ranks'
	done
}

# ---- ranks that end ----

@test "Berth for Python" {
	local say='import berth as hvd; hvd.init(); print(*hvd.allgather_object((hvd.rank(), hvd.local_rank())))' launch
	for launch in 'srun -N2 --ntasks-per-node=2 --mpi=pmix' 'mpirun -np 4 --map-by ppr:2:node'; do
		run -0 $launch env PYTHONPATH="$ROOT/lib/python" BERTH_LIBRARY="$BUILD/lib/libberth.so" \
			PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c "$say"
		[ "$(grep -c '^(0, 0) (1, 1) (2, 0) (3, 1)$' <<< "$output")" = 4 ] || { echo "$output"; false; }
	done
}

@test "a rank that is killed on the way in is an error on the others, soon" {
	local began launch words
	for words in 'join rank=1 crash all memory fence' 'join memory rank=3 crash all fence' \
		'join memory rank=0 crash all fence'; do
		# nobody ends the ranks of other hosts where the only one of its host is gone: 10 s
		for launch in 'srun -N1 -n4 --mpi=pmix' 'srun -N2 -n4 --mpi=pmix' \
			'mpirun -np 4 --map-by ppr:2:node'; do
			began=$SECONDS
			run $launch "$JOINS" $words
			[ "$status" != 0 ] && [ $((SECONDS - began)) -lt 30 ] ||
				{ echo "$launch $words: $status after $((SECONDS - began)) s"; false; }
			silent_on 'all: '
		done
	done
	run -137 srun -N1 -n4 --mpi=pmix "$JOINS" join memory rank=2 crash all fence
	said_by 3 "joins: fence: rank 2 on 'n1' ended before all ranks had joined (6)"
	all_gone
}

@test "a rank that gives up on its way in: the other hosts hear it at once" {
	for launch in 'srun -N2 -n4 --mpi=pmix' 'mpirun -np 4 --map-by ppr:2:node'; do
		for rank in 0 1; do
			began=$SECONDS
			run -0 $launch sh -c '"$@"; sleep 1' sh "$JOINS" join memory rank=$rank leave exit=0 all fence
			[ $((SECONDS - began)) -lt 8 ]
			says "joins: fence: rank $rank on 'n1' ended before all ranks had joined (6)" \
				"joins: fence: a rank on 'n1' ended before all ranks had joined (6)"
		done
	done
	all_gone
}

@test "a rank that is killed in an operation is an error on the others" {
	for launch in 'srun -N1 -n4 --mpi=pmix' 'srun -N2 -n4 --mpi=pmix'; do
		began=$SECONDS
		run $launch "$COLLECTIVES" 1 lost
		[ "$status" != 0 ]
		[ $((SECONDS - began)) -lt 30 ]
	done
	all_gone
}

@test "a process that a rank forked is no rank" {
	run -0 srun -N1 -n2 --mpi=pmix "$JOINS" join memory fork join
	says 'this process was forked by rank 1, and is none itself' 'child: 1'
}

@test "berth_change(): the ranks of a PMIx server stay in their world" {
	for launch in 'srun -N2 -n4 --mpi=pmix' 'mpirun -np 4 --map-by ppr:2:node'; do
		run -0 $launch "$HELPERS/changes" 1 fixed
		said_by 4 "a job that PMIx knows keeps its ranks: its server would wait for those that are gone; give berth_change() a bootstrap, or start the job with runner"
	done
}

# ---- no way ----

no_way() { # TEXT...
	run -1 "$BUILD/examples/allreduce"
	says 'berth_init: ' "$@"
}

@test "srun without PMIx: named, with what to add" {
	run -1 srun -N2 -n4 "$BUILD/examples/allreduce"
	says 'SLURM_STEP_NUM_TASKS=4 says that srun started 4 processes' 'start it with `srun --mpi=pmix`'
	run -1 srun -N2 -n4 --mpi=pmi2 "$BUILD/examples/allreduce"
	says 'started 4 processes' 'start it with `srun --mpi=pmix`'
	run -0 srun -N1 -n1 "$BUILD/examples/allreduce"
	says 'rank 0 of 1: '
}

@test "hydra: named, with what to use instead" {
	run ! timeout 20 mpiexec.hydra -n 2 "$BUILD/examples/allreduce"
	says "PMI_SIZE=2 says that hydra's mpiexec started 2 processes" 'start it with runner'
	mpich=$ROOT/build/peers/mpich
	[ -e "$mpich/complete" ] || skip "the rest: MPICH 5 is not installed (tests/bench/peers.sh mpich)"
	run ! timeout 20 "$mpich/bin/mpiexec" -n 2 "$BUILD/examples/allreduce"
	says "PMI_SIZE=2 says that hydra's mpiexec started 2 processes" 'start it with runner'
}

@test "torchrun and scripts: named, also when one is started by srun --mpi=pmix" {
	WORLD_SIZE=2 RANK=0 no_way 'WORLD_SIZE=2 says that a script started 2 processes' 'start it with runner'
	WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x no_way 'says that torchrun started 2 processes'
	OMPI_COMM_WORLD_SIZE=3 no_way "OMPI_COMM_WORLD_SIZE=3 says that Open MPI's mpirun started 3 processes"
	run -1 srun -N2 -n2 --mpi=pmix env WORLD_SIZE=8 "$BUILD/examples/allreduce"
	says 'WORLD_SIZE=8 says that torchrun or a script started 8 processes, but the PMIx server knows of 2'
	run -0 env WORLD_SIZE=1 "$BUILD/examples/allreduce"
}

@test "a PMIx server that is gone, and no libpmix" {
	PMIX_RANK=0 PMIX_NAMESPACE=gone PMIX_SERVER_URI41='gone.0;tcp4://127.0.0.1:9' \
		no_way 'PMIX_RANK is set, but no PMIx server answers this process' 'unset PMIX_NAMESPACE'
	run -1 unshare --mount sh -c 'for f in $(ldconfig -p | sed -n "s/.*libpmix.so.2 .*=> //p"); do
			mount --bind /dev/null $(readlink -f $f)
		done
		PMIX_RANK=0 PMIX_NAMESPACE=gone exec "$0"' "$BUILD/examples/allreduce"
	says 'berth_init: there is a PMIx server, but no libpmix.so.2 to talk to it' 'LD_LIBRARY_PATH'
}
