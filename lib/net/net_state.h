/* net_state.h - what the rooms of net.h share: net.c (opening, closing, looking
 * around), net_connect.c (connections, until both sides have proved the key) and
 * net_message.c. */
#ifndef BERTH_LIB_NET_STATE_H
#define BERTH_LIB_NET_STATE_H

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/descriptor.h"
#include "lib/net/net.h"
#include "lib/net/net_address.h"
#include "lib/net/net_key.h"

enum {
	COMING_MOST = 64,        /* connections that have not proved anything yet */
	HANDSHAKE_MS = 5000,     /* in which they have to */
	LISTENER_PROBE_MS = 300, /* until, and between looks whether, a peer has left */
	/* What one call sends, or takes to where it stays.  2 MiB between two ranks:
	 * 0.68 ms with 256 KiB, 0.60 with this. */
	PIECE_BYTES = 1 << 20,
	/* What one call takes to be reduced, so that it is still in the second cache
	 * with what it is reduced with: 0.45 ms where 1 MiB has 0.50. */
	TAKE_BYTES = 128 << 10,
	STASH_BYTES = 8 << 10,
	WATCH_MS = 50, /* from one look at what may end a wait to the next */
	HEAD_MAGIC = 0x32485442
};

/* In the machine's order: all hosts of a job are little-endian. */
struct head {
	uint32_t magic;
	struct net_tag tag;
	struct net_note note;
	uint64_t bytes;
	struct net_mark mark; /* of what is in front of it, and of small data */
};

_Static_assert(offsetof(struct head, mark) == NET_HEAD_BYTES, "a mark is behind that");

/* Groups of heads that are no message's: this rank gives up because of rank tag.seq,
 * for the reason tag.step (of BERTH_AUTH, NOTE says which rank has seen it, and the
 * kind of fault); this rank goes, having done its part. */
enum { GROUP_LOST = 0xffffffff, GROUP_LEAVES = 0xfffffffe };

/* Why somebody gives up: of any number, one of the four that there are. */
static inline berth_result net_reason(uint32_t why)
{
	return why == BERTH_TIMEOUT || why == BERTH_ABORTED || why == BERTH_AUTH
		       ? (berth_result)why
		       : BERTH_PEER_LOST;
}

/* A connection: what has been read of it and not used yet stands at STASH + AT. */
struct link {
	struct net_channel channel;
	bool drained; /* in this exchange: there was no more to read */
	bool half;    /* of a message has been sent: nothing else can be said */
	size_t at, have;
	unsigned char *stash; /* STASH_BYTES */
};

/* Is H, of L's peer, the next head that it said?  LATER: or one that follows. */
static inline bool net_is_said(const struct link *l, const struct head *h, bool later)
{
	return h->magic == HEAD_MAGIC &&
	       net_mark_is_good(l->channel.in, &h->mark, h, later);
}

/* A connection that somebody began. */
struct coming {
	int fd;
	uint64_t until_ns;
	bool answered;
	size_t got;
	struct net_hello hello;
	struct net_answer answer;
	struct net_seal seal;
};

/* A connection that this rank has begun, by net_begin(). */
struct begun {
	int fd;           /* -1: none */
	bool greeted;     /* HELLO has been sent */
	unsigned next;    /* of the peer's addresses */
	unsigned refused; /* how often in a row */
	uint64_t until_ns, again_ns;
	size_t got; /* bytes of ANSWER */
	struct net_hello hello;
	struct net_answer answer;
};

struct net {
	struct net_config config;
	unsigned char key[NET_KEY_BYTES];
	char address[NET_ADDRESS_BYTES];
	char pacing_control[16]; /* congestion control of this host, where it paces */
	int listener;
	struct link *link; /* NET_LANES a rank */
	struct net_where *peer;
	struct coming coming[COMING_MOST];
	size_t ncoming;
	struct begun *begun; /* one a rank; NULL: only exchanges */
	unsigned char *piece;
	berth_result (*look)(void *ctx);
	void *ctx;
	uint64_t looked_ns;   /* at all peers */
	uint64_t deadline_ns; /* of the exchange in progress; 0: none */
	bool oversubscribed;  /* ranks outnumber cores: who waits sleeps at once */
	uint64_t oversubscribed_until_ns, oversubscribed_ms;
	long pushed_aside;   /* how often, by others on this core */
	_Atomic bool broken; /* LOST is whole: any thread may ask net_lost() */
	unsigned lost;       /* because of which rank */
	berth_result why;    /* by net_reason() */
	unsigned waits_for;  /* the peer of the exchange in progress */
	char refusal[128];   /* of the last connection that was not made */
	bool unreached;      /* it ended an exchange */
	bool refused; /* the peer, whose host is there, does not listen any more */
	struct net_fault fault; /* its kind is 0: none */
};

/* FD is the connection to PEER from here on, by the handshake of H and A.  0, or -1:
 * out of memory. */
int net_open_link(struct net *n, unsigned peer, unsigned lane, int fd,
		  const struct net_hello *h, const struct net_answer *a);

/* Why PEER, which said H, gives up, and because of which rank, any number.  BERTH_OK:
 * it does not. */
berth_result net_given_up(struct net *n, unsigned peer, const struct head *h,
			  unsigned *lost);
/* The first that is noted stays.  ADDRESS, TEXT: or NULL. */
void net_note_fault(struct net *n, int kind, unsigned peer, const char *address,
		    const char *text);

/* What this rank says when it begins a connection, and how it judges such a hello. */
struct net_hello net_own_hello(const struct net *n, unsigned peer, unsigned lane);
/* What both do; 0: nothing in common. */
uint32_t net_common(const struct net_hello *own, const struct net_hello *h);
enum net_verdict net_judge(const struct net *n, const struct net_hello *h);
/* The VERDICT of the other end of FD, which is PEER. */
void net_note_verdict(struct net *n, unsigned peer, int fd, uint32_t verdict);

/* One sleep, WATCH_MS at most, after a look at what may end the wait. */
berth_result net_sleep(struct net *n, struct pollfd *p, nfds_t np,
		       uint64_t deadline_ns);

/* The stream of PEER has ended.  It may have given up because another one is gone, and
 * have had no way to say so in the middle of a message: the watcher may know, and what
 * it says is returned.  WHY: what the others are told if it does not. */
berth_result net_ended(struct net *n, unsigned peer, berth_result why);

/* Nothing paces what this socket, and what it accepts, sends. */
void net_disable_pacing(struct net *n, int fd);
/* FD has connected: if its peer is far, it gets the congestion control of the host. */
void net_settle(const struct net *n, int fd);
/* The options of each connection: no delay, and limits after which a silent peer is
 * lost. Returns FD. */
int net_set_up(int fd);

static inline struct link *net_link(const struct net *n, unsigned peer, unsigned lane)
{
	return &n->link[(size_t)peer * NET_LANES + lane];
}

static inline int net_fd(const struct net *n, unsigned peer, unsigned lane)
{
	return net_link(n, peer, lane)->channel.fd;
}

static inline void net_close_link(struct link *l)
{
	if (l->channel.fd >= 0)
		descriptor_close(l->channel.fd);
	net_channel_free(&l->channel);
	free(l->stash);
	*l = (struct link){ .channel = { .fd = -1 } };
}

/* What an exchange with a peer that has left comes to. */
static inline berth_result net_of_leaver(const struct net *n)
{
	return n->config.leaver == BERTH_ABORTED ? BERTH_ABORTED : BERTH_PEER_LOST;
}

/* A connection to PEER, from either side. */
berth_result net_have(struct net *n, unsigned peer, unsigned lane,
		      uint64_t deadline_ns);

#endif
