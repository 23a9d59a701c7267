# mpis.bash: the MPIs that are here, and tests/mpi/ranks.c with each.
#
#   mpis            a line for each
#   compile_ranks   tests/mpi/ranks.c with each
#   compile_client  tests/mpi/client.c
# For suites, after jobs.bash:
#   mpi_programs    puts what is in $BATS_FILE_TMPDIR where every host sees it, and the paths into PROGRAMS
#   some            one of MPICH 5 and Intel MPI and one of Open MPI, by chance; all of them where
#                   MPI_SIZES is set
#   sound           all but MPICH 4, which may hang in MPI_Finalize; see runs() in mpi.bats
#   of_openmpi      those of Open MPI
# shellcheck shell=bash disable=SC2153,SC2154

# NAME, compiler and its options of each.  Intel MPI has the headers of MPICH.
mpis() {
	local mpich4 peers=$ROOT/build/peers
	[ -z "$(command -v mpicc.openmpi)" ] || echo "ompi4 mpicc.openmpi"
	[ ! -e "$peers/ompi/complete" ] || echo "ompi5 $peers/ompi/bin/mpicc"
	mpich4=$(command -v mpicc.mpich) || return 0
	echo "mpich4 $mpich4"
	[ ! -e "$peers/mpich/complete" ] || echo "mpich5 $peers/mpich/bin/mpicc"
	[ ! -e "$peers/impi/complete" ] || echo "impi21 gcc $("$mpich4" -compile-info | grep -o -- '-I[^ ]*' | tr '\n' ' ')" \
		"-L$peers/impi/lib -Wl,-rpath,$peers/impi/lib"
}

# FOLDER/NAME for each.
compile_ranks() { # FOLDER
	local name options
	while read -r name options; do
		case $name in
		impi21) options+=" $ROOT/tests/mpi/ranks.c -l:libmpi.so.12" ;;
		*) options+=" $ROOT/tests/mpi/ranks.c" ;;
		esac
		$options -o "$1/$name"
	done < <(mpis)
}

# FOLDER/client, of the system's libpmix; none if there are no headers.
compile_client() { # FOLDER
	local flags
	flags=$(pkg-config --cflags pmix 2> /dev/null | sed 's/-I/-isystem /g') || return 0
	# shellcheck disable=SC2046,SC2086 # words
	[ -z "$flags" ] || ${CC:-cc} -std=gnu11 -O1 $flags "$ROOT/tests/mpi/client.c" \
		$(pkg-config --libs pmix) -o "$1/client"
}

mpi_programs() {
	local program
	mkdir -p "$STATE/t"
	chmod 1777 "$STATE/t"
	PROGRAMS=()
	for program in "$BATS_FILE_TMPDIR"/{mpich?,impi21,ompi?}; do
		[ -x "$program" ] || continue
		[ -x "$STATE/t/$(basename "$program")" ] || cp "$program" "$STATE/t"
		PROGRAMS+=("/vc/t/$(basename "$program")")
	done
}

some() {
	if [ -n "${MPI_SIZES-}" ]; then
		sound
	else
		sound | grep -v ompi | shuf -n 1
		sound | grep ompi | shuf -n 1
	fi
}

sound() { printf '%s\n' "${PROGRAMS[@]}" | grep -v mpich4; }

of_openmpi() { printf '%s\n' "${PROGRAMS[@]}" | grep ompi; }
