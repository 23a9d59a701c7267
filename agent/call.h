/* call.h - what runner says on the stdin of an agent that Slurm starts: whom to call.
 *
 * srun's stdin goes over the network as it is, so that a process there can change it.
 * Its arguments go in a message that Slurm's own credential covers.  So they say how to
 * read stdin (--connect=HOW).  All that an agent acts on is in a credential of MUNGE.
 * On a cluster that does not have MUNGE, it is there as it is.  Only the versions are
 * outside: an agent of another version asks for a copy of runner's. */
#ifndef BERTH_AGENT_CALL_H
#define BERTH_AGENT_CALL_H

#include <sys/socket.h>

#include "common/key.h"
#include "common/wire.h"

enum { CALL_ADDRESSES_MOST = 64 };

struct call_how {
	bool munge;
	const char *socket; /* munged's, if that is not the usual one; else NULL */
};

/* Whom to call.  Each address has the port. */
struct call {
	unsigned char key[KEY_BYTES];
	struct sockaddr_storage addr[CALL_ADDRESSES_MOST];
	size_t n;
	uint32_t within_ms;
	bool copy; /* this program is a copy for this start */
};

/* HOW of "munge", "munge:SOCKET" or "clear".  False: TEXT is none of these. */
bool call_how_read(struct call_how *how, const char *text);

/* Read C from stdin.  0, or -1 with E.  E_AGENT_OTHER: runner has another version. */
int call_read(struct call *c, const struct call_how *how, struct err *e);

/* As call_read(), from the frame F, which is a `call`. */
int call_take(struct call *c, const struct call_how *how, const struct wire_frame *f,
	      struct err *e);

/* "10.0.0.1, fd00::1 (port 4711)" to OUT: where C's launcher is. */
void call_where(struct str *out, const struct call *c);

/* This host, as Slurm names it.  Valid until the next call. */
const char *call_own_host(void);

#endif
