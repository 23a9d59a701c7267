/* in_front.h - pure: whether another launcher has started several of this runner.
 *
 * Each of `srun -n8 runner python train.py` would start all ranks.  A job step of one
 * task, as of salloc, is no such launcher.  Nor is the shell of `srun -n8 --pty bash`:
 * it is the one task that has the terminal, and the others end at once. */
#ifndef BERTH_LAUNCHER_HOSTS_IN_FRONT_H
#define BERTH_LAUNCHER_HOSTS_IN_FRONT_H

#include <stdbool.h>

#include "common/err.h"

struct in_front {
	char *const *env; /* of runner */
	long pid;         /* its own */
	bool terminal;    /* its stdin is one */
};

/* 0, or -1 with E.  *SAY: this is rank 0 of the other launcher, which says it. */
int in_front_check(const struct in_front *f, bool *say, struct err *e);

#endif
