/* dump_name.h - the sockets by which `runner --dump` finds the jobs of this user.
 *
 * The kernel keeps their names as long as the sockets are open, and no file is left
 * when a runner is killed.  All users of this machine see the names, and may connect:
 * both ends ask the kernel whose the other end is. */
#ifndef BERTH_LAUNCHER_JOB_DUMP_NAME_H
#define BERTH_LAUNCHER_JOB_DUMP_NAME_H

#include "common/str.h"

/* A caller that does not send this only looks whether the job runs. */
#define DUMP_WORD "dump\n"

enum { DUMP_JOBS_MOST = 256 };

/* Listen for callers of job JOB_ID.  A descriptor, or -1 with errno. */
int dump_name_listen(const char *job_id);
/* Add the ids of this user's jobs that begin with PREFIX to JOBS, at most
 * DUMP_JOBS_MOST of them, each once. */
void dump_name_list(struct strv *jobs, const char *prefix);
/* Connect to job JOB_ID, if its runner is this user's.  A descriptor, or -1. */
int dump_name_dial(const char *job_id);

#endif
