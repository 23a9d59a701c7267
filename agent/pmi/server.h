/* service.h - the socket BERTH_AGENT: how the ranks of this host that use libberth find
 * the others.
 *
 * It serves lib/boot.def: who a rank is, one sealed memory for all ranks of the host, a
 * fence with the ranks of other hosts (by the launcher's help: wire.def), later who is
 * lost.  The name is an abstract one with 128 random bits; who connects must be our
 * user.  What ranks write there, and in their memory, is believed in nothing: a frame
 * that is malformed, too long, or out of turn is answered by REFUSED and a close.
 * Limits: connections 4 for each rank and 16, each with one frame of 8 KiB; nobody is
 * waited for.  With the job all of it ends; another epoch has another socket.
 *
 * A rank is out of a joining when its connection closes without LEAVE, when its main
 * process ends, or when it leaves before the fence was over.  What then waits in the
 * fence is refused with a sentence that names it; in the memory its byte of lost[] is
 * set.  Files: service.c (bytes), joining.c (who is in, fences, losses),
 * flights.c (what a rank does, as its memory says). */
#ifndef BERTH_AGENT_PMI_SERVER_H
#define BERTH_AGENT_PMI_SERVER_H

#include "common/wire.h"

struct event_base;
struct server;

/* For the ranks of JOB; OUT is the session's send queue; all three must stay.  NULL:
 * there is no socket for us now. */
struct server *server_open(struct event_base *base, struct buf *out,
			   const struct wire_job *job);
void server_free(struct server *s); /* takes NULL, as do the others */

/* The value of BERTH_AGENT. */
const char *server_name(const struct server *s);
/* The main process of local rank LOCAL has ended, or never ran; before `ended` is sent.
 * FAILED: not with 0. */
void server_ended(struct server *s, size_t local, bool failed);
/* world, all, lost, look, behind.  0, or -1 with E: the launcher broke the protocol. */
int server_frame(struct server *s, const struct wire_frame *f, struct err *e);

#endif
