/* io.h - the ranks' standard streams: pipes and ptys on one side, frames on the
 * other.
 *
 * Output is read(2) straight behind the head of its frame in the send queue.  It is
 * read only while there is credit (bytes that the launcher granted) and the queue is
 * short; a stream that has data then waits its turn in a first-in-first-out list, so
 * no rank starves and nothing but output is ever held up.  Streams are read in the
 * order in which they became readable: what a rank writes to stdout and stderr by
 * turns, and not faster than we read, keeps its order.  Input is one queue for all
 * ranks that read it, each at its own place in it: what the slowest has taken is
 * granted to the launcher again.
 *
 * An interpreter that fails says so before it takes itself apart, which closes its
 * sockets and may last longer than the others, who fail because of that, need to
 * end: so the time at which a failure is read on stderr is kept.
 *
 * A process that exits closes its descriptors, the highest first, and can be reaped
 * only later; on a busy machine others, who fail because its sockets are closed, may
 * exit and be reaped in between (5 of 100 rings with os._exit(), 8 ranks on 2
 * cores).  So each rank holds the write end of a pipe, as descriptor IO_LIFE_FD and
 * for nothing else: when that is closed is when it began to die.  Children that it
 * leaves hold it as well, and then the time at which it was reaped has to do. */
#ifndef BERTH_AGENT_RANKS_IO_H
#define BERTH_AGENT_RANKS_IO_H

#include "common/buf.h"
#include "common/err.h"
#include "common/wire.h"

struct event;
struct event_base;

enum {
	IO_QUEUE_BYTES = 262144, /* output waits when the send queue is this long */
	IO_INPUT_BYTES = WIRE_INPUT_MAX, /* input granted in advance */
	IO_FAILING_MS = 2000, /* from what a rank says of its failure to its end */
	IO_DYING_MS = 400,    /* from the end of its life pipe to its own */
	IO_LIFE_FD = 1023, /* above all that a program opens, or the highest it may */
	IO_CHILD_FDS = 4   /* 0, 1, 2 and that one */
};

struct io_stream { /* stdout or stderr of a rank */
	struct io *io;
	struct event *event;
	int fd; /* -1: at its end */
	uint32_t rank, stream;
	bool waiting, large, pty;
	uint64_t failing_ns; /* when a failure was read here; 0: none */
	struct io_stream *next;
};

struct io_rank {
	struct io *io;
	struct io_stream out, err;
	struct event *in_event; /* stdin accepts more */
	int in;                 /* -1: closed, or never asked for */
	uint64_t in_at;         /* bytes of all input that it has taken */
	struct event *life_event;
	int life;          /* read end of the life pipe, -1: at its end */
	uint64_t dying_ns; /* when it came to its end; 0: it did not */
};

/* All streams of one job.  The owner sets base, out, epoch and credit. */
struct io {
	struct event_base *base;
	struct buf *out; /* the session's send queue */
	uint32_t epoch;
	uint64_t credit;
	size_t open;                    /* streams not at their end */
	struct io_stream *first, *last; /* waiting for credit or room */
	struct buf input;
	uint64_t input_at; /* bytes of all input in front of the queue */
	bool input_end;
	uint32_t input_owed; /* taken by the ranks, not granted again yet */
	struct io_rank **readers;
	size_t nreaders;
};

/* Make the streams of rank RANK.  CHILD gets the descriptors for it: the caller
 * closes them with io_close_child().  PTY: stdout is a raw pty.  0, or -1 with E. */
int io_open(struct io_rank *r, struct io *io, uint32_t rank, bool pty, bool reads_stdin,
	    int child[IO_CHILD_FDS], struct err *e);
void io_close_child(int child[IO_CHILD_FDS]);

/* Tell the launcher how much input it may send; once, after all ranks are open. */
void io_grant(struct io *io);

/* More output may be sent. */
void io_credit(struct io *io, uint32_t bytes);
/* The send queue has become shorter. */
void io_room(struct io *io);
/* Bytes for stdin; none: its end. */
void io_input(struct io *io, const void *data, size_t n);

/* Read what R's streams hold at this moment, as far as credit goes: what a rank wrote
 * before it died goes out before the news. */
void io_drain(struct io_rank *r);
/* Nobody of ours can write to R any more: what is not at its end after a last look is
 * held by a stranger, and closed.  A stream that has data but no credit stays: call
 * again. */
void io_finish(struct io_rank *r);

/* When R said that it fails, within the last IO_FAILING_MS; 0: it did not. */
uint64_t io_failing_ns(const struct io_rank *r, uint64_t now_ns);

/* When R, reaped at NOW_NS, began to die, as far as anybody can tell. */
uint64_t io_dying_ns(const struct io_rank *r, uint64_t now_ns);

void io_free_rank(struct io_rank *r);
void io_free(struct io *io);

#endif
