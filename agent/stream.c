#include "agent/stream.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/job.h"
#include "common/loop.h"

enum {
	READ_BYTES = 131072,
	WRITE_BYTES = 1 << 20,
	WIDE_BYTES = 65536,
	PIPE_BYTES = 1 << 20,
	/* The launcher gives a silent agent up first; only then the agent follows. */
	EXTRA_MS = 15000,
	/* Before a job there is nothing to protect, and other hosts may be slow to come
	   up. */
	PATIENCE_MS = 600000,
	LOOK_S = 5,
	/* A launcher reads whatever comes; while one does not, it is not heard either:
	 * answers would fill our memory. */
	DEAF_BYTES = 4 << 20
};

/* A frame's payload that outlives the input buffer. */
struct kept {
	void *bytes;
};

static void lose(struct stream *s)
{
	if (!s->done)
		s->calls->lost(s->ctx);
}

/* ---- what the launcher says ---- */

static const void *keep(struct stream *s, const struct wire_frame *f, struct err *e)
{
	void *copy;

	s->kept_bytes += f->n;
	if (s->kept_bytes > WIRE_JOB_BYTES_MAX) {
		err_set(e, E_WIRE, "job larger than its limit");
		return NULL;
	}
	copy = xmalloc(f->n + 1);
	if (f->n)
		memcpy(copy, f->payload, f->n);
	s->kept = xreallocarray(s->kept, s->nkept + 1, sizeof *s->kept);
	s->kept[s->nkept++].bytes = copy;
	return copy;
}

static void forget_job(struct stream *s)
{
	for (size_t i = 0; i < s->napp; i++)
		wire_free_app(&s->app[i]);
	wire_free_job(&s->job);
	for (size_t i = 0; i < s->nkept; i++)
		free(s->kept[i].bytes);
	free(s->app);
	free(s->kept);
	s->app = NULL;
	s->kept = NULL;
	s->napp = s->nkept = s->kept_bytes = 0;
}

static int on_app(struct stream *s, const struct wire_frame *f, struct err *e)
{
	const void *payload;
	struct wire_app m;

	if (s->busy)
		return err_set(e, E_WIRE, "'app' message during a job");
	if (s->job.epoch)
		forget_job(s);
	payload = keep(s, f, e);
	if (!payload || wire_unpack_app(&m, payload, f->n, e))
		return -1;
	s->app = xreallocarray(s->app, s->napp + 1, sizeof *s->app);
	s->app[s->napp++] = m;
	if (m.index != s->napp - 1)
		return err_set(e, E_WIRE, "malformed 'app' message");
	return 0;
}

/* Every list of the job is as long as its ranks, every choice is one, and every app is
 * here. */
static bool job_is_sound(const struct stream *s)
{
	const struct wire_job *j = &s->job;
	size_t n = j->ranks.n;

	if (!n || n > j->np || n > WIRE_HOST_MAX || j->np > WIRE_RANKS_MAX ||
	    j->apps.n != n || j->cross_ranks.n != n || j->cross_sizes.n != n ||
	    !*j->job_id || !j->epoch || j->key.n != WIRE_KEY_BYTES)
		return false;
	if (j->bind_to > BIND_HWTHREAD || j->share > SHARE_MACHINE ||
	    j->gpu_visible > VISIBLE_INHERIT || j->gpu_id > GPU_ID_UUID)
		return false;
	for (size_t i = 0; i < n; i++)
		if (j->apps.v[i] >= s->napp || j->ranks.v[i] >= j->np)
			return false;
	for (size_t i = 0; i < s->napp; i++)
		if (!s->app[i].argv.n && !(j->flags & JOB_PLAN))
			return false; /* a plan alone needs no program */
	return true;
}

static int on_job(struct stream *s, const struct wire_frame *f, struct err *e)
{
	const void *payload;

	if (s->busy || s->job.epoch)
		return err_set(e, E_WIRE, "'job' message during a job");
	payload = keep(s, f, e);
	if (!payload || wire_unpack_job(&s->job, payload, f->n, e))
		return -1;
	if (!job_is_sound(s) || s->job.epoch <= s->epoch)
		return err_set(e, E_WIRE, "malformed 'job' message");
	s->epoch = s->job.epoch;
	s->busy = true;
	s->patience_ms = s->job.host_timeout_ms;
	if (s->patience_ms && s->patience_ms <= UINT32_MAX - EXTRA_MS)
		s->patience_ms += EXTRA_MS;
	s->calls->job(s->ctx, &s->job, s->app, s->napp);
	return 0;
}

