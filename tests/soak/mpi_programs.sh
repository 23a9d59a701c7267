#!/bin/bash
# mpi_programs.sh [PATTERN]: MPI programs of others under runner, on one host and on two: NetPIPE,
# LAMMPS, mpi4py, JAX, and tests/mpi/ranks.c in wrappers.  Each must print what it prints under the
# launcher of its own MPI, apart from times.  PATTERN (a regular expression) picks rows.
#   same     it does, and exits with 0
#   late     it does, then a rank of MPICH 4.0.2 waits in MPI_Finalize, in UCX over TCP, as under hydra
#            (tests/cluster/mpi.bats)
#   own      it fails under both launchers, for a reason that known_fault() has
#   told     MPI_Comm_spawn failed at once, with an exception of mpi4py
#   -        there is no such program, or no such MPI
# It installs what is missing: packages, the MPIs in build/peers, and Python's in build/others.
# shellcheck disable=SC1090,SC2034 # for the helpers
set -u
cd "$(dirname "$0")/../.." || exit
bats_require_minimum_version() { :; }
load() { . "tests/cluster/$1.bash"; }
BATS_TEST_FILENAME=$PWD/tests/cluster/mpi.bats
export VC_NAME=${VC_NAME:-mpip$$}
T=$(mktemp -d)
others=${BUILD:-$PWD/build}/others peers=$PWD/build/peers pattern=${1:-.}
mpis=(ompi4 ompi5 mpich4 mpich5 impi21)
failed=0 limit=60 vars=() # NAME=VALUE: what ranks get

install_all() {
	mkdir -p "$others"
	tests/deps demo launchers bench check others || echo "not all packages are there"
	tests/bench/peers.sh ompi mpich impi
	[ ! -e "$others/complete" ] || return 0
	/usr/bin/python3 -m venv "$others/venv"
	"$others/venv/bin/pip" -q --disable-pip-version-check install mpi4py jax > "$others/pip.log" 2>&1 &&
		touch "$others/complete"
}
install_all

load jobs
load mpis
[ -z "$(why_no_cluster)" ] || { echo "skipped: $(why_no_cluster)"; exit 0; }
python=$others/venv/bin/python lib=$(dirname "$(ldconfig -p | awk '/libmpich\.so\.12 / { print $NF; exit }')")
declare -A libmpi=(
	[ompi4]=$lib/libmpi.so.40
	[ompi5]=$peers/ompi/lib/libmpi.so.40
	[mpich4]=$others/mpich4/libmpi.so.12
	[mpich5]=$peers/mpich/lib/libmpi.so.12
	[impi21]=$peers/impi/lib/libmpi.so.12
)
trap 'cluster_down; rm -rf "$T"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# mpi4py's wheel asks for libmpi.so.12, which Debian's MPICH calls otherwise.
prepare() {
	local mpi
	mkdir -p "$others/mpich4" "$others/ranks"
	ln -sf "$lib/libmpich.so.12" "$others/mpich4/libmpi.so.12"
	compile_ranks "$others/ranks"
	for mpi in "${mpis[@]}"; do
		[ -x "$others/ranks/$mpi" ] || echo "no $mpi here"
	done
}

# HOSTS COMMAND...
under_runner() {
	local v x=()
	for v in "${vars[@]}"; do x+=(-x "$v"); done
	on n0 timeout -k 5 "$limit" "$RUNNER" -q --no-tag "${x[@]}" -H "$@" < /dev/null 2>&1
}

# MPI HOSTS COMMAND...: by the launcher of this MPI, on n1.
under_own() {
	local mpi=$1 hosts=$2 ppn=${2##*:} n v x=() genv=() where=()
	shift 2
	n=$(($(grep -o : <<< "$hosts" | wc -l) * ppn))
	for v in "${vars[@]}"; do
		x+=(-x "$v")
		genv+=(-genv "${v%%=*}" "${v#*=}")
	done
	where=(-hosts "${hosts//:$ppn/}" -ppn "$ppn" -n "$n")
	case $mpi in
	ompi4) set -- mpirun.openmpi --allow-run-as-root --bind-to none "${x[@]}" -host "$hosts" -np "$n" "$@" ;;
	ompi5) set -- "$peers/ompi/bin/mpirun" --allow-run-as-root --bind-to none "${x[@]}" --host "$hosts" -np "$n" "$@" ;;
	mpich4) set -- mpiexec.hydra "${genv[@]}" "${where[@]}" "$@" ;;
	mpich5) set -- "$peers/mpich/bin/mpiexec" "${genv[@]}" "${where[@]}" "$@" ;;
	impi21) set -- env I_MPI_ROOT="$peers/impi" LD_LIBRARY_PATH="$peers/impi/lib" "$peers/impi/bin/mpiexec.hydra" \
		-bootstrap ssh "${genv[@]}" "${where[@]}" "$@" ;;
	esac
	on n1 timeout -k 5 "$limit" "$@" < /dev/null 2>&1
}

