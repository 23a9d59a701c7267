/* handoff.h - one rank of a host hands the others the memory that they share: where no
 * agent does.
 *
 * Over an abstract socket whose name has 128 random bits; both sides look at the uid of
 * the other.  Nothing has a name in a file system, and nothing is left when all have
 * ended, however they end. */
#ifndef BERTH_LIB_HANDOFF_H
#define BERTH_LIB_HANDOFF_H

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
