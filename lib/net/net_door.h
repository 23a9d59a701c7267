/* net_door.h - the door of a process: it accepts the connections for all its nets
 * (net.h).
 *
 * One socket listens on each address that the others know, and on no other.  A thread
 * of its own accepts connections, whatever the other threads do.  It checks that the
 * peer has the job's key, and learns for which net and which lane the connection is.
 * From there on the connection belongs to that net, which finds it when it looks.
 *
 * Strangers cost little.  NET_COMING_MOST connections are heard at a time, each for
 * HANDSHAKE_MS.  A further connection displaces one that was refused, or else the one
 * that has been silent for longest.  A connection that says more than it was asked for
 * is closed at once.  So no more than a hello of each waits in the kernel.
 *
 * A connection that was not refused stays, since its peer takes it as made.  A recorded
 * hello cannot take such a place.  Each process numbers its hellos.  The door drops a
 * hello unless its number is above the last one that it answered for this rank and lane
 * of the net.  The net keeps that number (8 bytes) while it exists.  A rank has one
 * place for each lane: it begins another connection only after it has given up the
 * first. */
#ifndef BERTH_LIB_NET_DOOR_H
#define BERTH_LIB_NET_DOOR_H

#include "lib/net/net_state.h"

/* From here on N gets the connections that come for it. */
void net_door_add(struct net_door *d, struct net *n);
/* N no longer gets connections, and its peers hear that it has left.  LAST goes to the
 * peers that take a connection as made; or NULL. */
void net_door_remove(struct net_door *d, struct net *n, const struct head *last);
/* A connection that has come for N, or NULL.  It belongs to the caller, with its
 * socket. */
struct net_coming *net_door_take(struct net *n);

/* Tend the nets whose time has come. */
void net_door_tend(struct net_door *d);
/* Go on with the connections that come.  For the door's thread. */
void net_door_serve(struct net_door *d);

#endif
