/* lane.h - one place where output goes: stdout, stderr, or both where they are the same
 * file.
 *
 * What is to be written is a queue of bytes, labels and all, that ends at about
 * LANE_QUEUE_BYTES; what came behind that is kept in pieces as the ranks wrote it, in
 * the order of arrival, and gets its labels when its turn comes: a line of one byte has
 * a label of 12, and the hosts' credit bounds only what they sent.  A piece takes no
 * more room than its credit, so that a lane holds no more than was granted. */
#ifndef BERTH_LAUNCHER_OUTPUT_OUT_QUEUE_H
#define BERTH_LAUNCHER_OUTPUT_OUT_QUEUE_H

#include "launcher/output/sink.h"

enum { LANE_QUEUE_BYTES = 262144 };

struct out_queue;

struct out_queue_events {
	/* Credit for N bytes of host HOST can go back: what they became was written. */
	void (*left)(struct out_queue *l, uint32_t host, size_t n);
	/* Some was written: out_queue_first() may have its turn. */
	void (*room)(struct out_queue *l);
	/* Nobody reads, or worse; once.  What waited is dropped, its credit went back.
	 */
	void (*broken)(struct out_queue *l, int error);
};

/* Bytes of one rank's stream that came one after the other.  COST is their credit: 1
 * for each byte, and the heads of their frames.  Stream 0 is runner's own and has none.
 */
struct out_queue_piece {
	uint32_t host, rank, stream, n, cost;
};

struct out_queue {
	struct sink sink;
	const struct out_queue_events *events;
	void *ctx;
	uint64_t queued, written;
	struct debt *debt; /* ring: debt[first..first+n) of cap */
	size_t first, n, cap;
	struct block *head, *tail; /* pieces that wait for room */
	size_t waiting;            /* bytes in them */
	bool terminal;
	int64_t open_line; /* stream whose unfinished line came last, -1: none */
	bool open_bar;     /* and it is a progress bar */
};

void out_queue_open(struct out_queue *l, struct event_base *base, int fd,
		    const struct out_queue_events *events, void *ctx);
void out_queue_free(struct out_queue *l);

/* Queue N bytes. */
void out_queue_put(struct out_queue *l, const void *bytes, size_t n);
/* P's credit goes back once all that is queued now was written. */
void out_queue_owe(struct out_queue *l, const struct out_queue_piece *p);
/* Nothing more may be queued now, or what came before must be first. */
bool out_queue_is_full(const struct out_queue *l);

/* Keep the N bytes of P until there is room. */
void out_queue_keep(struct out_queue *l, const struct out_queue_piece *p,
		    const void *bytes);
/* The oldest piece into P and its bytes, or NULL when there is none or no room. */
const char *out_queue_first(const struct out_queue *l, struct out_queue_piece *p);
/* The first P->n bytes of the oldest piece are queued; their credit into P->cost. */
void out_queue_took(struct out_queue *l, struct out_queue_piece *p);

#endif
