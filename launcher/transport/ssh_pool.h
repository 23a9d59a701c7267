/* ssh_pool.h - log-ins of many hosts at once on the cores of this machine.
 *
 * The handshake's arithmetic and libssh's reading of files are most of the cost of a
 * start (0.5 of 0.8 ms for each host).  A few threads do them, the loop does all else.
 * A log-in goes to the threads once its socket is connected, and only they touch it
 * until it is over.  Any free thread steps it, one at a time; libssh asks for no more.
 * A session that is logged in stays with the loop, so streams need no queue between
 * threads.
 *
 * Only the loop's thread calls these functions. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_POOL_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_POOL_H

#include <stddef.h>

#include "launcher/transport/ssh_login.h"

struct event_base;
struct ssh_pool;

/* For HOSTS log-ins, which report their end through BASE.  NULL if threads gain
 * nothing: a few hosts, or one core. */
struct ssh_pool *ssh_pool_open(struct event_base *base, size_t hosts);
/* No log-in may be left in it. */
void ssh_pool_close(struct ssh_pool *p);

#ifdef HAVE_LIBSSH

struct ssh_pool_task;

/* Take L, whose socket is connected, to its end: ended() is called once from the loop,
 * with anything but LOGIN_WAIT, unless ssh_pool_cancel() comes before. */
struct ssh_pool_task *ssh_pool_login(struct ssh_pool *p, struct ssh_login *l,
				     void (*ended)(void *ctx, enum login_result got),
				     void *ctx);
/* Give L back to the caller, as far as it came.  Waits for a step that is under way, no
 * longer than the loop itself would have needed for it.  T may be NULL. */
void ssh_pool_cancel(struct ssh_pool_task *t);
/* How far the log-in has come; during a step, as far as before it. */
enum login_phase ssh_pool_phase(struct ssh_pool_task *t);

#endif
#endif
