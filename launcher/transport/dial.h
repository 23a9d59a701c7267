/* dial.h - a connected TCP socket to a host; the event loop never blocks.
 *
 * A dial looks a name up (lookup.h) and tries the addresses in order, one more every
 * 250 ms until one answers (RFC 8305, "Happy Eyeballs").  If none answers, it says why.
 * A login limit bounds the log-ins under way at one address.  sshd refuses log-ins at
 * random beyond 10 (MaxStartups), so the limit is 8. */
#ifndef BERTH_LAUNCHER_TRANSPORT_DIAL_H
#define BERTH_LAUNCHER_TRANSPORT_DIAL_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "common/str.h"

struct event;
struct event_base;
struct dial;

struct dial_end {
	int fd;           /* connected and non-blocking, the caller's; -1: failed */
	int error;        /* errno of the last address, or 0 */
	const char *text; /* why it failed */
	bool no_address;  /* the name was not found; error is 0 */
	bool again;       /* a later try may succeed: refused, reset, no name server */
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
/* The name is looked up; no address has been tried. */
bool dial_looks_up(const struct dial *d);

/* No delay, keepalive, not inherited. */
void dial_tune(int fd);

enum { LOGIN_LIMIT = 8 };

/* The right to log in at one address.  {0} neither waits nor is granted. */
struct login_permit {
	struct login_limit *limit;
	struct login_permit *next; /* in the queue */
	bool granted;
	struct event *wake;
};

/* The key of the limit for PORT at ADDR[0..N), which several names may share; at NAME
 * if N is 0.  The caller frees it. */
char *login_limit_key(const char *name, const struct sockaddr_storage *addr, size_t n,
		      int port);

/* Ask for a permit of the limit KEY (an address and port, or a proxy).  True: granted
 * now.  False: login_limit_leave() of another one will run WAKE, a timer. */
bool login_limit_enter(struct login_permit *p, const char *key, struct event *wake);
/* Give the permit back, or stop waiting.  {0} is left alone. */
void login_limit_leave(struct login_permit *p);

/* The pause before the next try: 100 ms, then twice as long each time, at most 2 s.  Up
 * to a half is added at random, so that many hosts do not try at the same moment. */
unsigned dial_backoff_ms(unsigned tries);

#endif
