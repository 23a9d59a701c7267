/* device.h - a way to do collectives on the memory of a device, for the ranks of one
 * group.  backend.h has the same for the memory of the host.
 *
 * The ranks agree on the host before a work begins.  All of them have called for the
 * same, and all start the works of their groups in one order (lib/core/works.h).  So no
 * work waits on a device for a rank that does not come.  A work has a beginning and an
 * end, and several are under way at a time.
 *
 * Calls are made one at a time over all groups of the process, except find(), mark()
 * and forget(), which any thread makes.  No call waits for another rank, nor for a
 * device.  Work that runs on a device may wait for other ranks.  Those may wait for a
 * set whose thread makes the next call here.  So memory is allocated and freed in the
 * order of a stream, by cuMemFreeAsync().  cuMemFree() waits for all that runs. */
#ifndef BERTH_LIB_DEVICE_H
#define BERTH_LIB_DEVICE_H

#include <stdbool.h>

#include "lib/backend/coll.h"

enum { DEVICE_CARD_BYTES = 256 };

enum device_does { DEVICE_AVERAGE = 1, DEVICE_PRESCALE = 2, DEVICE_POSTSCALE = 4 };

struct device_work {
	/* N operations, done in their order.  An operation with pieces goes through the
	 * group's buffer.  Its IN and OUT mean nothing. */
	const struct coll *coll;
	size_t n;
	void *const *ready; /* NREADY marks: IN may be read after these */
	size_t nready;
	void *stream; /* waits for the work's end; BERTH_HOST_STREAM: none does */
	void *own;    /* the back end's, from start() to end() */
};

struct device_backend {
	const char *name;
	berth_memory memory;
	/* Is P in memory of this back end?  *DEVICE becomes the device. */
	bool (*find)(const void *p, int *device);
	/* Before join(): makes the card that the rank at place ME of N tells all
	 * others. */
	berth_result (*card)(int device, unsigned n, unsigned me,
			     unsigned char card[DEVICE_CARD_BYTES]);
	/* Begins to join.  CARDS has the cards of all N ranks.  *GROUP is set also
	 * after an error. */
	berth_result (*join)(int device, unsigned n, unsigned me,
			     const unsigned char *cards, void **group);
	/* BERTH_BUSY: not yet. */
	berth_result (*joined)(void *group);
	/* Can it do C?  All ranks of a group get the same answer. */
	bool (*takes)(const void *group, const struct coll *c);
	unsigned does; /* of enum device_does */
	/* Makes room of BYTES for operations with pieces, in place of the room
	 * before. */
	berth_result (*buffer)(void *group, size_t bytes);
	/* Makes *MARK, which stands for all that STREAM has now.  If READY is not NULL,
	 * it stands for all before that event instead.  *MARK is NULL if there is
	 * nothing to await. */
	berth_result (*mark)(int device, void *stream, void *ready, void **mark);
	void (*forget)(void *mark);
	/* Begins W.  An error is one of this rank alone. */
	berth_result (*start)(void *group, struct device_work *w);
	/* BERTH_BUSY: it still runs. */
	berth_result (*test)(void *group, struct device_work *w);
	/* Makes STREAM wait for the end of W, too. */
	berth_result (*follow)(void *group, struct device_work *w, void *stream);
	/* W is done and no longer needs anything. */
	void (*end)(void *group, struct device_work *w);
	/* Ends the works that run, without a result.  Nothing of the group is freed.
	 * No work is started after this. */
	void (*revoke)(void *group);
	/* Called when no work is under way. */
	void (*leave)(void *group);
};

/* The device back end of MEMORY, or NULL. */
const struct device_backend *device_of(berth_memory memory);
/* The kind of memory that P is in.  *DEVICE becomes its device. */
berth_memory device_find(const void *p, int *device);
/* Is there any device back end? */
extern bool device_is_there;
/* Adds a device back end, before the first operation.  For tests, which link the
 * objects. */
void device_register(const struct device_backend *b);

#endif
