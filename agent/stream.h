/* stream.h - the stream to the launcher: two queues of bytes, and its silence.
 *
 * Frames come in on descriptor 0 and go out on 1, which may be two pipes (sshd) or one
 * socket (local, or a connection that is sealed).  A message is packed into s->out; the
 * next turn sends it.  A stream that ends or stays silent too long means a lost
 * launcher.  While 4 MiB wait in the queue nothing is read, so that answers do not fill
 * our memory: a launcher that does not read is lost, too, after its time. */
#ifndef BERTH_AGENT_STREAM_H
#define BERTH_AGENT_STREAM_H

#include "common/key.h"
#include "common/wire.h"

struct event;
struct event_base;

struct stream {
	struct event_base *base;
	struct buf in, out;
	struct key_side *side; /* NULL: the stream is not sealed */
	struct buf sealed_in, sealed_out;
	struct event *readable, *writable, *silence;
	bool suspended; /* the launcher is stopped: its silence means nothing */
	uint64_t heard_ms, looked_ms;
	/* The launcher gives a host up after this silence, and an agent the launcher
	 * 15 s later; 0: never.  The owner sets it. */
	uint32_t patience_ms;
	bool wide; /* the pipe we write to was enlarged */
	bool lost; /* it has ended, or was silent too long */
};

/* Take the stream, send WIRE_MAGIC.  BASE and SIDE are the caller's; SIDE may be
 * NULL. */
void stream_begin(struct stream *s, struct event_base *base, struct key_side *side);
/* Send, then wait for events once: what has come is in s->in. */
void stream_turn(struct stream *s);
/* Try to send what is in the queue, without waiting. */
void stream_send(struct stream *s);
/* Send all that is in the queue, waiting MS milliseconds at most. */
void stream_send_all(struct stream *s, unsigned ms);
void stream_log(struct stream *s, enum log_level level, const struct err *e);
void stream_end(struct stream *s);

#endif
