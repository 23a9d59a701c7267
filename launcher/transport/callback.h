/* callback.h - the door at which agents call that Slurm starts.
 *
 * It listens while agents are awaited.  Any host that reaches it may connect: who does
 * not prove within 5 s that it has the key is dropped, and so is the oldest of those
 * once there are more than CALLBACK_CALLERS_MOST, and as many as agents are awaited.
 * Where no descriptor is left, callers wait, or the oldest one is dropped.  A call
 * that was answered is dropped when it comes again: an agent makes a new one for each
 * try. */
#ifndef BERTH_LAUNCHER_TRANSPORT_CALLBACK_H
#define BERTH_LAUNCHER_TRANSPORT_CALLBACK_H

#include "launcher/request.h"
#include "launcher/transport/sealed.h"

enum { CALLBACK_CALLERS_MOST = 256 };

struct callback;

/* An agent of HOST has called by S, and the N bytes at REST have come after that.  The
 * receiver owns S, or closes it. */
typedef void callback_called(void *ctx, const char *host, struct sealed *s,
			     const void *rest, size_t n);

/* Listen on a free port from FIRST to LAST (0, 0: any) for callers that have KEY.
 * NULL with E. */
struct callback *callback_open(struct event_base *base, const unsigned char *key,
			       unsigned first, unsigned last, callback_called *called,
			       void *ctx, struct err *e);
/* So many agents are awaited. */
void callback_expect(struct callback *c, size_t agents);
unsigned callback_port(const struct callback *c);
/* Append this machine's addresses as numbers, those in NET[0..N) alone if N is not 0.
 * Loopback ones only if there are no others. */
void callback_addresses(struct strv *out, const struct net_range *net, size_t n);
void callback_close(struct callback *c);

#endif
