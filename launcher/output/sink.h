/* sink.h - write to a file descriptor without blocking the loop, and without setting
 * O_NONBLOCK on a description that other programs share.
 *
 * A pipe or terminal is opened again through /proc/self/fd.  A socket is written to
 * with MSG_DONTWAIT, a regular file with a plain write(2).  If a pipe cannot be opened
 * again, poll(2) says when PIPE_BUF bytes fit. */
#ifndef BERTH_LAUNCHER_OUTPUT_SINK_H
#define BERTH_LAUNCHER_OUTPUT_SINK_H

#include "common/buf.h"

struct event_base;
struct event;

struct sink_events {
	void (*written)(void *ctx, size_t n); /* after each write */
	void (*broken)(void *ctx, int error); /* once; the queue was dropped */
};

struct sink {
	int fd;
	enum { SINK_FILE, SINK_NONBLOCK, SINK_SOCKET, SINK_POLL } how;
	bool own, broken;
	bool wide; /* its pipe was enlarged, if it is one */
	struct buf queue;
	struct event *writable;
	const struct sink_events *events;
	void *ctx;
};

void sink_open(struct sink *s, struct event_base *base, int fd,
	       const struct sink_events *events, void *ctx);
/* Write as much of the queue as fits now.  The loop writes the rest. */
void sink_push(struct sink *s);
void sink_free(struct sink *s);

#endif
