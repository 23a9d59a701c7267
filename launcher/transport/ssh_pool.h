/* ssh_pool.h - log-ins of many hosts at once on the cores of this machine.
 *
 * Most of what a start costs here is the handshake's arithmetic and libssh's reading of
 * files: 0.5 of 0.8 ms a host.  A few threads do it, the loop does all else: a log-in
 * goes to them once its socket is connected and comes back when it is over, and until
 * then only they touch it.  One thread steps it at a time, whichever is free: libssh
 * asks for no more than that.  A session that is logged in stays with the loop, so
 * streams need no queue between threads.
 *
 * All functions are the loop's thread's. */
#ifndef BERTH_LAUNCHER_TRANSPORT_SSH_POOL_H
#define BERTH_LAUNCHER_TRANSPORT_SSH_POOL_H

#include <stddef.h>

#include "launcher/transport/ssh_login.h"

struct event_base;
struct ssh_pool;

/* For HOSTS log-ins whose ends come through BASE.  NULL where threads gain nothing: for
 * a few hosts, or on one core. */
struct ssh_pool *ssh_pool_open(struct event_base *base, size_t hosts);
/* No log-in may be with it any more. */
void ssh_pool_close(struct ssh_pool *p);

/* No step is under way from hold to release: who calls setenv() or lets libssh fork in
 * between is alone.  P may be NULL. */
void ssh_pool_hold(struct ssh_pool *p);
void ssh_pool_release(struct ssh_pool *p);

#ifdef HAVE_LIBSSH

struct ssh_pool_task;

/* Take L, whose socket is connected, to its end: ended() is called once from the loop,
 * with anything but LOGIN_WAIT, unless ssh_pool_cancel() comes before. */
struct ssh_pool_task *ssh_pool_login(struct ssh_pool *p, struct ssh_login *l,
				     void (*ended)(void *ctx, enum login_result got),
				     void *ctx);
/* L is the caller's again, as far as it came.  Waits for a step that is under way, as
 * long as the loop would have been in it itself.  T may be NULL. */
void ssh_pool_cancel(struct ssh_pool_task *t);

#endif
#endif
