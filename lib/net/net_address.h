/* net_address.h - which interfaces a rank listens on, and how it tells the others. */
#ifndef BERTH_LIB_NET_ADDRESS_H
#define BERTH_LIB_NET_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>

enum { NET_WHERE_MAX = 8 };

/* Where a peer can be reached, those in a network of ours first. */
struct net_where {
	size_t n;
	struct sockaddr_storage at[NET_WHERE_MAX];
};

/* Sockets that listen on one free port of each address that RANGE or INTERFACES (net.h)
 * choose, and on no other: into FD, NET_WHERE_MAX at most, how many.  TEXT, of
 * NET_ADDRESS_BYTES (net.h), becomes "PORT ADDRESS/BITS ...".  BACKLOG: as listen(2).
 * -1 with WHY. */
int net_listen(const char *range, const char *interfaces, int backlog, int *fd,
	       char *text, char *why, size_t why_bytes);

/* Such a text.  0, or -1: it is none, or has no address that can be used. */
int net_where(struct net_where *w, const char *text);

socklen_t net_address_size(const struct sockaddr_storage *a);

/* Is the textual RANGE well-formed?  "10.0.0.0/8,fd00::/8" */
int net_range_check(const char *range);

#endif
