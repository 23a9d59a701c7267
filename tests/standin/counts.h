/* counts.h - what the stand-in counts in its process: calls that may wait for the
 * device, by kind, and what is held: made, and not given back yet. */
#ifndef BERTH_TESTS_COUNTS_H
#define BERTH_TESTS_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* All calls of the stand-in that may wait, where a real device has work. */
enum standin_wait {
	STANDIN_SYNC,
	STANDIN_ALLOC,
	STANDIN_FREE,
	STANDIN_HOST_ALLOC,
	STANDIN_REGISTER,
	STANDIN_MODULE, /* or the first launch of a kernel, which loads it */
	STANDIN_STREAM,
	STANDIN_COMM,     /* a communicator is made, or it ends */
	STANDIN_PAGEABLE, /* a copy of host memory that the device can't reach */
	/* One thread asks for an event that has not come, 5 times or more in 20 us, and
	 * nowhere lets 20 us pass from one query to the next, as a thread that sleeps
	 * does. */
	STANDIN_QUERY,
	STANDIN_WAITS
};

enum standin_held {
	STANDIN_STREAMS, /* each has a thread */
	STANDIN_EVENTS,
	STANDIN_MODULES,
	STANDIN_CONTEXTS, /* how often they were retained */
	STANDIN_CURRENT,  /* contexts that threads have, and have not given back */
	STANDIN_COMMS,
	STANDIN_HOST, /* allocations of the host's memory that the device can reach */
	STANDIN_HOST_BYTES,
	STANDIN_ALLOCS,
	STANDIN_BYTES,
	STANDIN_HELD
};

extern const char *const standin_wait_name[STANDIN_WAITS];
extern const char *const standin_held_name[STANDIN_HELD];

void standin_waited(enum standin_wait kind);
/* This thread asked for EVENT, as it was recorded at place RECORD of a stream: pools
 * use events again. */
void standin_asked(const void *event, uint64_t record, bool has_come);
/* The stand-in itself holds up this thread, which is no pause between queries.  (If it
 * does so elsewhere, a pause looks shorter than it was: hence 5 queries.) */
void standin_nap(unsigned us);
/* How many calls of KIND there were, of all threads. */
unsigned long standin_waits_of(enum standin_wait kind);
/* Calls that may wait of this thread, but for queries. */
extern _Thread_local unsigned long standin_waits;

/* N more of KIND, or fewer. */
void standin_hold(enum standin_held kind, long n);
long standin_holds(enum standin_held kind);

#endif
