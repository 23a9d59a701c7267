/* device.h - a way to do collectives on the memory of a device, for the ranks of one
 * group.  backend.h has the same for the memory of the host.
 *
 * The ranks agree on the host before a work begins.  All of them have called for the
 * same, and all start the works of their groups in one order (lib/core/works.h).  A
 * device runs the works of all its groups in the order of their starts: they are on one
 * stream.  (On several streams they would run as their marks pass, and two ranks could
 * wait for each other.)  So no work waits on a device for a rank that does not come.  A
 * work has a beginning and an end, and several are under way at a time.
 *
 * look(), find(), mark(), share() and forget() are for any thread, and wait for
 * nothing.
 *
 * card(), join(), joined(), leave() and stage() are for the thread that holds the
 * group's set, or for one that it waits for.  They may wait for the device, but not for
 * other ranks.
 *
 * begin(), begun(), test(), follow(), end(), revoke() and says() are called one at a
 * time over all groups of the process.  They wait neither for another rank nor for a
 * device: works that run there may wait for a set whose thread makes the next call.  So
 * memory is allocated and freed in the order of the stream, by cuMemFreeAsync().
 * cuMemFree() waits for all that runs.
 *
 * takes() is pure.
 *
 * What takes() refuses, or ranks that can't join, go by way of the host (staged.h).  A
 * stage has the room for that in the host's memory, and copies between it and the
 * device in an order of its own, so that none of its copies waits for those of another
 * stage.  copy(), unstage(), passed() and await() are for any thread, one at a time for
 * each stage, and wait for nothing. */
#ifndef BERTH_LIB_DEVICE_H
#define BERTH_LIB_DEVICE_H

#include <stdbool.h>

#include "lib/backend/coll.h"

enum { DEVICE_CARD_BYTES = 256, DEVICE_WHY_BYTES = 256 };

/* How arrays in a device's memory go, as the user says: by NCCL, and by the host where
 * that can't be; by the host; by NCCL or not at all. */
enum device_way { DEVICE_NCCL, DEVICE_HOST, DEVICE_ONLY_NCCL };

/* A user has chosen this for all devices. */
struct device_options {
	const char *nccl; /* the file of NCCL's library; NULL: it is found */
	bool by_host;     /* the ranks are not to be joined */
};

struct device_copy {
	void *to;
	const void *from;
	size_t bytes;
};

struct device_work {
	/* N operations, done in their order.  IN and OUT of one with pieces mean
	 * nothing.  Arrays may lie as lib/berth.h lets them: in place, or apart. */
	const struct coll *coll;
	size_t n;
	void *const *ready; /* NREADY marks: IN may be read after these */
	size_t nready;
	bool runs; /* test() sets it: the marks have passed */
	void *own; /* the back end's, from begin() to end() */
};

/* A rank joins at place ME of N, which have these ranks of the job and these cards. */
struct device_join {
	int device;
	unsigned n, me;
	const unsigned *rank;
	const unsigned char *cards; /* N of DEVICE_CARD_BYTES each */
};

struct device_backend {
	const char *name;
	berth_memory memory;
	/* When a world begins: can the process have such memory by now?  Until mark()
	 * or another look() finds it, find() finds none. */
	bool (*look)(void);
	/* Is P in memory of this back end?  *DEVICE becomes the device. */
	bool (*find)(const void *p, int *device);
	/* *P is BYTES of DEVICE's memory, zero, aligned to 64 bytes.  After an error
	 * *WHY is the reason, in words.  It may wait for the device, and so may
	 * discard(), which frees P. */
	berth_result (*alloc)(int device, size_t bytes, void **p, const char **why);
	void (*discard)(void *p, int device);
	/* Before join(): makes the card that the rank at place ME of N tells all
	 * others.  BERTH_UNSUPPORTED: the rank can't be joined, but it has the device.
	 * After any error WHY is the reason, in words. */
	berth_result (*card)(const struct device_options *options, int device,
			     unsigned n, unsigned me,
			     unsigned char card[DEVICE_CARD_BYTES],
			     char why[DEVICE_WHY_BYTES]);
	/* Begins to join.  *GROUP may be set after an error, too. */
	berth_result (*join)(const struct device_join *j, void **group,
			     char why[DEVICE_WHY_BYTES]);
	/* BERTH_BUSY: not yet. */
	berth_result (*joined)(void *group);
	/* NULL, or why it can't do C.  All ranks of a group get the same answer. */
	const char *(*takes)(const void *group, const struct coll *c);
	/* Makes *MARK, which stands for all that STREAM has now.  If READY is not NULL,
	 * it stands for all before that event instead.  *MARK is NULL if there is
	 * nothing to await.  After an error *WHY is the reason, in words. */
	berth_result (*mark)(int device, void *stream, void *ready, void **mark,
			     const char **why);
	/* MARK stands for another operation, too: forget() comes once more. */
	void (*share)(void *mark);
	void (*forget)(void *mark);
	/* Begins W.  BERTH_BUSY: it is on its way to the device, which may wait for
	 * other ranks; nothing is started in this process until begun() returns
	 * something else.  After an error, which is one of this rank alone, W has
	 * ended. */
	berth_result (*begin)(void *group, struct device_work *w);
	berth_result (*begun)(void *group, struct device_work *w);
	/* BERTH_BUSY: it still runs, or does not run yet. */
	berth_result (*test)(void *group, struct device_work *w);
	/* STREAM, as the calling thread means it, waits for the end of W, too. */
	berth_result (*follow)(void *group, struct device_work *w, void *stream);
	/* W is done and no longer needs anything. */
	void (*end)(void *group, struct device_work *w);
	/* Ends the works that run, or are on their way, without a result.  Nothing of
	 * the group is freed.  No work is started after this. */
	void (*revoke)(void *group);
	/* After test() or begun() has failed: the end of what revoke() ended hangs, and
	 * W is given up.  Its arrays stay in use.  NULL: that can't be. */
	bool (*hangs)(const void *group);
	/* Why the last call failed, in words, or NULL. */
	const char *(*says)(const void *group);
	/* Writes to TEXT what does the works, with its version. */
	void (*tells)(char text[DEVICE_WHY_BYTES]);
	/* Called when no work is under way.  GROUP ends by itself: that may wait for
	 * other ranks, and nobody waits for it here. */
	void (*leave)(void *group);
	/* Makes a stage of DEVICE with a *ROOM of BYTES.  After an error *WHY is the
	 * reason, in words. */
	berth_result (*stage)(int device, size_t bytes, void **stage, void **room,
			      const char **why);
	/* Nothing of STAGE is used any more, but copies may still be under way. */
	void (*unstage)(void *stage);
	/* The device makes N copies, behind NREADY marks and all copies of STAGE
	 * before.  *MARK, if not NULL, becomes a mark of the end of all these. */
	berth_result (*copy)(void *stage, const struct device_copy *copy, size_t n,
			     void *const *ready, size_t nready, void **mark);
	/* BERTH_BUSY: the device has not done all that MARK stands for. */
	berth_result (*passed)(void *mark);
	/* STREAM, as the calling thread means it, waits for MARK. */
	berth_result (*await)(void *mark, void *stream);
};

#endif
