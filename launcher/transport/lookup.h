/* resolve.h - host names to addresses, all of a job at once, and which of them are us.
 *
 * getaddrinfo() blocks, so up to RESOLVE_THREADS threads share the names; numbers and
 * "localhost" (RFC 6761) need none.  A name that cannot be resolved is no error here:
 * it has no addresses, and the transport, which knows ~/.ssh/config, may still reach
 * it. */
#ifndef BERTH_LAUNCHER_TRANSPORT_LOOKUP_H
#define BERTH_LAUNCHER_TRANSPORT_LOOKUP_H

#include <stdbool.h>
#include <sys/socket.h>

#include "common/str.h"

enum { RESOLVE_THREADS = 16, RESOLVE_TEXT_BYTES = 64 };

struct resolved {
	struct sockaddr_storage *addr; /* in the resolver's order, each once; port 0 */
	size_t naddr;                  /* 0: not resolved, see why */
	bool is_local;                 /* one of addr is an address of this machine */
	const char *why; /* the resolver's reason, a constant; NULL if none */
};

/* Resolve NAMES[0..n) into OUT[0..n), which the caller provides.  What has no answer by
 * DEADLINE_MS (clock_ms()) is left without addresses; the threads that still wait for
 * it keep no hold on anything of the caller's. */
void lookup_all(struct resolved *out, const char *const *names, size_t n,
		uint64_t deadline_ms);

/* Release what RESOLVED[0..n) holds, not the array itself. */
void lookup_free(struct resolved *r, size_t n);

/* Loopback, unspecified, or the address of one of this machine's interfaces. */
bool lookup_is_local(const struct sockaddr_storage *a);

/* A as a number ("10.0.0.1", "fe80::1%eth0") into OUT, of RESOLVE_TEXT_BYTES at least.
 */
int lookup_text(const struct sockaddr_storage *a, char *out, size_t n);

/* The numeric local address from which packets to PEER would leave, into OUT.  Asks the
 * kernel's routes; sends nothing.  Returns 0, or -1 with errno. */
int lookup_local_towards(const struct sockaddr_storage *peer, char *out, size_t n);

#endif
