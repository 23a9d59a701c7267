/* session.h - the stream to the launcher: its messages become calls, ours go into one
 * queue.
 *
 * Frames come in on descriptor 0 and go out on 1, which may be two pipes (sshd) or one
 * socket (local).  Whoever has something to say packs it into s->out; the loop sends it
 * after each turn.  A stream that ends, breaks the protocol or stays silent too long is
 * a lost launcher, told in a last `log`.  Heartbeats, suspend and resume are answered
 * here.  Limits: a job's frames WIRE_JOB_BYTES_MAX, else it is refused; while 4 MiB
 * wait in the queue nothing more is read, which is a lost launcher after its time. */
#ifndef BERTH_AGENT_STREAM_H
#define BERTH_AGENT_STREAM_H

#include "common/wire.h"

struct event;
struct event_base;

/* What the messages do: main.c.  JOB and APPS stay valid until the next job. */
struct stream_calls {
	void (*job)(void *ctx, const struct wire_job *job, const struct wire_app *apps,
		    size_t napps);
	void (*start)(void *ctx);
	void (*input)(void *ctx, const void *data, size_t n); /* n 0: end of file */
	void (*credit)(void *ctx, uint32_t bytes);
	void (*signal)(void *ctx, int signo, bool tree);
	void (*end)(void *ctx, uint32_t grace_ms);
	void (*sweep)(void *ctx, const char *job_id);
	/* world, all, lost, look: 0, or -1 with E */
	int (*library)(void *ctx, const struct wire_frame *f, struct err *e);
	void (*bye)(void *ctx);
	void (*lost)(void *ctx);
	void (*turn)(void *ctx); /* after each turn of the loop */
};

struct stream {
	struct event_base *base; /* the owner's */
	const struct stream_calls *calls;
	void *ctx;
	struct buf in, out;
	struct event *readable, *writable, *silence;
	struct kept *kept; /* copies of app and job frames */
	size_t nkept, kept_bytes;
	struct wire_job job;
	struct wire_app *app;
	size_t napp;
	uint32_t epoch; /* of the current or last job */
	bool busy; /* a job is here: no other may come (the owner says when it is over)
		    */
	bool suspended;
	uint64_t heard_ms, looked_ms;
	uint32_t patience_ms; /* silence that ends it, 0: none does */
	bool wide;            /* the pipe we write to was enlarged */
	bool done;
};

/* Take the stream, send WIRE_MAGIC.  The owner sets base, calls and ctx. */
void stream_begin(struct stream *s);
/* Until stream_stop(). */
void stream_loop(struct stream *s);
void stream_stop(struct stream *s);
/* Try to send what is in the queue, without waiting. */
void stream_send(struct stream *s);
/* Send all that is in the queue, waiting MS milliseconds at most. */
void stream_send_all(struct stream *s, unsigned ms);
void stream_log(struct stream *s, enum log_level level, const struct err *e);
/* The launcher broke the protocol: say so and count it as lost. */
void stream_refuse(struct stream *s, const struct err *e);
void stream_end(struct stream *s);

#endif
