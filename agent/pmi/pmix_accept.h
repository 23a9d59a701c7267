/* pmix_accept.h - accept() for libpmix: only connections of our own user.
 *
 * libpmix listens on 127.0.0.1, where every user of the host may connect.  It waits for
 * the first bytes of each connection, and believes the user id in them.  One silent
 * connection of a stranger would hold up all ranks.  So the program has an accept() of
 * its own and exports it; a library that is loaded later takes it before libc's.
 *
 * accept() asks the kernel whose socket is at the other end.  It closes a connection
 * whose other end belongs to another user (root is one where we are not root), or is
 * closed, or is not on this host, or has an owner whom the kernel does not tell; then
 * it takes the next one.  So a listener that does not block ends with EAGAIN, and one
 * that blocks waits on.  It waits for nothing that a stranger does.  Any thread may
 * call it.
 *
 * Source of the method: sock_diag(7), with both addresses and ports of the peer's
 * socket; SO_PEERCRED of a UNIX socket; /proc/net/tcp and tcp6 if the kernel has no
 * inet_diag.  A check took 5 microseconds; by /proc about 1 millisecond, and one more
 * for each 1000 sockets of the host. */
#ifndef BERTH_AGENT_PMI_PMIX_ACCEPT_H
#define BERTH_AGENT_PMI_PMIX_ACCEPT_H

#include "common/str.h"

/* From now on accept() closes the connections of other users.  Before: as libc's. */
void pmix_accept_guard(void);

/* A TCP socket, as the kernel describes it. */
struct pmix_owner {
	uint32_t state, uid;
	uint64_t inode; /* 0: no process has it open */
};

/* Pure: LINE of /proc/net/tcp or tcp6, if it is that of the socket between ENDS,
 * "0100007F:C350 0100007F:1F90". */
bool pmix_owner_of_line(struct pmix_owner *o, const char *line, const char *ends);

/* Pure: whether it is connected, open, and that of user US. */
bool pmix_owner_is(const struct pmix_owner *o, uint32_t us);

#endif
