/* net_state.h - the state and functions that the files of net.h share: net_link.c (one
 * connection), net_door.c (connections that come), net.c (opening, closing, looking
 * around), net_connect.c and net_begin.c (connections that this rank begins),
 * net_idle.c and net_message.c. */
#ifndef BERTH_LIB_NET_STATE_H
#define BERTH_LIB_NET_STATE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/descriptor.h"
#include "lib/base/done.h"
#include "lib/net/net.h"
#include "lib/net/net_address.h"
#include "lib/net/net_key.h"

/* ---- the door (net_door.h) ---- */

enum {
	NET_COMING_MOST = 64, /* connections that have not proved anything yet */
	HANDSHAKE_MS = 5000,  /* the time that they have for it */
	NET_ASKS = 0xffffffff /* as a lane: is the net still there? */
};

/* A connection that a peer began. */
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
	struct net_where *peer;  /* addresses of each rank */
	char pacing_control[16]; /* congestion control of this host, if it paces */
	int listener[NET_WHERE_MAX];
	int listeners;
	pthread_t thread;
	bool started;
	_Atomic bool closes;
	bool lacks_room;         /* no place, or no descriptor; of the thread */
	pthread_mutex_t tending; /* guards TENDED; held while they are tended */
	struct net *tended;
	uint64_t tended_ns;
	_Atomic bool tend_soon; /* a peer asks for one of them */
	pthread_mutex_t lock;   /* guards all that follows */
	struct net *nets;
	struct net_coming coming[NET_COMING_MOST];
	size_t ncoming;
};

/* ---- nets ---- */

enum {
	LISTENER_PROBE_MS = 300, /* before and between checks whether a peer has left */
	/* One call hashes and sends at most this many bytes, or receives as many into
	 * their final place.  2 MiB between two ranks take 0.65 ms (0.83 with 256 KiB,
	 * 0.70 with 512). */
	PIECE_BYTES = 1 << 20,
	/* One call takes at most this many bytes to be reduced.  They are then still in
	 * the second cache, together with the other operand (0.45 ms; 0.50 with 1
	 * MiB). */
	TAKE_BYTES = 128 << 10,
	STASH_BYTES = 8 << 10,
	HEAD_MAGIC = 0x32485442
};

/* In the machine's order: all hosts of a job are little-endian. */
struct head {
	uint32_t magic;
	struct net_tag tag;
	struct net_note note;
	uint64_t bytes;
	struct net_mark mark; /* of the members in front of it */
};

_Static_assert(offsetof(struct head, mark) == NET_HEAD_BYTES, "a mark is behind that");

/* Groups of the heads that do not belong to a message.  LOST: the sender gives up
 * because of rank tag.seq, for the reason tag.step, and has done note.word[2]
 * operations.  If the reason is BERTH_AUTH, note.word[0] is the rank that has seen the
 * fault, and note.word[1] is its kind.  LEAVES: the sender has done its part and
 * leaves. */
enum { GROUP_LOST = 0xffffffff, GROUP_LEAVES = 0xfffffffe };
/* Groups of heads on a connection that is not used (net_idle.c).  RELEASE: the rank
 * that began the connection wants to end it, and has received note.word[0] messages
 * there.  RELEASED: the other rank has ended it.  KEPT: the other rank keeps it. */
enum {
	GROUP_RELEASE = 0xfffffffd,
	GROUP_RELEASED = 0xfffffffc,
	GROUP_KEPT = 0xfffffffb
};

/* The reason for which a rank gives up.  Any number WHY becomes one of the four
 * reasons. */
static inline berth_result net_reason(uint32_t why)
{
	return why == BERTH_TIMEOUT || why == BERTH_ABORTED || why == BERTH_AUTH
		       ? (berth_result)why
		       : BERTH_PEER_LOST;
}

/* A connection.  HAVE bytes that have been read and not yet used are at STASH + AT. */
struct link {
	struct net_channel channel;
	bool drained;       /* in this exchange, there was no more to read */
	bool half;          /* a message has gone in part: nothing else can be sent */
	bool releasing;     /* RELEASE has been sent, and has no answer yet */
	uint32_t sent, got; /* messages */
	size_t at, have;
	unsigned char *stash; /* STASH_BYTES */
};

/* Is H the next head that L's peer has sent?  LATER: or a later one. */
static inline bool net_is_said(const struct link *l, const struct head *h, bool later)
{
	return h->magic == HEAD_MAGIC &&
	       net_mark_is_good(l->channel.in, &h->mark, h, later);
}

/* A connection that this rank has begun, by net_begin(). */
struct begun {
	int fd;           /* -1: none */
	bool greeted;     /* HELLO has been sent */
	unsigned next;    /* number of the peer's address to try */
	unsigned refused; /* refusals in a row */
	uint64_t until_ns, again_ns;
	size_t got; /* bytes of ANSWER */
	struct net_hello hello;
	struct net_answer answer;
};

