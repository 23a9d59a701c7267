/* sink.h - a file descriptor of ours written without ever blocking the loop, and
 * without setting O_NONBLOCK on a description that other programs share.
 *
 * A pipe or terminal is opened anew through /proc/self/fd, a socket written with
 * MSG_DONTWAIT, a regular file just written.  Where a pipe can't be opened anew,
 * poll(2) says when PIPE_BUF bytes fit. */
#ifndef BERTH_LAUNCHER_OUTPUT_SINK_H
#define BERTH_LAUNCHER_OUTPUT_SINK_H

#include "common/buf.h"

struct event_base;
struct event;

struct sink_events {
	void (*written)(void *ctx, size_t n); /* after each write */
	void (*broken)(void *ctx, int error); /* once; what is queued is dropped */
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
/* Write what is queued as far as it goes now; the rest follows from the loop. */
void sink_push(struct sink *s);
void sink_free(struct sink *s);

#endif
