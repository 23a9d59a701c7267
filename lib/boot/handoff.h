/* handoff.h - one rank of a host hands the others the memory that they share: where no
 * agent does.
 *
 * Over an abstract socket whose name has 128 random bits; both sides look at the uid of
 * the other.  Nothing has a name in a file system, and nothing is left when all have
 * ended, however they end. */
#ifndef BERTH_LIB_HANDOFF_H
#define BERTH_LIB_HANDOFF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/berth.h"

enum { HANDOFF_NAME_BYTES = 33 }; /* with its NUL */

/* A socket to which others may come; its NAME is made up.  -1 with errno. */
int handoff_listen(char *name);

/* MEMORY to N others, who come to LISTENER until UNTIL_NS of CLOCK_MONOTONIC.  WHY:
 * what went wrong. */
berth_result handoff_give(int listener, unsigned n, int memory, uint64_t until_ns,
			  char *why, size_t why_bytes);

/* The same in a thread, while its owner does something else: connections of other users
 * that fill the queue of LISTENER would keep the others out. */
struct handoff {
	int listener, memory;
	unsigned n;
	_Atomic uint32_t served;
	pthread_t thread;
};
/* H stays where it is.  BERTH_SYSTEM with WHY: there is no thread. */
berth_result handoff_begin(struct handoff *h, int listener, unsigned n, int memory,
			   char *why, size_t why_bytes);
/* Waits for those that have not come until UNTIL_NS, as handoff_give(); 0: for none.
 * LISTENER takes no connection any more. */
berth_result handoff_end(struct handoff *h, uint64_t until_ns, char *why,
			 size_t why_bytes);

/* Come to the socket NAME, at the latest at UNTIL_NS, before it gives or meanwhile.  -1
 * with errno. */
int handoff_come(const char *name, uint64_t until_ns);
/* What it gives to FD, which is closed: sealed, and of BYTES.  It waits at most as long
 * as handoff_come() was allowed. */
berth_result handoff_receive(int fd, size_t bytes, int *memory, char *why,
			     size_t why_bytes);
/* Both. */
berth_result handoff_take(const char *name, size_t bytes, uint64_t until_ns,
			  int *memory, char *why, size_t why_bytes);

#endif
