/* bounce.h - messages of a device's memory, by way of a buffer in the host's memory (a
 * bounce buffer).
 *
 * The device copies what a rank sends there, behind what the caller's stream has; then
 * the message is posted.  It copies what a rank receives from there.  The thread that
 * makes progress for all messages looks for the ends of these copies.
 *
 * Sends of one rank to another with one tag stay in their order: one behind such a copy
 * waits for it, also if it sends the host's memory. */
#ifndef BERTH_LIB_BOUNCE_H
#define BERTH_LIB_BOUNCE_H

#include "lib/backend/device.h"
#include "lib/core/op.h"
#include "lib/core/set.h"

struct bounces;

/* The way of a message. */
struct bounce {
	const struct op *op;
	const struct comm *comm;
	const struct device_backend *back; /* NULL: the host's memory */
	void *ready;                       /* what IN or OUT has to await; or NULL */
	void *stage, *room;                /* the buffer; NULL: there is none */
	const char *why;                   /* of an error */
};

struct bounce_hooks {
	/* It is B's turn, and its data are where they are sent from. */
	void (*post)(struct bounce *b);
	void (*over)(struct bounce *b, berth_result rc);
	/* Is B to end early, and how? */
	berth_result (*look)(const struct bounce *b);
};

/* HOOKS stay the caller's.  NULL: out of memory. */
struct bounces *bounces_open(const struct bounce_hooks *hooks);
void bounces_close(struct bounces *all);

/* B, which has none, gets a buffer of BYTES.  It may wait for the device. */
berth_result bounce_begin(struct bounce *b, uint64_t bytes);
void bounce_end(struct bounce *b);

/* Must B, which sends, wait for a copy: its own, or an earlier one? */
bool bounce_is_needed(struct bounces *all, const struct bounce *b);
/* B, which sends BYTES, is copied if it has a buffer, and posted when it is its
 * turn. */
berth_result bounce_send(struct bounces *all, struct bounce *b, uint64_t bytes);
/* B got BYTES, which go to OUT: it is over when they are there. */
berth_result bounce_give(struct bounces *all, struct bounce *b, void *out,
			 uint64_t bytes);
/* Posts and ends what copies have come to.  Did anything move?  One thread at a time,
 * and another one while a hook of the first has not returned. */
bool bounce_look(struct bounces *all);
/* The time of the next look, after NOW; 0: no copy is under way. */
uint64_t bounce_next_look(const struct bounces *all, uint64_t now);

#endif
