/* world.h - this process as a rank of the job, from berth_init() to
 * berth_shutdown(). */
#ifndef BERTH_LIB_WORLD_H
#define BERTH_LIB_WORLD_H

#include <pthread.h>

#include "lib/boot.h"
#include "lib/knobs.h"
#include "lib/memory.h"

struct world {
	struct knobs knobs;
	int64_t timeout_ms; /* of an operation that gives none; 0: none */
	const struct boot *boot;
	void *boot_state;
	struct boot_world who;
	struct memory memory;
	unsigned cores;  /* that this process may use */
	unsigned *local; /* of each rank of the job, its number on this host; or
			       WORLD_NOT_HERE */
	struct berth_set *_Atomic all; /* NULL: none yet, or stopped */
	struct berth_set *sets;        /* all that there are, and ALL (set.c) */
	struct berth_metrics past;     /* of those that are gone */
	uint32_t next_set;             /* number of the next one */
};
#define WORLD_NOT_HERE (~0u)

/* 0 .. BERTH_SYSTEM, with the thread's last error.  Not thread-safe. */
berth_result world_begin(struct world *w, const struct berth_config *config);
/* Calls that begin now come too late, and those that wait return. */
void world_stop(struct world *w);
/* After world_stop(), when no other thread looks at W any more. */
void world_end(struct world *w);

struct stall;

/* To the log, and to the user where that is possible. */
void world_stalled(const struct stall *s);

/* "n1" */
const char *world_host(const struct world *w, unsigned rank);
/* Ranks as text: "1-3, 7"; "1-3, ..." where BYTES are too few. */
void world_fold(char *text, size_t bytes, const unsigned *rank, size_t n);

#endif