# PROGRAM MPI HOSTS: does it fail under any launcher?
#   - Ranks with PIDs of their own: Open MPI and MPICH find the memory of a rank by its PID (MPICH
#     only that of large messages); with TCP alone they do not.
#   - Intel MPI ends with SIGSEGV in MPI_Comm_disconnect of ranks on two hosts (2021.18), which mpi4py
#     calls for each pool.
known_fault() {
	case $* in
	'bwrap, own PIDs ompi'* | 'bwrap, own PIDs mpich'* | *'pool impi21 '*,*) true ;;
	*) false ;;
	esac
}

# LIMIT MPI HOSTS KEEP COMMAND...: with LIMIT seconds for each launcher, is all the same that sed KEEPs?
alike() {
	local limit=$1 mpi=$2 hosts=$3 keep=$4
	shift 4
	status=0 own_status=0
	under_runner "$hosts" "$@" > "$T/said" || status=$?
	under_own "$mpi" "$hosts" "$@" > "$T/own" || own_status=$?
	sed -n "$keep" "$T/said" | sort > "$T/said.kept"
	sed -n "$keep" "$T/own" | sed 's/, not as Berth says$//' | sort > "$T/own.kept"
	[ -s "$T/own.kept" ] && cmp -s "$T/said.kept" "$T/own.kept"
}

# PROGRAM MPI HOSTS KEEP COMMAND...: sets word.  MPICH 4 mostly waits in MPI_Finalize when its time is
# up; on a busy machine it may need more.  The other launcher may try twice: now and then mpirun of
# Open MPI 5 or MPICH's hydra hangs before a rank starts on the second host.
compare() {
	local program=$1 mpi=$2 hosts=$3 status own_status
	shift
	if { [ "$mpi" = mpich4 ] && alike 15 "$@"; } || alike "$limit" "$@" ||
		{ [ "$status" = 0 ] && [ "$own_status" != 0 ] && alike "$limit" "$@"; }; then
		word=same
		[ "$status" != 0 ] || return 0
		word=late
		[ "$mpi $status" != "mpich4 124" ] || return 0
	fi
	word=own
	[ "$status" = 0 ] || [ "$own_status" = 0 ] || ! known_fault "$program" "$mpi" "$hosts" || return 0
	word=FAILED
	{
		echo "== $program, $*"
		echo "-- status $status under runner:"
		cat "$T/said"
		echo "-- status $own_status under its own launcher:"
		cat "$T/own"
	} >> "$T/failures"
}

# A pool that would start its workers.  mpi4py prints the exception in a thread, and its main thread
# waits for ever, also under an mpirun that has no slot left.  Intel MPI ends with SIGSEGV instead in
# MPI_Comm_spawn on one host, also under its own launcher.
spawns() { # PROGRAM MPI HOSTS KEEP COMMAND...
	local mpi=$2 hosts=$3 limit=10 said
	shift 4
	word=FAILED
	said=$(under_runner "$hosts" "$@")
	case $said in
	*MPI.COMM_SELF.Spawn*'mpi4py.MPI.Exception: '*) word=told ;;
	*'Segmentation fault'*client_spawn*) [ "$mpi" != impi21 ] || word=own ;;
	esac
	[ "$word" = FAILED ] || return 0
	printf '%s\n' "== pool without workers, $mpi, $hosts: $*" "$said" >> "$T/failures"
}

# PROGRAM HOSTS "MPI..." KEEP COMMAND...: a row of the table.  RANKS in COMMAND is ranks.c; KEEP is
# what sed keeps of the output; more: what else ranks get; how: the function that sets word.
row() {
	local program=$1 hosts=$2 with=$3 keep=$4 mpi word line
	shift 4
	[[ "$program $hosts" =~ $pattern ]] || return 0
	[ -n "$(command -v "$1")" ] || { echo "$program: no $1 here"; return; }
	line=$(printf '%-26s %-10s' "$program" "$hosts")
	for mpi in "${mpis[@]}"; do
		word=-
		# shellcheck disable=SC2206 # words
		vars=(MPI4PY_LIBMPI="${libmpi[$mpi]}" ${more-})
		[ "$mpi" != mpich4 ] || vars+=("LD_LIBRARY_PATH=$others/mpich4")
		if [[ " $with " == *" $mpi "* && -x $others/ranks/$mpi ]]; then
			"${how:-compare}" "$program" "$mpi" "$hosts" "$keep" "${@//RANKS/$others/ranks/$mpi}"
		fi
		[ "$word" != FAILED ] || failed=$((failed + 1))
		line+=$(printf ' %-7s' "$word")
	done
	echo "$line"
}

