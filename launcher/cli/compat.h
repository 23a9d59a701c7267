/* foreign.h - options of commands copied from mpirun, mpiexec and horovodrun.
 *
 * What has a meaning here becomes an option or a variable of the ranks.  What has none
 * is ignored with one note, but only if it can't change which processes run, where, or
 * with what input; anything else is refused (E_FOREIGN). Sources: the manuals of Open
 * MPI 5 and MPICH 4; horovodrun --help of 0.28. */
#ifndef BERTH_LAUNCHER_CLI_COMPAT_H
#define BERTH_LAUNCHER_CLI_COMPAT_H

#include "launcher/cli/option_table.h"

struct compat {
	const char *names; /* as in struct option */
	const char *tool;  /* whose option it is */
	int args;          /* values that follow it, 0..2 */
	int (*read)(const struct setting *s, const struct compat *f,
		    const char *const value[2], struct err *e);
	const char *text; /* why it is ignored, what to use instead, variable, or our
			     option */
	unsigned flags;   /* OPTION_APP: allowed in a later app */
};

extern const struct compat compat_table[];
extern const size_t compat_count;

const struct compat *compat_find(const char *name);

/* Give VALUE to F's reader; S->typed is its spelling. */
int compat_read(const struct setting *s, const struct compat *f,
		const char *const value[2], struct err *e);

/* --map-by as Open MPI and hydra write it: socket, ppr:N:node, slot:PE=4, ... */
int compat_map_by(const struct setting *s, const char *value, struct err *e);

/* One word for the man page on what becomes of F: "ignored", "refused", "sets", "same
 * as". */
const char *compat_fate(const struct compat *f);

#endif
