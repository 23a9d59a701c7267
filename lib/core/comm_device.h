/* comm_device.h - operations of a comm on the memory of devices: agreed on by the ranks
 * on the host, by the comm's back end, then started (works.h).
 *
 * The agreement is an allreduce of 8 bytes in the place of the operation.  Its
 * signature is the operation's, so that a rank which is at something else is found as
 * for any operation.  If a rank is in several sets, a second one of 8 bytes is for the
 * time.  The ranks join on their devices at the first operation. */
#ifndef BERTH_LIB_COMM_DEVICE_H
#define BERTH_LIB_COMM_DEVICE_H

#include "lib/core/works.h"

/* Arrays that a work has room for. */
struct work_room {
	size_t colls, pieces, ready, requests;
};

/* A work of OP, which has begun nothing; one reference.  NULL: out of memory. */
struct work *comm_device_work(struct comm *c, const struct op *op,
			      struct work_room room);
/* OP is another operation of W, whose time counts, too. */
void comm_device_limit(struct work *w, const struct op *op);
/* Agree on W, with SIGNATURE, and start it, or have it started.  DEADLINE_NS is that of
 * the start; then W may take as long as its operations say, from when its marks have
 * passed.  BERTH_UNSUPPORTED is common to all ranks. */
berth_result comm_device_begin(struct comm *c, struct work *w, uint32_t signature,
			       uint64_t deadline_ns);
/* OP as COLL says, as c->work, which is the caller's. */
berth_result comm_device_run(struct comm *c, const struct op *op,
			     const struct coll *coll, uint64_t deadline_ns);
/* Before OP begins, in the thread that calls for it: what it has to await.  BEFORE, or
 * NULL, is an operation that was marked in the same call: on one stream the two have
 * one mark.  After an error *WHY is the reason, in words. */
berth_result comm_device_mark(struct comm *c, struct op *op, const struct op *before,
			      const char **why);
/* The device of this process, as its last operation had it; else 0. */
int comm_device_last(void);
/* How operations on devices are done, where one has been: a line to TEXT of BYTES, cut
 * to fit.  Returns its whole length. */
size_t comm_device_algorithms(const struct comm *c, char *text, size_t bytes);
/* It does not begin. */
void comm_device_forget(struct op *op);
/* This rank leaves: is all that was agreed on over?  It comes to its end where all
 * other ranks do it, since their streams may wait for it.  Else, or after a second for
 * which no stream of this rank's waits, it is revoked.  The holder of the set's WORK
 * calls it until it is true. */
bool comm_device_ends(struct comm *c);
/* True once: others may run what this rank has not started, or has revoked. */
bool comm_device_was_cut(struct comm *c);
/* In front of comm_close(). */
void comm_device_close(struct comm *c);

#endif
