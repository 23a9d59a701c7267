#include "launcher/hosts/agents.h"

#include <event2/event.h>

enum {
	BEAT_S = 5,
	/* For silence, while a host has missed a beat: else 15 s are said after 20.
	 * Not always: an idle machine pays 2 ms of CPU time to wake a job. */
	LOOK_MS = 1000,
	SILENT_S = 15, /* said then; given up after --host-timeout */
	/* What empty buffers of all hosts may keep: job frames alone kept 20 MiB for
	 * 9500 hosts, and an output frame in two parts keeps 100 KiB for its host. */
	KEEP_BYTES = 8 << 20,
	/* Of more hosts, heartbeats are spread over the time between two. */
	BEATS_AT_ONCE = 256
};

static void trim(const struct agents *f, struct buf *b)
{
	if (!b->len && b->cap > KEEP_BYTES / f->n)
		buf_free(b);
}

/* How many hosts are up decides nothing here: the session counts. */
static void lose(struct host *h, const struct err *why)
{
	if (h->state == HOST_LOST || h->state == HOST_CLOSED)
		return;
	h->err = *why;
	h->state = HOST_LOST;
	if (h->conn)
		h->transport->close(h->conn);
	h->conn = NULL;
	h->agents->events->lost(h->agents->ctx, h);
}

void agents_give_up(struct host *h, const struct err *why)
{
	lose(h, why);
}

/* Offset and error of H's clock from one exchange; the shortest round trip is the best,
 * until drift (quartz clocks differ by up to 100 us in a second) has made it worse than
 * a new one. */
static void clock_sample(struct host *h, uint64_t sent_ns, uint64_t theirs_ns)
{
	uint64_t now = clock_ns(), error = (now - sent_ns) / 2;
	uint64_t aged = h->clock_error_ns + (now - h->clock_sampled_ns) / 10000;

	if (sent_ns < h->up_ns || sent_ns > now) /* no clock that we sent */
		return;
	if (h->clock_error_ns && error >= aged)
		return;
	h->clock_sampled_ns = now;
	h->clock_error_ns = error ? error : 1;
	h->clock_offset_ns = theirs_ns - (sent_ns + error);
}

int64_t agents_time(const struct host *h, uint64_t at_ns)
{
	uint64_t ours = at_ns - h->clock_offset_ns, now = clock_ns();

	return (int64_t)(ours - h->up_ns > now - h->up_ns ? now : ours);
}

static void send_beat(struct host *h)
{
	struct wire_heartbeat beat = { .clock_ns = clock_ns() };

	wire_pack_heartbeat(&h->out, &beat);
	agents_flush(h);
}

/* A machine that can be: what it says decides slots and every rank's MASTER_ADDR. */
static bool hello_is_sound(const struct wire_hello *m)
{
	static const char address[] = "0123456789abcdefABCDEF.:%"
				      "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ_-";

	return m->cpus && m->cpus <= WIRE_HOST_MAX && m->cores && m->cores <= m->cpus &&
	       m->gpus <= WIRE_HOST_MAX && m->port <= 65535 &&
	       !m->address[strspn(m->address, address)];
}

static int on_hello(struct host *h, const struct wire_frame *f, struct err *e)
{
	struct wire_hello m;

	if (wire_unpack_hello(&m, f->payload, f->n, e))
		return -1;
	if (strcmp(m.version, BERTH_VERSION) || m.wire != WIRE_VERSION) {
		err_set(e, E_AGENT_OTHER, h->name, m.version, m.wire, BERTH_VERSION,
			(unsigned)WIRE_VERSION);
		return -1;
	}
	if (!hello_is_sound(&m))
		return err_set(e, E_WIRE, "hello of a machine that cannot be");
	h->up_ns = clock_ns();
	h->address = xstrdup(m.address);
	h->cpus = m.cpus;
	h->cores = m.cores;
	h->gpus = m.gpus;
	h->port = m.port;
	wire_free_hello(&m);
	h->state = HOST_UP;
	send_beat(h);
	h->agents->events->hello(h->agents->ctx, h);
	return 0;
}

