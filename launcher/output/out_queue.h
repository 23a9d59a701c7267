/* out_queue.h - the output queue of stdout, of stderr, or of both if they are the same
 * file.
 *
 * Up to about OUT_QUEUE_BYTES are queued for write(2), with their labels.  Further
 * bytes wait in chunks, as the ranks wrote them and in the order of arrival, and get
 * their labels when there is room.  A line of one byte has a label of 12, while the
 * credit of the hosts limits only what they sent.  A chunk takes no more room than its
 * credit, so that a queue holds no more than was granted. */
#ifndef BERTH_LAUNCHER_OUTPUT_OUT_QUEUE_H
#define BERTH_LAUNCHER_OUTPUT_OUT_QUEUE_H

#include "launcher/output/lines.h"
#include "launcher/output/sink.h"

enum { OUT_QUEUE_BYTES = 262144 };

struct out_queue;

struct out_queue_events {
	/* Credit for N bytes of host HOST can go back: their output was written. */
	void (*left)(struct out_queue *q, uint32_t host, size_t n);
	/* Some bytes were written: out_queue_first() may return the next chunk. */
	void (*room)(struct out_queue *q);
	/* The file has no reader, or cannot be written to; called once.  The chunks
	 * that waited are dropped, and their credit has gone back. */
	void (*broken)(struct out_queue *q, int error);
};

/* N bytes of one rank's stream that came one after the other.  COST is their credit: 1
 * for each byte, and the heads of their frames.  Stream 0 is runner's own and has no
 * credit. */
struct out_chunk {
	uint32_t host, rank, stream, n, cost;
};

struct out_queue {
	struct sink sink;
	const struct out_queue_events *events;
	void *ctx;
	uint64_t written; /* bytes so far; queued so far: these and the sink's */
	struct out_credit *credit; /* ring: credit[first..first+n) of cap */
	size_t first, n, cap;
	struct out_block *head, *tail; /* chunks that wait for room */
	size_t waiting;                /* bytes in them */
	struct lines lines;            /* what writes into the sink's queue */
};

void out_queue_open(struct out_queue *q, struct event_base *base, int fd,
		    const struct out_queue_events *events, void *ctx);
void out_queue_free(struct out_queue *q);

/* Return C's credit once all bytes that are queued now were written. */
void out_queue_credit(struct out_queue *q, const struct out_chunk *c);
/* Whether nothing more may be queued now, because the queue is long or chunks wait. */
bool out_queue_is_full(const struct out_queue *q);
/* Has the queue itself room for more, whatever waits? */
bool out_queue_has_room(const struct out_queue *q);

/* Keep the N bytes of C until there is room. */
void out_queue_keep(struct out_queue *q, const struct out_chunk *c, const void *bytes);
/* The oldest chunk into C, and its bytes.  NULL if none waits or there is no room. */
const char *out_queue_first(const struct out_queue *q, struct out_chunk *c);
/* The first C->n bytes of the oldest chunk are queued.  Their credit into C->cost. */
void out_queue_drop(struct out_queue *q, struct out_chunk *c);

#endif
