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
#include "lib/core/set.h"

struct bounces;
struct message;

/* A message's buffer. */
struct bounce {
	const struct device_backend *back; /* NULL: there is none */
	void *ready;                       /* what OUT or IN has to await; or NULL */
	void *stage, *room;
	const char *why; /* of an error */
};

struct bounce_hooks {
	/* It is M's turn, and its data are where they are sent from. */
	void (*post)(struct message *m);
	void (*over)(struct message *m, berth_result rc);
	/* Is M to end early, and how? */
	berth_result (*look)(const struct message *m);
};

/* HOOKS stay the caller's.  NULL: out of memory. */
struct bounces *bounces_open(const struct bounce_hooks *hooks);
void bounces_close(struct bounces *b);

/* M, which has none, gets a buffer of BYTES.  It may wait for the device. */
berth_result bounce_begin(struct message *m, uint64_t bytes);
void bounce_end(struct message *m);

/* Must M, which sends, wait for a copy: its own, or an earlier one? */
bool bounce_is_needed(struct bounces *b, const struct message *m);
/* M, which sends BYTES, is copied if it has a buffer, and posted when it is its turn. */
berth_result bounce_send(struct bounces *b, struct message *m, uint64_t bytes);
/* M got BYTES, which go to OUT: M is over when they are there. */
berth_result bounce_give(struct bounces *b, struct message *m, void *out,
			 uint64_t bytes);
/* Posts and ends what copies have come to.  Did anything move?  One thread at a time. */
bool bounce_look(struct bounces *b);
/* The time of the next look, after NOW; 0: no copy is under way. */
uint64_t bounce_next_look(const struct bounces *b, uint64_t now);

#endif