static int on_heartbeat(struct host *h, const struct wire_frame *f, struct err *e)
{
	struct wire_heartbeat m;

	if (wire_unpack_heartbeat(&m, f->payload, f->n, e))
		return -1;
	if (m.echo_ns)
		clock_sample(h, m.echo_ns, m.clock_ns);
	return 0;
}

/* An agent that can't go on says why in its last words. */
static int on_agent_log(struct host *h, const struct wire_frame *f, struct err *e)
{
	struct wire_log m;

	if (wire_unpack_log(&m, f->payload, f->n, e))
		return -1;
	if (m.level < LOG_ERROR) {
		h->agents->events->frame(h->agents->ctx, h, f);
		return 0;
	}
	err_set(e, E_SYSTEM, h->name, m.text);
	e->id = err_by_name(m.id);
	if (e->id == ERR_NONE)
		e->id = E_SYSTEM;
	err_hint(e, "%s", m.hint);
	return -1;
}

static void trace(const struct host *h, const struct wire_frame *f)
{
	struct str s = { 0 };

	wire_print(&s, f);
	fprintf(stderr, "runner: %s: %s\n", h->name, str_text(&s));
	str_free(&s);
}

static int dispatch(struct host *h, const struct wire_frame *f, struct err *e)
{
	if (h->agents->setup.verbosity > 1 && f->type != WIRE_output)
		trace(h, f);
	if (h->state == HOST_STARTING) {
		if (f->type == WIRE_hello)
			return on_hello(h, f, e);
		if (f->type == WIRE_log)
			return on_agent_log(h, f, e);
		return err_set(e, E_WIRE, "message before hello");
	}
	if (f->type == WIRE_heartbeat)
		return on_heartbeat(h, f, e);
	if (f->type == WIRE_log)
		return on_agent_log(h, f, e);
	h->agents->events->frame(h->agents->ctx, h, f);
	return 0;
}

/* Cut N bytes at P into frames.  Returns what was used up; the rest is an incomplete
 * frame. */
static size_t cut(struct host *h, const unsigned char *p, size_t n)
{
	struct wire_frame f;
	struct err e = { 0 };
	size_t used = 0;
	long size = 0;

	while (h->conn &&
	       (size = wire_next_from(WIRE_AGENT, &f, p + used, n - used, &e)) > 0) {
		if (dispatch(h, &f, &e)) {
			size = -1;
			break;
		}
		used += (size_t)size;
	}
	if (size < 0) {
		if (e.id == E_WIRE)
			err_in(&e, "%s", h->name);
		lose(h, &e);
	}
	return used;
}

/* The N bytes at DATA, up to and with WIRE_MAGIC; what follows it stays in h->in. */
static bool greeting(struct host *h, const void *data, size_t n)
{
	struct err e;

	buf_add(&h->in, data, n);
	if (h->in.len < WIRE_MAGIC_BYTES)
		return false;
	h->greeted = !memcmp(buf_head(&h->in), WIRE_MAGIC, WIRE_MAGIC_BYTES);
	if (h->greeted) {
		buf_drop(&h->in, WIRE_MAGIC_BYTES);
		return true;
	}
	err_set(&e, E_WIRE, "no greeting");
	err_in(&e, "%s", h->name);
	lose(h, &e);
	return false;
}

/* Frames out of h->in, whose room goes back where many hosts would keep one each. */
static void take_kept(struct host *h)
{
	size_t used = cut(h, buf_head(&h->in), h->in.len);

	if (!h->conn)
		return;
	buf_drop(&h->in, used);
	if (!h->in.len)
		buf_free(&h->in);
}

