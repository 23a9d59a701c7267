/* io.h - the ranks' standard streams: pipes and ptys on one side, frames on the other.
 *
 * Output is read(2) straight behind the head of its frame in the send queue.  It is
 * read only while there is credit (bytes that the launcher granted) and the queue is
 * short.  Otherwise a stream that has data waits in a first-in-first-out list, so no
 * rank starves and only output is ever delayed.  Streams are read in the order in which
 * they became readable: what a rank writes to stdout and stderr in turns keeps its
 * order, unless the rank writes faster than we read.
 *
 * Input is one queue for all ranks that read it.  Each has its own place in it.  The
 * launcher is granted again what the slowest reader has taken. */
#ifndef BERTH_AGENT_RANKS_IO_H
#define BERTH_AGENT_RANKS_IO_H

#include <sys/ioctl.h>
#include <sys/queue.h>

#include "agent/ranks/exit_time.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/wire.h"

enum {
	IO_QUEUE_BYTES = 262144, /* output waits when the send queue is this long */
	IO_CHILD_FDS = 4         /* 0, 1, 2 and the liveness pipe */
};

struct io_stream { /* stdout or stderr of a rank */
	struct io *io;
	struct exit_time *exit; /* of a stderr; else NULL */
	struct event *event;
	int fd; /* -1: at its end */
	uint32_t rank, stream;
	bool waiting, large, pty;
	STAILQ_ENTRY(io_stream) next; /* waiting */
};

/* NCCL's log of a rank: a pipe that no process inherits.  NCCL opens it by its path, so
 * each of its lines comes as a whole, and none of the program's stands between;
 * by stdout they come in blocks, as stdio has them.  We hold its writing end, too: the
 * log has no end before io_log_finish(). */
struct io_log {
	struct io_stream stream;
	int writer;
	/* "/proc/PID/fd/N"; "": not open yet; "-": it could not be opened */
	char path[48];
};

struct io_rank {
	struct io *io;
	struct io_stream out, err;
	struct exit_time exit;
	struct event *in_event; /* stdin accepts more */
	int in;                 /* -1: closed, or never asked for */
	uint64_t in_at;         /* bytes of all input that it has taken */
};

/* All streams of one job.  The owner sets base, out, epoch and credit, and initialises
 * waiting. */
struct io {
	struct event_base *base;
	struct buf *out; /* the agent's send queue */
	uint32_t epoch;
	uint64_t credit;
	struct winsize window;                      /* of each pty */
	size_t open;                                /* streams not at their end */
	STAILQ_HEAD(io_waiting, io_stream) waiting; /* for credit or room */
	struct buf input;
	uint64_t input_at; /* bytes of all input in front of the queue */
	bool input_end, granted;
	uint32_t input_owed; /* taken by the ranks, not granted again yet */
	struct io_rank **readers;
	size_t nreaders;
};

/* Make the streams of rank RANK.  CHILD gets the descriptors for it: the caller
 * closes them with io_close_child().  PTY: stdout is a raw pty.  0, or -1 with E. */
int io_open(struct io_rank *r, struct io *io, uint32_t rank, bool pty, bool reads_stdin,
	    int child[IO_CHILD_FDS], struct err *e);
void io_close_child(int child[IO_CHILD_FDS]);

/* R's pty, if it has one, gets the size of its io.  Returns whether it has one. */
bool io_resize(const struct io_rank *r);

/* Tell the launcher how much input it may send, after all ranks are open.  A later call
 * tells nothing. */
void io_grant(struct io *io);

/* More output may be sent. */
void io_credit(struct io *io, uint32_t bytes);
/* The send queue has become shorter. */
void io_room(struct io *io);
/* Bytes for stdin; none: its end.  0, or -1 with E if they are more than was
 * granted. */
int io_input(struct io *io, const void *data, size_t n, struct err *e);

/* Send bytes of the file FD from AT on as output of RANK, in one frame, as far as
 * credit and room go.  Returns how many; 0 at the end, too. */
size_t io_send_file(struct io *io, int fd, uint64_t at, uint32_t rank, uint32_t stream);

/* Show TEXT as if rank RANK had written it to STREAM.  False: there is no credit. */
bool io_say(struct io *io, uint32_t rank, uint32_t stream, const char *text);

/* Read what R's streams hold at this moment, as far as credit goes: what a rank wrote
 * before it exited goes out before `exited`. */
void io_drain(struct io_rank *r);
/* No process of ours can write to R any more.  A stream that is not at its end after a
 * last read is held by a process of another job, and is closed.  A stream that has data
 * but no credit stays: call again. */
void io_finish(struct io_rank *r);

/* NCCL's log of rank RANK, with {0} in L before the first call.  One that is open
 * stays. */
void io_log_open(struct io_log *l, struct io *io, uint32_t rank);
/* As io_drain() and io_finish(), for L. */
void io_log_drain(struct io_log *l);
void io_log_finish(struct io_log *l);
bool io_log_is_over(const struct io_log *l);
void io_log_free(struct io_log *l);

/* R has no stream of output that is open. */
bool io_is_over(const struct io_rank *r);

void io_free_rank(struct io_rank *r);
void io_free(struct io *io);

#endif
