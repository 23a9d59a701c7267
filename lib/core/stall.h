/* stall.h - an operation for which some ranks do not come: when to say so, and what.
 * Reads the op records of this host's ranks. */
#ifndef BERTH_LIB_STALL_H
#define BERTH_LIB_STALL_H

#include "lib/core/world.h"

enum { STALL_MISSING_MOST = 64 };

struct stall {
	const struct boot_world *who;
	const unsigned *local; /* of each rank of the job, its number on this host, or
				  WORLD_NOT_HERE */
	const struct memory *memory;
	const char *words; /* of the operation */
	uint64_t waited_ms;
	unsigned missing[STALL_MISSING_MOST]; /* ranks of the job */
	size_t nmissing;
};

/* After the parameter's time, then each time that the wait has doubled. */
bool stall_is_due(const struct params *k, uint64_t begun_ns, uint64_t reported_ns,
		  uint64_t now_ns);
/* `allreduce "grad" of 1024 f32, sum: waits 60 s for ranks 3, 5 on 'n1' (rank 3:
 * broadcast of 4 u8, done 31 s ago)` */
void stall_text(char *text, size_t bytes, const struct stall *s);
/* S, in W: that goes to the log, and to the user where that is possible. */
void stall_tell(const struct world *w, struct stall *s);

#endif