/* Bytes that the frame that begins IN lacks, or its head does. */
static size_t missing(const struct buf *in)
{
	struct view v = { .p = buf_head(in), .left = in->len };

	if (in->len < WIRE_HEAD_BYTES)
		return WIRE_HEAD_BYTES - in->len;
	return WIRE_HEAD_BYTES + (size_t)view_u32(&v) - in->len;
}

static void on_bytes(void *ctx, const void *data, size_t n)
{
	struct host *h = ctx;
	const unsigned char *p = data;
	size_t used;

	h->heard_ms = clock_ms();
	h->silence_said = false;
	if (!h->greeted) {
		if (greeting(h, data, n))
			take_kept(h);
		return;
	}
	while (h->conn && n && h->in.len) {
		size_t part = missing(&h->in) < n ? missing(&h->in) : n;

		buf_add(&h->in, p, part);
		p += part;
		n -= part;
		take_kept(h);
	}
	used = h->conn ? cut(h, p, n) : 0;
	if (h->conn && used < n)
		buf_add(&h->in, p + used, n - used);
}

static void on_writable(void *ctx)
{
	agents_flush(ctx);
}

/* The last line that an agent said, 400 bytes at most: why it died, if it knew. */
static const char *last_line(const char *said, int *len)
{
	size_t n = strlen(said), from;

	while (n && said[n - 1] == '\n')
		n--;
	for (from = n; from && said[from - 1] != '\n'; from--)
		;
	*len = (int)(n - from > 400 ? 400 : n - from);
	return said + from;
}

static void describe_loss(const struct host *h, const struct transport_end *end,
			  struct err *e)
{
	struct str how = { 0 };
	int len;
	const char *line = last_line(end->said, &len);

	if (end->status > 0)
		str_addf(&how, " (its status: %d)", end->status);
	if (len)
		str_addf(&how, ": %.*s", len, line);
	err_set(e, E_AGENT_LOST, h->name, str_text(&how));
	str_free(&how);
}

static void describe_end(struct host *h, const struct transport_end *end, struct err *e)
{
	size_t len = strcspn(end->said, "\n");

	if (end->err.id != ERR_NONE)
		*e = end->err;
	else if (h->state == HOST_STARTING)
		err_set(e, E_AGENT_START, h->name, end->status,
			(int)(len > 400 ? 400 : len), end->said);
	else
		describe_loss(h, end, e);
}

static void on_ended(void *ctx, const struct transport_end *end)
{
	struct host *h = ctx;
	struct err e = { 0 };

	h->exit_status = end->status;
	if (h->state == HOST_LEAVING) {
		h->transport->close(h->conn);
		h->conn = NULL;
		h->state = HOST_CLOSED;
		h->agents->events->closed(h->agents->ctx, h);
		return;
	}
	describe_end(h, end, &e);
	lose(h, &e);
}

void agents_start(struct agents *f, struct host *h)
{
	static const struct transport_events events = { on_bytes, on_writable,
							on_ended };

	buf_drop(&h->in, h->in.len); /* of an agent that it had before */
	buf_drop(&h->out, h->out.len);
	free(h->address);
	h->address = NULL;
	h->clock_error_ns = 0;
	h->greeted = false;
	h->state = HOST_STARTING;
	h->exit_status = -1;
	h->heard_ms = clock_ms();
	h->conn = h->transport->start(&f->setup, &h->target, &events, h);
}

void agents_flush(struct host *h)
{
	size_t n;

	while (h->conn && h->out.len) {
		n = h->transport->send(h->conn, buf_head(&h->out), h->out.len);
		if (!n)
			return;
		buf_drop(&h->out, n);
	}
	trim(h->agents, &h->out);
}

void agents_leave(struct host *h)
{
	if (h->state != HOST_UP)
		return;
	wire_pack_shutdown(&h->out, &(struct wire_shutdown){});
	h->state = HOST_LEAVING;
	agents_flush(h);
}

