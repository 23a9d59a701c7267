/* net_address.h - the interfaces on which a rank listens, and how it tells the
 * others. */
#ifndef BERTH_LIB_NET_ADDRESS_H
#define BERTH_LIB_NET_ADDRESS_H

#include <stddef.h>
#include <sys/socket.h>

enum { NET_WHERE_MAX = 8 };

/* The addresses of a peer.  Those in a network of this host come first. */
struct net_where {
	size_t n;
	struct sockaddr_storage at[NET_WHERE_MAX];
};

/* Make sockets that listen on one free port of each address that RANGE or INTERFACES
 * (net.h) choose, and on no other.  They go to FD, NET_WHERE_MAX at most.  Returns how
 * many, or -1 with WHY.  TEXT, of NET_ADDRESS_BYTES (net.h), becomes "PORT ADDRESS/BITS
 * ...".  BACKLOG: as listen(2). */
int net_listen(const char *range, const char *interfaces, int backlog, int *fd,
	       char *text, char *why, size_t why_bytes);

/* Read such a TEXT.  0, or -1: it is not such a text, or has no address that can be
 * used. */
int net_where(struct net_where *w, const char *text);

socklen_t net_address_size(const struct sockaddr_storage *a);

/* Is the textual RANGE well-formed?  "10.0.0.0/8,fd00::/8" */
int net_range_check(const char *range);

#endif
