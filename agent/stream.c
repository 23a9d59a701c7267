#include "agent/stream.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/loop.h"

enum {
	READ_BYTES = 131072,
	WRITE_BYTES = 1 << 20,
	WIDE_BYTES = 65536,
	PIPE_BYTES = 1 << 20,
	EXTRA_MS = 15000,
	/* Before a job there is nothing to protect, and other hosts may be slow to come
	   up. */
	PATIENCE_MS = 600000,
	LOOK_S = 5,
	UNREAD_BYTES = 4 << 20
};

static void stream_on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	struct buf *in = s->side ? &s->sealed_in : &s->in;
	ssize_t n = read(fd, buf_reserve(in, READ_BYTES), READ_BYTES);

	(void)what;
	if (n > 0) {
		in->len += (size_t)n;
		if (s->side && key_open(s->side, in, &s->in))
			s->lost = true;
		s->heard_ms = clock_ms();
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		s->lost = true;
	}
}

static void stream_on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg; /* each turn sends */
}

/* The buffer that is to be written next. */
static struct buf *next_out(struct stream *s)
{
	const size_t most = s->out.len < WRITE_BYTES ? s->out.len : WRITE_BYTES;

	if (!s->side)
		return &s->out;
	if (!s->sealed_out.len && most) {
		key_seal(s->side, &s->sealed_out, buf_head(&s->out), most);
		buf_drop(&s->out, most);
	}
	return &s->sealed_out;
}

void stream_send(struct stream *s)
{
	struct buf *out;

	/* Much output gets a larger pipe: fewer turns between us and sshd. */
	if (!s->wide && s->out.len >= WIDE_BYTES) {
		s->wide = true;
		fcntl(STDOUT_FILENO, F_SETPIPE_SZ, PIPE_BYTES); /* no pipe: no harm */
	}
	while ((out = next_out(s))->len) {
		size_t most = out->len < WRITE_BYTES ? out->len : WRITE_BYTES;
		ssize_t n = write(STDOUT_FILENO, buf_head(out), most);

		if (n > 0) {
			buf_drop(out, (size_t)n);
		} else if (errno == EAGAIN) {
			loop_watch(s->writable);
			return;
		} else if (errno != EINTR) {
			buf_drop(&s->out, s->out.len);
			buf_drop(&s->sealed_out, s->sealed_out.len);
			s->lost = true;
			return;
		}
	}
}

void stream_send_all(struct stream *s, unsigned ms)
{
	uint64_t until = clock_ms() + ms, now;

	for (stream_send(s);
	     s->out.len + s->sealed_out.len && (now = clock_ms()) < until;
	     stream_send(s)) {
		struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };

		poll(&p, 1, (int)(until - now));
	}
}

/* If this process itself was stopped, the launcher's messages are still to be read:
 * begin to count anew. */
static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	uint64_t now = clock_ms();

	(void)fd;
	(void)what;
	if (s->suspended || now - s->looked_ms > 2000 * LOOK_S)
		s->heard_ms = now;
	s->looked_ms = now;
	if (s->patience_ms && now - s->heard_ms > EXTRA_MS + (uint64_t)s->patience_ms)
		s->lost = true;
}

void stream_begin(struct stream *s, struct event_base *base, struct key_side *side)
{
	uint64_t now = clock_ms();

	*s = (struct stream){ .base = base,
			      .side = side,
			      .heard_ms = now,
			      .looked_ms = now,
			      .patience_ms = PATIENCE_MS };
	fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
	fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
	s->readable = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST,
				stream_on_readable, s);
	s->writable = event_new(base, STDOUT_FILENO, EV_WRITE, stream_on_writable, s);
	s->silence = event_new(base, -1, EV_PERSIST, on_look, s);
	loop_watch(s->readable);
	loop_after_ms(s->silence, LOOK_S * 1000);
	buf_add(&s->out, WIRE_MAGIC, WIRE_MAGIC_BYTES);
}

void stream_turn(struct stream *s)
{
	stream_send(s);
	if (s->lost)
		return;
	if (s->out.len > UNREAD_BYTES)
		event_del(s->readable);
	else if (!event_pending(s->readable, EV_READ, NULL))
		event_add(s->readable, NULL);
	event_base_loop(s->base, EVLOOP_ONCE);
}

void stream_log(struct stream *s, enum log_level level, const struct err *e)
{
	struct wire_log m = { level, e->id ? err_name(e->id) : "", e->text, e->hint };

	wire_pack_log(&s->out, &m);
}

void stream_end(struct stream *s)
{
	buf_free(&s->in);
	buf_free(&s->out);
	buf_free(&s->sealed_in);
	buf_free(&s->sealed_out);
	event_free(s->readable);
	event_free(s->writable);
	event_free(s->silence);
}