static void check_silence(struct agents *f, struct host *h)
{
	uint64_t quiet_s = (clock_ms() - h->heard_ms) / 1000;
	struct err e = { 0 };

	if ((long)quiet_s >= f->host_timeout_s) {
		err_set(&e, E_HOST_SILENT, h->name, (unsigned)quiet_s);
		lose(h, &e);
	} else if (quiet_s >= SILENT_S && !h->silence_said) {
		h->silence_said = true;
		f->events->silent(f->ctx, h, (unsigned)quiet_s);
	}
}

static void on_beat(evutil_socket_t fd, short what, void *ctx)
{
	struct agents *f = ctx;

	(void)fd;
	(void)what;
	if (f->paused)
		return;
	f->turn = (f->turn + 1) % f->turns;
	for (size_t i = f->turn; i < f->n; i += f->turns)
		if (f->host[i].state == HOST_UP)
			send_beat(&f->host[i]);
}

/* Where runner itself did not run (kill -STOP, a machine that slept), nothing was asked
 * and what was said is still to be read: begin to count anew. */
static void forgive_own_silence(struct agents *f)
{
	uint64_t now = clock_ms();

	if (now - f->looked_ms > 2 * f->look_every_ms)
		for (size_t i = 0; i < f->n; i++)
			f->host[i].heard_ms = now;
	f->looked_ms = now;
}

/* Several within --host-timeout, else a host is silent between two of them. */
static uint64_t beat_every_ms(const struct agents *f)
{
	uint64_t within_ms = (uint64_t)f->host_timeout_s * 250;

	return within_ms < BEAT_S * 1000 ? within_ms : BEAT_S * 1000;
}

static void look_again(struct agents *f, bool soon)
{
	uint64_t ms = beat_every_ms(f);

	f->look_every_ms = soon && ms > LOOK_MS ? LOOK_MS : ms;
	event_add(f->look,
		  &(struct timeval){ (time_t)(f->look_every_ms / 1000),
				     (suseconds_t)(f->look_every_ms % 1000 * 1000) });
}

static void on_look(evutil_socket_t fd, short what, void *ctx)
{
	struct agents *f = ctx;
	bool missed = false;

	(void)fd;
	(void)what;
	forgive_own_silence(f);
	for (size_t i = 0; !f->paused && i < f->n; i++) {
		struct host *h = &f->host[i];

		if (h->state != HOST_UP && h->state != HOST_LEAVING)
			continue;
		missed |= f->looked_ms - h->heard_ms > beat_every_ms(f) + LOOK_MS;
		check_silence(f, h);
	}
	look_again(f, missed);
}

void agents_watch(struct agents *f)
{
	uint64_t us;

	f->turns = (f->n + BEATS_AT_ONCE - 1) / BEATS_AT_ONCE;
	us = beat_every_ms(f) * 1000 / f->turns;
	f->beat = event_new(f->base, -1, EV_PERSIST, on_beat, f);
	event_add(f->beat, &(struct timeval){ (time_t)(us / 1000000),
					      (suseconds_t)(us % 1000000) });
	f->look = event_new(f->base, -1, 0, on_look, f);
	f->looked_ms = clock_ms();
	look_again(f, false);
}

void agents_close(struct agents *f)
{
	for (size_t i = 0; i < f->n; i++) {
		struct host *h = &f->host[i];

		if (h->conn)
			h->transport->close(h->conn);
		h->conn = NULL;
	}
}

void agents_free(struct agents *f)
{
	agents_close(f);
	if (f->beat)
		event_free(f->beat);
	if (f->look)
		event_free(f->look);
	for (size_t i = 0; i < f->n; i++) {
		struct host *h = &f->host[i];

		free(h->name);
		free(h->user);
		free(h->addr);
		free(h->address);
		buf_free(&h->in);
		buf_free(&h->out);
	}
	free(f->host);
	*f = (struct agents){ 0 };
}
