/* bell.h - wakes a rank of this host that sleeps until another rank has something for
 * it.
 *
 * A rank that has connections sleeps in poll(), where a datagram wakes it.  Its socket
 * has an abstract name of 16 random bytes, which stand in the shared memory.  Further
 * threads of it, and ranks without connections, sleep on a futex.
 *
 * The ringing rank looks first whether anybody sleeps.  No sleeper is missed, for one
 * of two reasons.  Both sides have a barrier between what they write and what they look
 * at then (rest.h).  Or the first sleep is short, and its sleeper is counted
 * until something has moved (p2p.c). */
#ifndef BERTH_LIB_BELL_H
#define BERTH_LIB_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { BELL_NAME_BYTES = 16 };

/* In shared memory, one a rank; all zero at first. */
struct bell {
	_Alignas(128) _Atomic uint32_t value; /* how often it was rung */
	_Atomic uint32_t sleepers;            /* on VALUE */
	_Atomic uint32_t polls;               /* whether one sleeps in poll() */
	_Atomic uint32_t left;                /* 1: the rank has left */
	_Atomic uint32_t listens;             /* 1: p2p_listen() */
	unsigned char name[BELL_NAME_BYTES];
};

/* The bells of a group's ranks on this host. */
struct bells {
	unsigned n, me;
	struct bell **of;
	int fd; /* a socket of this process, or -1 */
};

/* The socket by which B wakes a thread in poll(), or -1. */
int bell_open(struct bell *b);
/* Takes away the datagrams that have come to FD. */
void bell_clear(int fd);

/* Does anybody sleep, apart from SELF of the calling thread? */
static inline bool bell_has_sleeper(struct bell *b, uint32_t self)
{
	return atomic_load_explicit(&b->sleepers, memory_order_relaxed) +
		       atomic_load_explicit(&b->polls, memory_order_relaxed) >
	       self;
}

/* FD: a socket of this process, or -1. */
void bell_ring(struct bell *b, int fd);
/* Rings the bells of all other ranks that sleep. */
void bells_ring(const struct bells *b);
/* Sleeps while VALUE is SEEN, for at most NS. */
void bell_sleep(struct bell *b, uint32_t seen, uint64_t ns);

#endif