static int on_start(struct stream *s, const struct wire_frame *f, struct err *e)
{
	struct wire_start m;

	if (wire_unpack_start(&m, f->payload, f->n, e))
		return -1;
	if (m.epoch == s->epoch && s->busy)
		s->calls->start(s->ctx);
	return 0;
}

static int on_input(struct stream *s, const struct wire_frame *f, struct err *e)
{
	struct wire_input m;

	if (wire_unpack_input(&m, f->payload, f->n, e))
		return -1;
	if (m.epoch == s->epoch && s->busy)
		s->calls->input(s->ctx, m.data.p, m.data.n);
	return 0;
}

static int on_credit(struct stream *s, const struct wire_frame *f, struct err *e)
{
	struct wire_credit m;

	if (wire_unpack_credit(&m, f->payload, f->n, e))
		return -1;
	if (m.epoch == s->epoch && s->busy)
		s->calls->credit(s->ctx, m.bytes);
	return 0;
}

static int on_signal(struct stream *s, const struct wire_frame *f, struct err *e)
{
	struct wire_signal m;

	if (wire_unpack_signal(&m, f->payload, f->n, e))
		return -1;
	if (s->busy && m.signo > 0 && m.signo <= 64)
		s->calls->signal(s->ctx, (int)m.signo, m.tree);
	return 0;
}

static int on_end(struct stream *s, const struct wire_frame *f, struct err *e)
{
	struct wire_stop m;

	if (wire_unpack_stop(&m, f->payload, f->n, e))
		return -1;
	if (m.epoch == s->epoch && s->busy)
		s->calls->end(s->ctx, m.grace_ms);
	return 0;
}

static int on_sweep(struct stream *s, const struct wire_frame *f, struct err *e)
{
	struct wire_sweep m;

	if (s->busy)
		return err_set(e, E_WIRE, "'sweep' message during a job");
	if (wire_unpack_sweep(&m, f->payload, f->n, e))
		return -1;
	if (!*m.job_id)
		return err_set(e, E_WIRE, "malformed 'sweep' message");
	s->calls->sweep(s->ctx, m.job_id);
	return 0;
}

static int on_heartbeat(struct stream *s, const struct wire_frame *f, struct err *e)
{
	struct wire_heartbeat m;

	if (wire_unpack_heartbeat(&m, f->payload, f->n, e))
		return -1;
	m = (struct wire_heartbeat){ clock_ns(), m.clock_ns };
	wire_pack_heartbeat(&s->out, &m);
	return 0;
}

static int on_frame(struct stream *s, const struct wire_frame *f, struct err *e)
{
	switch (f->type) {
	case WIRE_app:
		return on_app(s, f, e);
	case WIRE_job:
		return on_job(s, f, e);
	case WIRE_start:
		return on_start(s, f, e);
	case WIRE_input:
		return on_input(s, f, e);
	case WIRE_credit:
		return on_credit(s, f, e);
	case WIRE_signal:
		return on_signal(s, f, e);
	case WIRE_stop:
		return on_end(s, f, e);
	case WIRE_heartbeat:
		return on_heartbeat(s, f, e);
	case WIRE_suspend:
	case WIRE_resume:
		s->suspended = f->type == WIRE_suspend;
		return 0;
	case WIRE_sweep:
		return on_sweep(s, f, e);
	case WIRE_host_map:
	case WIRE_fence_data:
	case WIRE_lost:
	case WIRE_query:
	case WIRE_missing:
		return s->busy ? s->calls->library(s->ctx, f, e) : 0;
	case WIRE_shutdown:
		s->calls->bye(s->ctx);
		return 0;
	default:
		return 0; /* wire_next_from() lets no other through */
	}
}

/* ---- bytes ---- */

