/* net_state.h - what the files of net.h share: net_link.c (one connection), net_door.c
 * (connections that come), net.c (opening, closing, looking around), net_connect.c and
 * net_begin.c (connections that this rank begins), net_idle.c and net_message.c. */
#ifndef BERTH_LIB_NET_STATE_H
#define BERTH_LIB_NET_STATE_H

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/descriptor.h"
#include "lib/base/done.h"
#include "lib/net/net.h"
#include "lib/net/net_door.h"

enum {
	LISTENER_PROBE_MS = 300, /* until, and between looks whether, a peer has left */
	/* What one call sends, having hashed it, or takes to where it stays.  2 MiB
	 * between two ranks: 0.83 ms with 256 KiB, 0.70 with 512, 0.65 with this. */
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
	struct net_mark mark; /* of what is in front of it */
};

_Static_assert(offsetof(struct head, mark) == NET_HEAD_BYTES, "a mark is behind that");

/* Groups of heads that are no message's: this rank gives up because of rank tag.seq,
 * for the reason tag.step, done with note.word[2] operations (of BERTH_AUTH, the other
 * words say which rank has seen it, and the kind of fault); this rank goes, having done
 * its part. */
enum { GROUP_LOST = 0xffffffff, GROUP_LEAVES = 0xfffffffe };
/* And of a connection that is not used (net_idle.c): who has begun it would end it,
 * having got note.word[0] messages there; the other one has ended it, or keeps it. */
enum {
	GROUP_RELEASE = 0xfffffffd,
	GROUP_RELEASED = 0xfffffffc,
	GROUP_KEPT = 0xfffffffb
};

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
	bool drained;       /* in this exchange: there was no more to read */
	bool half;          /* of a message has been sent: nothing else can be said */
	bool releasing;     /* RELEASE has been said, and not been answered */
	bool ends;          /* the peer closes it */
	uint32_t sent, got; /* messages */
	size_t at, have;
	unsigned char *stash; /* STASH_BYTES */
};

/* Is H, of L's peer, the next head that it said?  LATER: or one that follows. */
static inline bool net_is_said(const struct link *l, const struct head *h, bool later)
{
	return h->magic == HEAD_MAGIC &&
	       net_mark_is_good(l->channel.in, &h->mark, h, later);
}

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
	struct net_door *door;
	bool owns_door;
	/* by the door, with its lock: */
	struct net *next;
	struct net_coming *arrived; /* NARRIVED connections that are to be taken */
	size_t narrived;
	uint64_t *heard; /* NET_LANES a rank: the number of its last hello */
	void (*wake)(void *ctx);
	void *wake_ctx;
	_Atomic uint32_t came; /* how many ever */
	uint32_t taken;        /* CAME, when all had been taken */
	struct link *link;     /* NET_LANES a rank */
	struct begun *begun;   /* one a rank; NULL: only exchanges */
	unsigned char *piece;
	berth_result (*look)(void *ctx);
	const _Atomic uint32_t *done;
	void *ctx;
	uint64_t looked_ns;   /* at all peers */
	uint64_t deadline_ns; /* of the exchange in progress; 0: none */
	bool oversubscribed;  /* ranks outnumber cores: who waits sleeps at once */
	uint64_t oversubscribed_until_ns, oversubscribed_ms;
	long pushed_aside;   /* how often, by others on this core */
	_Atomic bool broken; /* LOST is whole: any thread may ask net_lost() */
	unsigned lost;       /* because of which rank */
	berth_result why;    /* by net_reason() */
	unsigned exchanges, exchanges_seen; /* how many there were; at the last look */
	unsigned idle_looks;                /* in a row that found no further one */
	/* by the door, with its lock for being tended: */
	struct net *next_tended;
	void (*tend)(void *ctx);
	void *tend_ctx;
	_Atomic bool tend_soon;
	unsigned waits_for; /* the peer of the exchange in progress */
	char refusal[128];  /* of the last connection that was not made */
	bool unreached;     /* it ended an exchange */
	bool ends_here;     /* the watcher has, and broke nothing */
	bool refused; /* the peer, whose host is there, does not listen any more */
	bool left;    /* the same: it says so itself */
	struct net_fault fault; /* its kind is 0: none */
};

/* FD is the connection to PEER from here on, by the handshake of H and A.  0, or -1:
 * out of memory. */
int net_open_link(struct net *n, unsigned peer, unsigned lane, int fd,
		  const struct net_hello *h, const struct net_answer *a);
void net_close_link(struct link *l);
/* More to the stash, behind what it has.  As net_channel_receive(). */
ssize_t net_fill(struct link *l);
/* H, to who is at the other end.  FALSE: not all of it went. */
bool net_tell(struct net_channel *c, struct head h);

/* Of the other end of the connections to PEER, any number; NULL: there are none. */
const char *net_link_address(const struct net *n, unsigned peer);

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

/* A peer would release L, as H says, which this rank is about to use. */
void net_keep(struct link *l, const struct head *h);
/* The peer of L, which this rank would release, has said what follows in its stash.  Is
 * it settled?  The connection may be gone then. */
bool net_is_settled(struct link *l);

/* One sleep, WATCH_MS at most, after a look at what may end the wait. */
berth_result net_sleep(struct net *n, struct pollfd *p, nfds_t np,
		       uint64_t deadline_ns);
/* The same, until more connections than CAME have come. */
berth_result net_sleep_until(struct net *n, uint32_t came, uint64_t deadline_ns);

/* The stream of PEER has ended.  It may have given up because another one is gone, and
 * have had no way to say so in the middle of a message: the watcher may know, and what
 * it says is returned.  WHY: what the others are told if it does not. */
berth_result net_ended(struct net *n, unsigned peer, berth_result why);

/* Nothing paces what this socket, and what it accepts, sends.  CONTROL becomes what
 * did, if anything. */
void net_disable_pacing(char control[16], int fd);
/* FD has connected: if its peer is far, it gets the congestion control of the host. */
void net_settle(const struct net *n, int fd);
/* The options of each connection: no delay, and limits after which a silent peer is
 * lost. Returns FD. */
int net_set_up(int fd);

static inline unsigned net_rank_at_door(const struct net *n, unsigned peer)
{
	return n->config.ranks ? n->config.ranks[peer] : peer;
}

/* Where PEER can be reached. */
static inline const struct net_where *net_where_is(const struct net *n, unsigned peer)
{
	return &n->door->peer[net_rank_at_door(n, peer)];
}

static inline struct link *net_link(const struct net *n, unsigned peer, unsigned lane)
{
	return &n->link[(size_t)peer * NET_LANES + lane];
}

static inline int net_fd(const struct net *n, unsigned peer, unsigned lane)
{
	return net_link(n, peer, lane)->channel.fd;
}

/* Who said H gives up, or goes, and is done with the operation of this rank. */
static inline bool net_is_beyond(const struct net *n, const struct head *h)
{
	return h->tag.group == GROUP_LEAVES ||
	       (h->tag.group == GROUP_LOST &&
		done_is_more(h->note.word[2], done_count(n->done)));
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
