/* p2p_bell.h - wakes a rank of this host that waits for messages.
 *
 * A rank that has connections sleeps in poll(), where a datagram wakes it; its socket
 * has an abstract name of 16 random bytes, which stand in the shared memory.  Further
 * threads of it, and ranks without connections, sleep on a futex.
 *
 * Who rings looks first whether anybody sleeps, without a barrier between that and what
 * it has written (see post() in wait.h).  So the first sleep lasts 50 us, and its
 * sleeper is counted until something has moved. */
#ifndef BERTH_LIB_P2P_BELL_H
#define BERTH_LIB_P2P_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { P2P_NAME_BYTES = 16 };

/* In the region, one a rank; zero before the first. */
struct p2p_bell {
	_Alignas(128) _Atomic uint32_t value; /* how often it was rung */
	_Atomic uint32_t sleepers;            /* on VALUE */
	_Atomic uint32_t polls;               /* whether one sleeps in poll() */
	_Atomic uint32_t left;                /* the rank has left the group */
	unsigned char name[P2P_NAME_BYTES];
};

/* The socket by which B wakes who polls, or -1. */
int p2p_bell_open(struct p2p_bell *b);
/* What was rung is no longer there. */
void p2p_bell_clear(int fd);

/* Does anybody sleep, apart from SELF of the calling thread? */
static inline bool p2p_bell_has_sleeper(struct p2p_bell *b, uint32_t self)
{
	return atomic_load_explicit(&b->sleepers, memory_order_relaxed) +
		       atomic_load_explicit(&b->polls, memory_order_relaxed) >
	       self;
}

/* FD: a socket of this process, or -1. */
void p2p_bell_ring(struct p2p_bell *b, int fd);
/* While VALUE is SEEN, for NS at most. */
void p2p_bell_sleep(struct p2p_bell *b, uint32_t seen, uint64_t ns);

#endif