void stream_refuse(struct stream *s, const struct err *e)
{
	stream_log(s, LOG_ERROR, e);
	stream_send_all(s, 100);
	lose(s);
}

static void take_frames(struct stream *s)
{
	struct wire_frame f;
	struct err e = { 0 };
	long n = 0;

	while (!s->done && (n = wire_next_from(WIRE_LAUNCHER, &f, buf_head(&s->in),
					       s->in.len, &e)) > 0) {
		n = on_frame(s, &f, &e) ? -1 : n;
		if (n < 0)
			break;
		buf_drop(&s->in, (size_t)n);
	}
	if (n < 0)
		stream_refuse(s, &e);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	ssize_t n = read(fd, buf_reserve(&s->in, READ_BYTES), READ_BYTES);

	(void)what;
	if (n > 0) {
		s->in.len += (size_t)n;
		s->heard_ms = clock_ms();
		take_frames(s);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		lose(s);
	}
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg; /* the loop sends after each turn */
}

/* Much output gets a pipe to match: fewer turns between us and sshd. */
static void widen(struct stream *s)
{
	if (s->wide || s->out.len < WIDE_BYTES)
		return;
	s->wide = true;
	fcntl(STDOUT_FILENO, F_SETPIPE_SZ, PIPE_BYTES); /* no pipe: no harm */
}

void stream_send(struct stream *s)
{
	widen(s);
	while (s->out.len) {
		size_t most = s->out.len < WRITE_BYTES ? s->out.len : WRITE_BYTES;
		ssize_t n = write(STDOUT_FILENO, buf_head(&s->out), most);

		if (n > 0) {
			buf_drop(&s->out, (size_t)n);
		} else if (errno == EAGAIN) {
			loop_watch(s->writable);
			return;
		} else if (errno != EINTR) {
			buf_drop(&s->out, s->out.len);
			lose(s);
			return;
		}
	}
}

void stream_send_all(struct stream *s, unsigned ms)
{
	uint64_t until = clock_ms() + ms, now;

	for (stream_send(s); s->out.len && (now = clock_ms()) < until; stream_send(s)) {
		struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };

		poll(&p, 1, (int)(until - now));
	}
}

/* ---- silence ---- */

/* Where this process itself was stopped, the launcher's messages are still to be read:
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
	if (s->patience_ms && now - s->heard_ms > s->patience_ms)
		lose(s);
}

/* ---- the whole ---- */

void stream_begin(struct stream *s)
{
	const struct timeval look = { .tv_sec = LOOK_S };

	fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
	fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
	s->readable =
		event_new(s->base, STDIN_FILENO, EV_READ | EV_PERSIST, on_readable, s);
	s->writable = event_new(s->base, STDOUT_FILENO, EV_WRITE, on_writable, s);
	s->silence = event_new(s->base, -1, EV_PERSIST, on_look, s);
	loop_watch(s->readable);
	event_add(s->silence, &look);
	s->heard_ms = s->looked_ms = clock_ms();
	s->patience_ms = PATIENCE_MS;
	buf_add(&s->out, WIRE_MAGIC, WIRE_MAGIC_BYTES);
}

/* Hear the launcher only while our queue is short. */
static void listen_or_not(struct stream *s)
{
	if (s->out.len > DEAF_BYTES)
		event_del(s->readable);
	else if (!event_pending(s->readable, EV_READ, NULL))
		event_add(s->readable, NULL);
}

void stream_loop(struct stream *s)
{
	while (!s->done) {
		stream_send(s);
		listen_or_not(s);
		if (s->done)
			break;
		event_base_loop(s->base, EVLOOP_ONCE);
		s->calls->turn(s->ctx);
	}
}

void stream_stop(struct stream *s)
{
	s->done = true;
}

void stream_log(struct stream *s, enum log_level level, const struct err *e)
{
	struct wire_log m = { level, e->id ? err_name(e->id) : "", e->text, e->hint };

	wire_pack_log(&s->out, &m);
}

void stream_end(struct stream *s)
{
	forget_job(s);
	buf_free(&s->in);
	buf_free(&s->out);
	if (!s->readable)
		return;
	event_free(s->readable);
	event_free(s->writable);
	event_free(s->silence);
}
