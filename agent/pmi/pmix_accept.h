/* pmix_accept.h - accept() for libpmix: only connections of our own user.
 *
 * libpmix listens on 127.0.0.1, where every user of the host may connect.  It waits for
 * the first bytes of each connection, and believes the user id in them.  One silent
 * connection of a stranger would hold up all ranks.  So the program has an accept() of
 * its own and exports it; a library that is loaded later takes it before libc's.
 *
 * accept() asks the kernel whose socket is at the other end.  It closes a connection
 * whose other end belongs to another user, also root's where we are not root, or is
 * closed, or is not on this host, or whose owner the kernel does not tell; then it
 * takes the next one.  So a listener that does not block ends with EAGAIN, and one that
 * blocks waits on.  It waits for nothing that a stranger does.  Any thread may call
 * it.
 *
 * Source of the method: sock_diag(7), with all four parts of the address of the peer's
 * socket; without inet_diag in the kernel, /proc/net/tcp and tcp6; SO_PEERCRED of a
 * UNIX socket.  A check took 5 microseconds; by /proc, 25 with few sockets on the host, and
 * 1 more for each socket. */
#ifndef BERTH_AGENT_PMI_PMIX_ACCEPT_H
#define BERTH_AGENT_PMI_PMIX_ACCEPT_H

#include "common/str.h"

/* From now on accept() closes the connections of other users.  Before: as libc's. */
void pmix_accept_guard(void);

/* What the kernel says of a TCP socket. */
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
