/* hang.h - ranks that hang (--hang-timeout): looks at all ranks now and then, asks
 * hang_judge.h, and does what it says.
 *
 * A look is the query that Ctrl-\ makes (rank_status.h); to that the agents also answer
 * what the kernel says of their ranks (`looked` of wire.def).  Time counts from look to
 * look, and a pause of runner itself, or of the network, counts as two looks: ranks
 * that were stopped together with runner do not hang.  Nor is it a rank's time in which
 * it could run and had no CPU, up to 9 tenths: so beside load a hang is found later, at
 * most 10 times.
 *
 * Before a rank is ended, all agents are asked where their ranks are (dump.h), and the
 * user sees that.  They have 1.5 s.  One more look follows: a rank that goes on
 * meanwhile is left alone. */
#ifndef BERTH_LAUNCHER_JOB_HANG_H
#define BERTH_LAUNCHER_JOB_HANG_H

#include "common/wire.h"

struct hang;
struct host;
struct job;

/* For acts.c: for the ranks of this epoch, which start now.  NULL: nothing is looked
 * at. */
struct hang *hang_open(struct job *j);
void hang_free(struct hang *g); /* takes NULL */

/* The message of an agent.  Returns its fault, or NULL. */
const char *hang_looked(struct hang *g, const struct host *h,
			const struct wire_looked *m);

#endif
