/* listener.h - another process that listens on the port of a job.
 *
 * The agent holds MASTER_PORT without listening, and SO_REUSEADDR lets rank 0 in.  It
 * lets every user's processes in.  If one was there before rank 0, this says so. */
#ifndef BERTH_AGENT_RANKS_LISTENER_H
#define BERTH_AGENT_RANKS_LISTENER_H

#include "common/str.h"

struct listener {
	uint32_t uid;
	uint64_t inode; /* of its socket */
};

/* The first socket that listens on PORT, from TEXT, which is /proc/net/tcp or tcp6. */
bool listener_find(struct listener *l, const char *text, uint32_t port);

/* If a process that is not below this one listens on PORT: "uid 7, pid 9 (name)" into
 * WHO, or "uid 7" alone if its process cannot be seen. */
bool listener_is_stranger(struct str *who, uint32_t port);

#endif
