/* lookup.h - host names to addresses, many at once, and which of them are this machine.
 *
 * getaddrinfo() blocks and cannot be cancelled.  So a pool of at most LOOKUP_THREADS
 * threads calls it, and a look-up answers on an eventfd.  Numbers and "localhost" (RFC
 * 6761) are answered at once, without a thread.  A name without addresses is not an
 * error here: the transport, which knows ~/.ssh/config, may still reach it. */
#ifndef BERTH_LAUNCHER_TRANSPORT_LOOKUP_H
#define BERTH_LAUNCHER_TRANSPORT_LOOKUP_H

#include <stdbool.h>
#include <sys/socket.h>

#include "common/str.h"

enum { LOOKUP_THREADS = 32, LOOKUP_TEXT_BYTES = 64 };

struct lookup_answer {
	struct sockaddr_storage *addr; /* in the resolver's order, each once; port 0 */
	size_t naddr;                  /* 0: none, see why */
	bool is_local;   /* one of addr is this machine's; only lookup_all() sets it */
	const char *why; /* the resolver's reason, a constant; NULL: none */
};

/* A name for which the resolver, or a program, said WHY may have an address later: the
 * name server did not answer, or this is Kubernetes, where a pod's name appears when
 * the pod does. */
bool lookup_may_come(const char *why);

struct lookup;

/* Look up NAMES[0..n), copied, for addresses of FAMILY (AF_UNSPEC: of any). */
struct lookup *lookup_start(const char *const *names, size_t n, int family);
/* Readable when every name has its answer. */
int lookup_fd(const struct lookup *l);
/* The answers, in the order of the names, once lookup_fd() is readable. */
struct lookup_answer *lookup_answers(struct lookup *l);
/* Forget L, answered or not; NULL is left alone.  A thread inside getaddrinfo() frees
 * it later. */
void lookup_end(struct lookup *l);

/* Look up NAMES[0..n) into OUT[0..n) and wait until DEADLINE_MS (clock_ms()) at most.
 * A name that is late has no addresses.  The caller frees each addr. */
void lookup_all(struct lookup_answer *out, const char *const *names, size_t n,
		uint64_t deadline_ms);

/* A as a number ("10.0.0.1", "fe80::1%eth0") into OUT of at least LOOKUP_TEXT_BYTES. */
int lookup_text(const struct sockaddr_storage *a, char *out, size_t n);

/* The reverse: the number TEXT into A.  Returns 0, or -1 if it is none. */
int lookup_number(const char *text, struct sockaddr_storage *a);

/* The numeric local address from which packets to PEER would leave, into OUT.  Asks the
 * kernel's routes and sends nothing.  Returns 0, or -1 with errno. */
int lookup_local_towards(const struct sockaddr_storage *peer, char *out, size_t n);

#endif
