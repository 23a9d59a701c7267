/* device.h - a way to do collectives on the memory of a device, for the ranks of one
 * group.  backend.h is that for the memory of the host.
 *
 * The ranks agree on the host before a work begins: all of them have called for the
 * same, and all start the works of their groups in one order (lib/core/works.h).  So no
 * work waits on a device for a rank that does not come.  A work has a beginning and an
 * end, and several are under way at a time.
 *
 * Calls are made one at a time over all groups of the process, but for find(), mark()
 * and forget(), which any thread makes.  Not one of them waits for another rank, nor
 * for a device: what runs there may wait for ranks that wait for a set whose thread
 * makes the next call here.  So memory is allocated and freed in the order of a stream
 * (cuMemFreeAsync(); cuMemFree() waits for all that runs). */
#ifndef BERTH_LIB_DEVICE_H
#define BERTH_LIB_DEVICE_H

#include <stdbool.h>

#include "lib/backend/coll.h"

enum { DEVICE_CARD_BYTES = 256 };

enum device_does { DEVICE_AVERAGE = 1, DEVICE_PRESCALE = 2, DEVICE_POSTSCALE = 4 };

struct device_work {
	/* N of them, done in their order.  One with pieces goes by way of the group's
	 * buffer: its IN and OUT mean nothing. */
	const struct coll *coll;
	size_t n;
	void *const *ready; /* NREADY marks: IN may be read after these */
	size_t nready;
	void *stream; /* waits for the work's end; BERTH_HOST_STREAM: none does */
	void *own;    /* of the back end, from start() to end() */
};

struct device_backend {
	const char *name;
	berth_memory memory;
	/* Is P in its memory?  *DEVICE: in that of which device. */
	bool (*find)(const void *p, int *device);
	/* Before join(): what the rank at place ME of N tells all others. */
	berth_result (*card)(int device, unsigned n, unsigned me,
			     unsigned char card[DEVICE_CARD_BYTES]);
	/* Begin to join: CARDS are those of all N.  *GROUP: also after an error. */
	berth_result (*join)(int device, unsigned n, unsigned me,
			     const unsigned char *cards, void **group);
	/* BERTH_BUSY: not yet. */
	berth_result (*joined)(void *group);
	/* Can it do C?  All ranks of a group come to the same. */
	bool (*takes)(const void *group, const struct coll *c);
	unsigned does; /* of enum device_does */
	/* Room of BYTES for what has pieces, in place of what there was. */
	berth_result (*buffer)(void *group, size_t bytes);
	/* Not before everything that STREAM has now, or what comes before the event
	 * READY, if that is not NULL.  *MARK: NULL if nothing is to be awaited. */
	berth_result (*mark)(int device, void *stream, void *ready, void **mark);
	void (*forget)(void *mark);
	/* Begin W.  An error is one of this rank alone. */
	berth_result (*start)(void *group, struct device_work *w);
	/* BERTH_BUSY: it still runs. */
	berth_result (*test)(void *group, struct device_work *w);
	/* STREAM waits for the end of W, too. */
	berth_result (*follow)(void *group, struct device_work *w, void *stream);
	/* W, which is done, needs nothing any more. */
	void (*end)(void *group, struct device_work *w);
	/* What runs ends, without a result; nothing of the group is freed.  Nothing is
	 * started any more. */
	void (*revoke)(void *group);
	/* No work is under way. */
	void (*leave)(void *group);
};

/* That of MEMORY; NULL: there is none. */
const struct device_backend *device_of(berth_memory memory);
/* The memory of P, and of which device. */
berth_memory device_find(const void *p, int *device);
/* Is there any at all? */
extern bool device_is_there;
/* A further one, before the first operation: for tests, which link the objects. */
void device_register(const struct device_backend *b);

#endif
