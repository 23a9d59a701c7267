# mpis.bash: the MPIs that are here, and tests/mpi/ranks.c with each.
# shellcheck shell=bash

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