struct net {
	struct net_config config;
	struct net_door *door;
	bool owns_door;
	/* used by the door, under its lock: */
	struct net *next;
	struct net_coming *arrived; /* NARRIVED connections that are to be taken */
	size_t narrived;
	uint64_t *heard; /* NET_LANES a rank: the number of its last hello */
	void (*wake)(void *ctx);
	void *wake_ctx;
	_Atomic uint32_t came; /* how many have ever come */
	uint32_t taken;        /* CAME, when all had been taken */
	struct link *link;     /* NET_LANES a rank */
	struct begun *begun;   /* one a rank; NULL: only exchanges */
	unsigned char *piece;
	berth_result (*look)(void *ctx);
	const _Atomic uint32_t *done;
	void *ctx;
	uint64_t looked_ns;   /* at all peers */
	uint64_t deadline_ns; /* of the exchange in progress; 0: none */
	bool oversubscribed;  /* ranks outnumber cores: a waiting rank sleeps at once */
	uint64_t oversubscribed_until_ns, oversubscribed_ms;
	long pushed_aside;   /* how often others took this core */
	_Atomic bool broken; /* LOST is set: any thread may call net_lost() */
	unsigned lost;       /* the rank that is the reason */
	berth_result why;    /* by net_reason() */
	unsigned exchanges, exchanges_seen; /* how many there were; at the last look */
	unsigned idle_looks;                /* looks in a row without a new exchange */
	/* used by the door, under its lock TENDING: */
	struct net *next_tended;
	void (*tend)(void *ctx);
	void *tend_ctx;
	_Atomic bool tend_soon;
	unsigned waits_for; /* the peer of the exchange in progress */
	char refusal[128];  /* of the last connection that was not made */
	bool unreached;     /* that failure has ended an exchange */
	bool ends_here;     /* the watcher has ended one, and the net is not broken */
	bool refused;       /* the peer no longer listens; its host is there */
	bool left;          /* the peer says itself that it has left */
	struct net_fault fault; /* its kind is 0: none */
};

/* From here on FD is the connection to PEER.  H and A are its handshake.  0, or -1: out
 * of memory. */
int net_open_link(struct net *n, unsigned peer, unsigned lane, int fd,
		  const struct net_hello *h, const struct net_answer *a);
void net_close_link(struct link *l);
/* Read more into the stash, behind the bytes that it has.  Returns as
 * net_channel_receive(). */
ssize_t net_fill(struct link *l);
/* Send H to the other end.  FALSE: not all of it went. */
bool net_tell(struct net_channel *c, struct head h);

/* The address of the other end of the connections to PEER, which may be any number.
 * NULL: there is no such connection. */
const char *net_link_address(const struct net *n, unsigned peer);

/* PEER has said H.  Returns the reason for which PEER gives up, or BERTH_OK if it does
 * not.  *LOST becomes the rank that is the reason, and may be any number. */
berth_result net_given_up(struct net *n, unsigned peer, const struct head *h,
			  unsigned *lost);
/* Note a fault.  The first one stays.  ADDRESS and TEXT may be NULL. */
void net_note_fault(struct net *n, int kind, unsigned peer, const char *address,
		    const char *text);

/* The hello with which this rank begins a connection. */
struct net_hello net_own_hello(const struct net *n, unsigned peer, unsigned lane);
/* The bits of enum net_secure that both hellos have; 0: they have no guard in
 * common. */
uint32_t net_common(const struct net_hello *own, const struct net_hello *h);
enum net_verdict net_judge(const struct net *n, const struct net_hello *h);
/* Note as a fault the VERDICT of PEER, which is at the other end of FD. */
void net_note_verdict(struct net *n, unsigned peer, int fd, uint32_t verdict);

/* The peer has said by H that it wants to release L, and this rank is about to use
 * L. */
void net_keep(struct link *l, const struct head *h);
/* This rank wants to release L.  Has the peer's answer, or its next message, come to
 * the stash?  After the answer, L may be closed. */
bool net_is_settled(struct link *l);

/* Look for a reason to end the wait, then sleep once, until the next look at most. */
berth_result net_sleep(struct net *n, struct pollfd *p, nfds_t np,
		       uint64_t deadline_ns);
/* As net_sleep(), until more connections than CAME have come. */
berth_result net_sleep_until(struct net *n, uint32_t came, uint64_t deadline_ns);

/* The stream of PEER has ended.  PEER may have given up because another rank is gone,
 * and could not say so in the middle of a message.  The watcher may know, and its
 * result is returned.  WHY: the reason that the others hear if the watcher does not
 * know.  If PEER's door says that PEER has left a net that a rank may leave, the reason
 * is that. */
berth_result net_ended(struct net *n, unsigned peer, berth_result why);

/* Replace a congestion control that paces, for FD and for the sockets that it accepts.
 * CONTROL becomes the name of the replaced one, if there was one. */
void net_disable_pacing(char control[16], int fd);
/* FD has connected.  If its peer is far, FD gets the congestion control of the host. */
void net_settle(const struct net *n, int fd);
/* Set the options of each connection: no delay, and limits after which a silent peer is
 * lost.  Returns FD. */
int net_set_up(int fd);

static inline unsigned net_rank_at_door(const struct net *n, unsigned peer)
{
	return n->config.ranks ? n->config.ranks[peer] : peer;
}

/* The addresses of PEER. */
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

/* Does H say that its sender leaves, or that it gives up and has done more operations
 * than this rank? */
static inline bool net_is_beyond(const struct net *n, const struct head *h)
{
	return h->tag.group == GROUP_LEAVES ||
	       (h->tag.group == GROUP_LOST &&
		done_is_more(h->note.word[2], done_count(n->done)));
}

/* The result of an exchange with a peer that has left. */
static inline berth_result net_of_leaver(const struct net *n)
{
	return n->config.leaver == BERTH_ABORTED ? BERTH_ABORTED : BERTH_PEER_LOST;
}

/* Have a connection to PEER, begun by either side. */
berth_result net_have(struct net *n, unsigned peer, unsigned lane,
		      uint64_t deadline_ns);

#endif
