/* ask.h - asks `berth-agent --step`, as the user of the step, with a deadline. */
#ifndef BERTH_SLURM_ASK_H
#define BERTH_SLURM_ASK_H

#include <stddef.h>
#include <sys/types.h>

/* The user as whom the program runs. */
struct ask_user {
	uid_t uid;
	gid_t gid;
	const gid_t *groups;
	size_t ngroups;
	const void *cpus; /* a mask of CPUS_BYTES for it; NULL: as this process */
	size_t cpus_bytes;
};

/* NULL if PATH is a program that only root can have put there: absolute, each component
 * root's and writable by nobody else.  Else why not. */
const char *ask_distrust(const char *path);

/* Start `PATH --step` as USER with an empty environment, no descriptor of ours and no
 * way to more rights; give it REQUEST of N bytes.  All that it says, with a NUL, to be
 * freed; or NULL with WHY.  It is dead and reaped after DEADLINE_MS at most. */
char *ask(const char *path, const struct ask_user *user, const char *request, size_t n,
	  int deadline_ms, const char **why);

#endif
