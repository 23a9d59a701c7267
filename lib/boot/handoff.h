/* handoff.h - one rank of a host hands the others the memory that they share, if no
 * agent does.
 *
 * It uses an abstract socket whose name has 128 random bits.  Both sides look at the
 * uid of the other.  Nothing has a name in a file system.  Nothing is left when all
 * have ended, however they end. */
#ifndef BERTH_LIB_HANDOFF_H
#define BERTH_LIB_HANDOFF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/berth.h"

enum { HANDOFF_NAME_BYTES = 33 }; /* with its NUL */

/* A socket to which others may come.  NAME is made up here.  -1 with errno. */
int handoff_listen(char *name);

/* Gives MEMORY to N other ranks, which come to LISTENER until UNTIL_NS of
 * CLOCK_MONOTONIC.  WHY says what went wrong. */
berth_result handoff_give(int listener, unsigned n, int memory, uint64_t until_ns,
			  char *why, size_t why_bytes);

/* handoff_give() in a thread, while its owner does something else.  Else connections of
 * other users that fill the queue of LISTENER would keep the other ranks out. */
struct handoff {
	int listener, memory;
	unsigned n;
	_Atomic uint32_t served;
	pthread_t thread;
};
/* H stays where it is.  BERTH_SYSTEM with WHY: there is no thread. */
berth_result handoff_begin(struct handoff *h, int listener, unsigned n, int memory,
			   char *why, size_t why_bytes);
/* Waits until UNTIL_NS for the ranks that have not come, as handoff_give() does.  0: it
 * does not wait.  After this, LISTENER takes no connection. */
berth_result handoff_end(struct handoff *h, uint64_t until_ns, char *why,
			 size_t why_bytes);

/* Comes to the socket NAME, at the latest at UNTIL_NS, before its owner gives or
 * meanwhile.  -1 with errno. */
int handoff_come(const char *name, uint64_t until_ns);
/* Takes the memory that comes through FD, sealed and of BYTES, and closes FD.  It waits
 * at most as long as handoff_come() was allowed. */
berth_result handoff_receive(int fd, size_t bytes, int *memory, char *why,
			     size_t why_bytes);
/* handoff_come(), then handoff_receive(). */
berth_result handoff_take(const char *name, size_t bytes, uint64_t until_ns,
			  int *memory, char *why, size_t why_bytes);

#endif
