/* net_door.h - where the connections of a process come in, for all its nets (net.h).
 *
 * One socket listens on each address that the others are told of, and on no other.  A
 * thread accepts what comes, whatever the other threads do, and hears of each
 * connection that its peer has the job's key, and which net and which lane it is for.
 * From there on it is that net's, which finds it when it looks.
 *
 * Strangers cost little: NET_COMING_MOST connections are heard at a time, HANDSHAKE_MS
 * each, and a further one displaces one that was refused, or else the one that has said
 * nothing for longest.  One that says more than it was asked for is closed at once,
 * so that no more than a hello of each waits in the kernel.
 *
 * A connection that was not refused stays, since its peer takes it for made.  A
 * recorded hello cannot take such places: each process numbers its hellos, and the door
 * drops a hello whose number is not above the last one that it answered of this rank
 * and lane of the net.  That number is 8 bytes, which the net keeps while it is there.
 * One connection of a rank and lane has a place: its rank begins another one only after
 * it has given up the first. */
#ifndef BERTH_LIB_NET_DOOR_H
#define BERTH_LIB_NET_DOOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "lib/net/net_address.h"
#include "lib/net/net_key.h"
#include "lib/net/net.h"

enum {
	NET_COMING_MOST = 64, /* connections that have not proved anything yet */
	HANDSHAKE_MS = 5000,  /* in which they have to */
	NET_ASKS = 0xffffffff /* as a lane: is the net still there? */
};

/* A connection that somebody began. */
struct net_coming {
	struct net_coming *next; /* of those that wait for their net */
	int fd;
	uint64_t until_ns;
	bool answered;
	size_t got;
	struct net_hello hello;
	struct net_answer answer;
	struct net_seal seal;
};

struct net_door {
	unsigned rank, size;
	unsigned char key[NET_KEY_BYTES];
	char address[NET_ADDRESS_BYTES];
	struct net_where *peer;  /* of each rank */
	char pacing_control[16]; /* congestion control of this host, where it paces */
	int listener[NET_WHERE_MAX];
	int listeners;
	pthread_t thread;
	bool started;
	_Atomic bool closes;
	bool lacks_room;         /* for a further one, or a descriptor; of the thread */
	pthread_mutex_t tending; /* guards TENDED, and is held while they are */
	struct net *tended;
	uint64_t tended_ns;
	_Atomic bool tend_soon; /* one of them is asked for */
	pthread_mutex_t lock;   /* guards all that follows */
	struct net *nets;
	struct net_coming coming[NET_COMING_MOST];
	size_t ncoming;
};

/* N gets what comes for it from here on. */
void net_door_add(struct net_door *d, struct net *n);
/* Not any more; peers hear that it has left.  LAST: what those hear that take a
 * connection for made; or NULL. */
struct head;
void net_door_remove(struct net_door *d, struct net *n, const struct head *last);
/* What has come for N, or NULL: the caller's, with its socket. */
struct net_coming *net_door_take(struct net *n);

/* Those of which it is time. */
void net_door_tend(struct net_door *d);
/* Go on with what comes.  Of the thread. */
void net_door_serve(struct net_door *d);

#endif
