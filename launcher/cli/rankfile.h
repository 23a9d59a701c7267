/* rankfile.h - --rankfile: the host of each rank, from a file in Open MPI's form.
 *
 *   rank 0=ip1 slot=0
 *   rank 1=ip2 slot=0:0-3     # a comment
 *
 * Ranks may be in any order; each from 0 to the last one has one line.  The file names
 * the hosts of the job, and how many ranks each takes; it is an error beside -H or
 * --hostfile from the same source.  slot= does not count: the agent chooses CPUs near
 * the GPU of the rank.  A host is a name, not +n0.
 * Source: the manual of mpirun, Open MPI 4.1, "Rankfiles". */
#ifndef BERTH_LAUNCHER_CLI_RANKFILE_H
#define BERTH_LAUNCHER_CLI_RANKFILE_H

#include "launcher/cli/option.h"

/* Pure: the host of each rank in TEXT, the content of FILE, into HOSTS, as it is
 * written. *SLOTS: a line has slot=.  0, or -1 with E. */
int rankfile_parse(struct strv *hosts, bool *slots, const char *text, const char *file,
		   struct err *e);

/* The setter of --rankfile. */
int value_rankfile(const struct setting *s, const char *value, struct err *e);

#endif