all="${mpis[*]}" ranks='/^rank/p' pool='/^\(workers\|squares\|raised\|after\|left\) */p'
bwrap=(bwrap --dev-bind / /)
no_pids=("${bwrap[@]}" --unshare-pid --proc /proc)

programs() { # HOSTS for 2 ranks, HOSTS for 4
	local four=$2 two=$1 melt=$PWD/tests/mpi/in.melt
	# lines of the two ranks may mix
	local netpipe='h; s/^ *\([0-9]\+: .* bytes\).*/\1/p; g; s/.*\(Integrity check [a-z]*ed\|Mbps in\).*/\1/p'
	local lammps='/^ *Step /,/^Loop/ { s/^Loop time of [^ ]*//; p }'
	row NPopenmpi "$two" ompi4 "$netpipe" NPopenmpi -u 262144 -n 10 -o /dev/null
	row NPmpich2 "$two" mpich4 "$netpipe" NPmpich2 -u 262144 -n 10 -o /dev/null
	row "NPopenmpi -i" "$two" ompi4 "$netpipe" NPopenmpi -i -u 262144 -n 10 -o /dev/null
	row "NPmpich2 -i" "$two" mpich4 "$netpipe" NPmpich2 -i -u 262144 -n 10 -o /dev/null
	more=OMP_NUM_THREADS=1 row "LAMMPS" "$four" ompi4 "$lammps" lmp -in "$melt" -log none
}

of_mpi4py() { # HOSTS for 2 ranks, HOSTS for 4
	local bench=("$python" -m mpi4py.bench) pools=("$python" -m mpi4py.futures) four=$2 ring sizes='s/^ *\([0-9]\+\) .*/\1/p'
	ring='s/^\(time for .* loops\) = .* seconds/\1/p'
	row "bench helloworld" "$four" "$all" /^Hello/p "${bench[@]}" helloworld
	row "bench ringtest" "$four" "$all" "$ring" "${bench[@]}" ringtest
	row "bench ringtest -n" "$four" "$all" "$ring" "${bench[@]}" ringtest -n 100000 -l 5
	row "bench pingpong" "$1" "$all" "$sizes" "${bench[@]}" pingpong -n 65536 -l 5 -s 1
	row "bench pingpong --pickle" "$1" "$all" "$sizes" "${bench[@]}" pingpong -n 4096 -l 5 -s 1 -p
	row "bench in a pool" "$four" "$all" "$sizes" "${pools[@]}" -m mpi4py.bench futures -n 256 -l 2 -s 1
	row "pool" "$four" "$all" "$pool" "${pools[@]}" "$PWD/tests/mpi/pool.py"
	row "MPICommExecutor pool" "$four" "$all" "$pool" "$python" "$PWD/tests/mpi/comm_pool.py"
	how=spawns row "pool without workers" "$four" "$all" "" "$python" -X faulthandler "$PWD/tests/mpi/pool.py"
}

of_jax() { # HOSTS
	more=JAX_PLATFORMS=cpu row "JAX by mpi4py" "$1" "ompi4 ompi5 mpich5" '/^process/p' "$python" "$PWD/tests/mpi/jax_sum.py"
}

wrapped() { # HOSTS
	row "env" "$1" "$all" "$ranks" env FOO=1 RANKS hello
	row "timeout" "$1" "$all" "$ranks" timeout 60 RANKS hello
	row "nice" "$1" "$all" "$ranks" nice RANKS hello
	row "sh, exec" "$1" "$all" "$ranks" sh -c 'exec RANKS hello'
	row "sh, then true" "$1" "$all" '/communicators/p' sh -c 'RANKS dups 20; true'
	row "bwrap" "$1" "$all" "$ranks" "${bwrap[@]}" RANKS hello
	row "bwrap, own PIDs" "$1" "$all" "$ranks" "${no_pids[@]}" RANKS hello
	more="OMPI_MCA_btl=tcp,self UCX_TLS=tcp,self MPIR_CVAR_CH4_CMA_ENABLE=0" \
		row "bwrap, own PIDs, TCP" "$1" "$all" "$ranks" "${no_pids[@]}" RANKS hello
}

prepare
cluster_up 2 || exit
printf '%-26s %-10s' program hosts
printf ' %-7s' "${mpis[@]}"
echo
for hosts in "n1:2 n1:4" "n1:1,n2:1 n1:2,n2:2"; do
	# shellcheck disable=SC2086 # words
	set -- $hosts
	programs "$1" "$2"
	of_mpi4py "$1" "$2"
	of_jax "$2"
	wrapped "$2"
done
[ ! -e "$T/failures" ] || cat "$T/failures"
[ "$failed" = 0 ]
