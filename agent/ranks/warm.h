/* warm.h - warm processes: each has imported what a Python program imports, and the
 * program's ranks are forked from it.
 *
 * A warm process is started once for all ranks that would start it alike, and stays
 * until this agent ends: a later epoch finds it again.  It runs launcher/job/warm.py,
 * which says by its socket that it is warm, or why it is cold.  A request for a rank is
 * a byte with descriptors: a text of what struct spawn holds, then the rank's own.  The
 * answer says the rank's pid.  The rank is a child of this process, as if it had been
 * exec'd.
 *
 * A request may be made before the process is warm.  If it turns out to be cold, or
 * dies, each request that has no answer fails, and the rank is to be exec'd. */
#ifndef BERTH_AGENT_RANKS_WARM_H
#define BERTH_AGENT_RANKS_WARM_H

#include <event2/event.h>

#include "agent/ranks/spawn.h"

struct warm; /* all of this host */

/* Facts for warm.py. */
struct warm_head {
	const char *const
		*own; /* variables that differ between ranks; NULL at the end */
	const char *folders[2]; /* whose modules are taken, too; or NULL */
};

/* Append to S the line that goes in front of warm.py.  SOCKET is the number of its
 * socket; or -1: it says on stdout, between two NULs, '+' or '-' and what it would
 * import, and ends. */
void warm_add_head(struct str *s, const struct warm_head *h, int socket);

/* All ranks that are forked from one process have this in common. */
struct warm_way {
	wire_strv words;  /* that start the process */
	const char *text; /* warm.py */
	struct warm_head head;
	struct spawn s;     /* of the process: environment, folder, CPUs, limits */
	const char *search; /* PATH, or NULL */
};

/* PID: of rank LOCAL, which runs; -1: it is to be exec'd.  BIND_ERRNO as in spawn.h. */
typedef void warm_rank_done(void *ctx, size_t local, pid_t pid, int bind_errno);
/* TEXT: what a process has imported, or why ranks are not forked from it. */
typedef void warm_told(void *ctx, bool is_warm, const char *text);

struct warm *warm_open(struct event_base *base, warm_rank_done *done, warm_told *told,
		       void *ctx);
/* The number of the process for WAY, which is started if there is none.  -1: there is
 * none from which ranks can be forked. */
int warm_process(struct warm *w, const struct warm_way *way);
/* Ask process P for rank LOCAL as S says; its descriptors may be closed then.  False:
 * the rank is to be exec'd. */
bool warm_ask(struct warm *w, int p, size_t local, const struct spawn *s,
	      struct cgroup_entry entry);
/* Take the answers that have come.  A child that is not known may have sent one before
 * it ended. */
void warm_answers(struct warm *w);
/* The child PID, which is no rank, has ended: it may have been about to become one. */
void warm_reaped(struct warm *w, pid_t pid);
/* Ranks that have no answer are not to be started. */
void warm_cancel(struct warm *w);
/* A rank died early: the next ones of process P are exec'd. */
void warm_drop(struct warm *w, int p, const char *why);
void warm_free(struct warm *w);

#endif
