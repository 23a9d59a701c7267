/* dial.h - a connected TCP socket to a host, without ever blocking the event loop.
 *
 * A dial resolves a name in a thread of its own where it must, tries the addresses in
 * order with a new one every 250 ms until one answers (RFC 8305, "Happy Eyeballs"), and
 * says why none did.  A gate bounds how many log-ins are under way at one address: sshd
 * refuses at random beyond 10 (MaxStartups), so 8 stay below. */
#ifndef BERTH_LAUNCHER_TRANSPORT_DIAL_H
#define BERTH_LAUNCHER_TRANSPORT_DIAL_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "common/str.h"

struct event_base;
struct dial;

struct dial_end {
	int fd;           /* connected and non-blocking, the caller's; -1: failed */
	int error;        /* errno of the last address, or 0 */
	const char *text; /* why it failed */
	bool no_address;  /* the name was not found; error is 0 */
	bool again;       /* may work later: refused, reset, name server not ready */
};

/* Connect to PORT at ADDR[0..N), or at NAME where N is 0; FAMILY other than AF_UNSPEC
 * keeps one kind only.  ENDED is called once from the loop, unless dial_cancel() comes
 * before; D is freed by either.  ADDR is copied. */
struct dial *dial_start(struct event_base *base, const char *name,
			const struct sockaddr_storage *addr, size_t n, int port,
			int family,
			void (*ended)(void *ctx, const struct dial_end *end),
			void *ctx);
void dial_cancel(struct dial *d);

/* No delay, keepalive, not inherited. */
void dial_tune(int fd);

enum { GATE_WIDTH = 8 };

/* A place at the gate of one address.  {0} waits nowhere. */
struct gate_pass {
	struct gate *gate;
	struct gate_pass *next; /* in the queue */
	bool inside;
	void (*open)(void *ctx);
	void *ctx;
};

/* The gate of PORT at ADDR[0..N), several names of which may be one address; at NAME
 * where N is 0.  The caller frees it. */
char *gate_key(const char *name, const struct sockaddr_storage *addr, size_t n,
	       int port);

/* Ask for a place at the gate called KEY (an address and port, or a proxy).  True: P is
 * inside now.  False: open(ctx) is called from gate_leave() of another one. */
bool gate_enter(struct gate_pass *p, const char *key, void (*open)(void *ctx),
		void *ctx);
/* Leave, or stop waiting.  Harmless when P waits nowhere. */
void gate_leave(struct gate_pass *p);

/* When to try again: 100 ms, then twice as long each time, at most 2 s, plus up to a
 * half at random so that many hosts do not come back at once. */
unsigned dial_backoff_ms(unsigned tries);

#endif
