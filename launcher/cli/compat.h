/* compat.h - options of commands that were written for mpirun, mpiexec, horovodrun,
 * torchrun or srun.
 *
 * An option that means something here becomes an option or a variable of the ranks.
 * Another is ignored with one note, but only if it cannot change which processes run,
 * where they run, or what input they read.  All others are refused (E_FOREIGN).
 * Sources: the manuals of Open MPI 5, MPICH 4 and srun (Slurm 22.05); horovodrun --help
 * of 0.28; torchrun --help of PyTorch 2.13. */
#ifndef BERTH_LAUNCHER_CLI_COMPAT_H
#define BERTH_LAUNCHER_CLI_COMPAT_H

#include "launcher/cli/option_table.h"

struct compat {
	const char *names; /* as in struct option */
	const char *tool;  /* the launcher that has this option */
	int args;          /* values that follow it, 0..2 */
	/* Put VALUE into the request; S->typed is the spelling: 0, or -1 with E. */
	int (*read)(const struct setting *s, const struct compat *c,
		    const char *const value[2], struct err *e);
	const char *text; /* why it is ignored, what to use instead, the variable, or
			     our option */
	unsigned flags;   /* OPTION_APP: allowed in a later app */
};

extern const struct compat compat_table[];
extern const size_t compat_count;

const struct compat *compat_find(const char *name);

/* A note for each variable that an option of horovodrun set in R and that does nothing
 * in a job of --horovod.  --use-hwthread-cpus is ignored if R has the number of ranks,
 * and else refused: 0, or -1 with E. */
int compat_settle(const struct request *r, struct strv *notes, struct err *e);

/* The fate of C, for help and man page: "ignored", "refused", "same as", "sets",
 * "checked" or "in part". */
const char *compat_fate(const struct compat *c);

#endif
