/* arrive.h - which ranks of a host are about to block in an operation of a set.
 *
 * Once all of them are, none waits long in it: so a rank that has to come back in time
 * (berth_run() with SLICE_MS) may do the operation in its own thread.  Else it submits
 * it, and waits for a request: 8 bytes between two ranks 9 us, and 1.5 by way of this.
 *
 * It is a hint.  If a rank arrives and then submits, the others do not wait for long:
 * its thread does the operation.  If a rank submits what others run, its arrival is not
 * counted.  The others may then wait in the operation until that rank submits.
 *
 * Requests are matched by name, so ranks may begin with different ones.  If they would
 * block in these, neither came back to the other's: so they must arrive for the same
 * name. */
#ifndef BERTH_LIB_ARRIVE_H
#define BERTH_LIB_ARRIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In shared memory, one a rank; all zero at first. */
struct arrival {
	/* In the upper half the hash of the name that the rank arrived for; in the
	 * lower half the calls in which it has blocked so far. */
	_Alignas(128) _Atomic uint64_t word;
};

/* Rank ME of N arrives for a name with the hash NAME.  True: all have arrived for it,
 * within PATIENCE_NS. */
bool arrive(struct arrival *all, unsigned n, unsigned me, uint32_t name,
	    uint64_t patience_ns);

#endif
