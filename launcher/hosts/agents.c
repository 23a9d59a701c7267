#include "launcher/hosts/agents.h"

#include <event2/event.h>

#include "common/loop.h"

enum {
	BEAT_S = 5,
	/* Between two checks for silence while a host has missed a beat; else a silence
	 * of 15 s would be reported after 20.  Not always: to wake an idle machine
	 * costs 2 ms of CPU time. */
	CHECK_MS = 1000,
	SILENT_S = 15, /* reported then; the host is given up after --host-timeout */
	/* Empty buffers of all hosts keep no more.  (Job frames alone kept 20 MiB for
	 * 9500 hosts, and an output frame in two parts keeps 100 KiB for its host.) */
	KEEP_BYTES = 8 << 20,
	/* Heartbeats to more hosts are spread over the time between two. */
	BEATS_AT_ONCE = 256,
	OUT_SPARE = 4 << 20,    /* of host.out, beyond host.out_due */
	TOLD_BYTES = 400,       /* of what an agent printed, in a message */
	TURN_MS = 10,           /* then a host's further frames wait for other hosts */
	WAITING_BYTES = 1 << 20 /* of such frames; more do not wait */
};

void agents_give_up(struct host *h, const struct err *why)
{
	const struct agents *a = h->agents;

	if (h->state == HOST_LOST || h->state == HOST_CLOSED)
		return;
	h->err = *why;
	h->state = HOST_LOST;
	if (h->conn)
		h->transport->close(h->conn);
	h->conn = NULL;
	if (a->events->lost)
		a->events->lost(a->ctx, h);
}

/* Offset and error of H's clock from one exchange.  The shortest round trip is the
 * best, until drift has made it worse than a new one (quartz clocks differ by up to 100
 * us in a second). */
static void clock_sample(struct host *h, uint64_t sent_ns, uint64_t theirs_ns)
{
	uint64_t now = clock_ns(), error = (now - sent_ns) / 2;
	uint64_t aged = h->clock_error_ns + (now - h->clock_sampled_ns) / 10000;

	if (sent_ns < h->up_ns || sent_ns > now) /* not a time that we sent */
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
	/* Two times that were cut to the time of their arrival would have its order. */
	uint64_t most = now - h->up_ns + h->clock_error_ns;

	return (int64_t)(ours - h->up_ns > most ? now : ours);
}

void agents_beat(struct host *h)
{
	AGENTS_SEND(h, heartbeat, &(struct wire_heartbeat){ .clock_ns = clock_ns() });
}

static int agents_on_hello(struct host *h, const struct wire_frame *f, struct err *e)
{
	static const char address[] = "0123456789abcdefABCDEF.:%"
				      "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ_-";
	static const char name[] = "0123456789abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
	struct wire_hello m;

	if (wire_unpack_hello(&m, f->payload, f->n, e))
		return -1;
	if (strcmp(m.version, BERTH_VERSION) || m.wire != WIRE_VERSION)
		return err_set(e, E_AGENT_OTHER, h->name, m.version, m.wire,
			       BERTH_VERSION, (unsigned)WIRE_VERSION);
	/* slots and every rank's MASTER_ADDR follow from it */
	if (!m.cpus || m.cpus > WIRE_HOST_MAX || !m.cores || m.cores > m.cpus ||
	    m.gpus > WIRE_HOST_MAX || m.port > 65535 || m.sockets > m.cpus ||
	    m.numas > m.cpus || m.address[strspn(m.address, address)])
		return err_set(e, E_WIRE, "hello with impossible values");
	h->up_ns = clock_ns();
	h->address = xstrdup(m.address);
	h->machine = xstrdup(m.machine);
	h->own = xstrdup(m.own[strspn(m.own, name)] ? "" : m.own);
	h->cpus = m.cpus;
	h->cores = m.cores;
	h->gpus = m.gpus;
	h->sockets = m.sockets ? m.sockets : 1;
	h->numas = m.numas ? m.numas : 1;
	h->port = m.port;
	wire_free_hello(&m);
	h->err.id = ERR_NONE;
	h->state = HOST_UP;
	agents_beat(h);
	if (h->agents->events->hello)
		h->agents->events->hello(h->agents->ctx, h);
	return 0;
}

static int agents_dispatch(struct host *h, const struct wire_frame *f, struct err *e)
{
	struct wire_heartbeat beat;
	struct wire_log log;
	struct str s = { 0 };

	if (h->agents->setup.verbosity > 1 && f->type != WIRE_output) {
		wire_print(&s, f);
		fprintf(stderr, "runner: %s: %s\n", h->name, str_text(&s));
		str_free(&s);
	}
	if (f->type == WIRE_log) {
		if (wire_unpack_log(&log, f->payload, f->n, e))
			return -1;
		if (log.level >= LOG_ERROR) { /* the agent cannot go on: the reason */
			err_set(e, E_SYSTEM, h->name, log.text);
			e->id = err_by_name(log.id);
			if (e->id == ERR_NONE)
				e->id = E_SYSTEM;
			return err_hint(e, "%s", log.hint);
		}
	} else if (h->state == HOST_STARTING) {
		return f->type == WIRE_hello
			       ? agents_on_hello(h, f, e)
			       : err_set(e, E_WIRE, "message before hello");
	} else if (f->type == WIRE_heartbeat) {
		if (wire_unpack_heartbeat(&beat, f->payload, f->n, e))
			return -1;
		if (beat.echo_ns)
			clock_sample(h, beat.echo_ns, beat.clock_ns);
		return 0;
	}
	if (h->agents->events->frame)
		h->agents->events->frame(h->agents->ctx, h, f);
	return 0;
}

static void on_turn(evutil_socket_t fd, short what, void *ctx);

/* Cut N bytes at P into frames.  Returns the bytes used; the rest is an incomplete
 * frame, or frames that wait, if it is UNTIL_MS (0: never). */
static size_t agents_cut(struct host *h, const unsigned char *p, size_t n,
			 uint64_t until_ms)
{
	struct wire_frame f;
	struct err e = { 0 };
	size_t used = 0;
	long size = 0;

	while (h->conn &&
	       (size = wire_next_from(WIRE_AGENT, &f, p + used, n - used, &e)) > 0) {
		if (used && until_ms && clock_ms() >= until_ms) {
			h->waits = true;
			break;
		}
		if (agents_dispatch(h, &f, &e)) {
			size = -1;
			break;
		}
		used += (size_t)size;
	}
	if (size < 0) {
		if (e.id == E_WIRE)
			err_in(&e, "%s", h->name);
		agents_give_up(h, &e);
	}
	if (h->waits && !h->turn)
		h->turn = event_new(h->agents->base, -1, 0, on_turn, h);
	if (h->waits)
		loop_after_ms(h->turn, 0);
	return used;
}

/* Take frames out of h->in.  Its room is freed: many hosts would each keep one. */
static void take_kept(struct host *h, uint64_t until_ms)
{
	size_t used;

	h->waits = false;
	used = agents_cut(h, buf_head(&h->in), h->in.len, until_ms);
	if (!h->conn)
		return;
	buf_drop(&h->in, used);
	if (!h->in.len)
		buf_free(&h->in);
}

static void check_out(struct host *h)
{
	struct err e;

	if (!h->conn || h->out.len <= h->out_due + OUT_SPARE)
		return;
	err_set(&e, E_WIRE, "the agent does not read the answers to its requests");
	err_in(&e, "%s", h->name);
	agents_give_up(h, &e);
}

static void on_turn(evutil_socket_t fd, short what, void *ctx)
{
	struct host *h = ctx;

	(void)fd;
	(void)what;
	if (!h->conn || !h->waits)
		return;
	take_kept(h, clock_ms() + TURN_MS);
	check_out(h);
}

/* Bytes that the first frame in IN lacks, or its head. */
static size_t agents_missing(const struct buf *in)
{
	struct view v = { .p = buf_head(in), .left = in->len };

	if (in->len < WIRE_HEAD_BYTES)
		return WIRE_HEAD_BYTES - in->len;
	return WIRE_HEAD_BYTES + (size_t)view_u32(&v) - in->len;
}

/* Whole frames may be in h->in only while they wait. */
static void take_bytes(struct host *h, const unsigned char *p, size_t n)
{
	const uint64_t until_ms = clock_ms() + TURN_MS;
	size_t used;

	if (h->waits) {
		buf_add(&h->in, p, n);
		if (h->in.len > WAITING_BYTES)
			take_kept(h, 0);
		return;
	}
	while (h->conn && n && h->in.len) {
		size_t part = agents_missing(&h->in) < n ? agents_missing(&h->in) : n;

		buf_add(&h->in, p, part);
		p += part;
		n -= part;
		take_kept(h, until_ms);
	}
	used = h->conn ? agents_cut(h, p, n, until_ms) : 0;
	if (h->conn && used < n)
		buf_add(&h->in, p + used, n - used);
}

static void agents_on_bytes(void *ctx, const void *data, size_t n)
{
	struct host *h = ctx;
	struct err e;

	h->heard_ms = clock_ms();
	h->silence_told = false;
	if (h->greeted) {
		take_bytes(h, data, n);
		check_out(h);
		return;
	}
	buf_add(&h->in, data, n);
	if (h->in.len < WIRE_MAGIC_BYTES)
		return;
	if (memcmp(buf_head(&h->in), WIRE_MAGIC, WIRE_MAGIC_BYTES)) {
		err_set(&e, E_WIRE, "no greeting");
		err_in(&e, "%s", h->name);
		agents_give_up(h, &e);
		return;
	}
	h->greeted = true;
	buf_drop(&h->in, WIRE_MAGIC_BYTES);
	take_kept(h, h->heard_ms + TURN_MS);
}

static void agents_on_writable(void *ctx)
{
	agents_flush(ctx);
}

static void agents_on_ended(void *ctx, const struct transport_end *end);

static const struct transport_events transport_events = { agents_on_bytes,
							  agents_on_writable,
							  agents_on_ended };

static void connect_host(struct host *h)
{
	h->conn = h->transport->start(&h->agents->setup, &h->target, &transport_events,
				      h);
}

/* Why H's stream ended.  An agent prints the reason last. */
static void describe_end(struct host *h, const struct transport_end *end, struct err *e)
{
	const char *said = end->said;
	size_t n = strlen(said), from, len = strcspn(said, "\n");
	struct str how = { 0 };

	/* libssh's reason says more than that ssh was refused as well */
	if (h->err.id != ERR_NONE &&
	    (end->err.id == E_SSH_AUTH || end->err.id == E_SSH_PROGRAM)) {
		*e = h->err;
		return;
	}
	if (end->err.id != ERR_NONE) {
		*e = end->err;
		return;
	}
	if (h->state == HOST_STARTING) {
		err_set(e, E_AGENT_START, h->name, end->status,
			(int)(len > TOLD_BYTES ? TOLD_BYTES : len), said);
		return;
	}
	while (n && said[n - 1] == '\n')
		n--;
	for (from = n; from && said[from - 1] != '\n';)
		from--;
	if (end->status > 0)
		str_addf(&how, " (its status: %d)", end->status);
	if (n > from)
		str_addf(&how, ": %.*s",
			 (int)(n - from > TOLD_BYTES ? TOLD_BYTES : n - from),
			 said + from);
	err_set(e, E_AGENT_LOST, h->name, str_text(&how));
	str_free(&how);
}

static void agents_on_ended(void *ctx, const struct transport_end *end)
{
	struct host *h = ctx;
	const struct agents *a = h->agents;
	struct err e = { 0 };

	if (h->waits) /* what it said before it ended */
		take_kept(h, 0);
	if (!h->conn)
		return;
	h->exit_status = end->status;
	if (h->state == HOST_LEAVING) {
		h->transport->close(h->conn);
		h->conn = NULL;
		h->state = HOST_CLOSED;
		if (a->events->closed)
			a->events->closed(a->ctx, h);
	} else if (end->needs_openssh && h->transport != &transport_openssh) {
		h->err = end->err;
		h->transport->close(h->conn);
		h->transport = &transport_openssh;
		connect_host(h);
	} else {
		describe_end(h, end, &e);
		agents_give_up(h, &e);
	}
}

void agents_start(struct agents *a, struct host *h)
{
	if (h->conn) /* an agent that leaves is not waited for */
		h->transport->close(h->conn);
	h->agents = a;
	h->err.id = ERR_NONE;
	buf_drop(&h->in, h->in.len); /* of an agent that it had before */
	h->waits = false;
	buf_drop(&h->out, h->out.len);
	free(h->address);
	free(h->machine);
	free(h->own);
	h->address = h->machine = h->own = NULL;
	h->clock_error_ns = 0;
	h->greeted = false;
	h->state = HOST_STARTING;
	h->exit_status = -1;
	h->heard_ms = clock_ms();
	connect_host(h);
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
	if (!h->out.len && h->out.cap > KEEP_BYTES / h->agents->n)
		buf_free(&h->out);
}

void agents_leave(struct host *h)
{
	if (h->state != HOST_UP)
		return;
	wire_pack_shutdown(&h->out, &(struct wire_shutdown){});
	h->state = HOST_LEAVING;
	agents_flush(h);
}

static void on_beat(evutil_socket_t fd, short what, void *ctx)
{
	struct agents *a = ctx;

	(void)fd;
	(void)what;
	if (a->paused)
		return;
	a->beat_group = (a->beat_group + 1) % a->beat_groups;
	for (size_t i = a->beat_group; i < a->n; i += a->beat_groups)
		if (a->host[i].state == HOST_UP)
			agents_beat(&a->host[i]);
}

/* Several within --host-timeout; else a host would be silent between two of them. */
static uint64_t beat_every_ms(const struct agents *a)
{
	uint64_t within_ms = a->host_timeout_ms / 4;

	return within_ms < BEAT_S * 1000 ? within_ms : BEAT_S * 1000;
}

static void check_again(struct agents *a, bool soon)
{
	uint64_t ms = beat_every_ms(a);

	a->check_every_ms = soon && ms > CHECK_MS ? CHECK_MS : ms;
	loop_after_ms(a->check, a->check_every_ms);
}

static void on_check(evutil_socket_t fd, short what, void *ctx)
{
	struct agents *a = ctx;
	const uint64_t now = clock_ms();
	/* If runner itself did not run (kill -STOP, a machine that slept), nothing was
	 * asked, and what was sent is still to be read: begin to count anew. */
	const bool slept = now - a->checked_ms > 2 * a->check_every_ms;
	bool missed = false;

	(void)fd;
	(void)what;
	a->checked_ms = now;
	for (size_t i = 0; i < a->n; i++) {
		struct host *h = &a->host[i];
		uint64_t quiet_ms;
		unsigned quiet_s;
		struct err e;

		if (slept)
			h->heard_ms = now;
		if (a->paused || (h->state != HOST_UP && h->state != HOST_LEAVING))
			continue;
		quiet_ms = clock_ms() - h->heard_ms;
		quiet_s = (unsigned)(quiet_ms / 1000);
		missed |= quiet_ms > beat_every_ms(a) + CHECK_MS;
		if (quiet_ms >= a->host_timeout_ms) {
			err_set(&e, E_HOST_SILENT, h->name, quiet_s);
			agents_give_up(h, &e);
		} else if (quiet_s >= SILENT_S && !h->silence_told) {
			h->silence_told = true;
			if (a->events->silent)
				a->events->silent(a->ctx, h, quiet_s);
		}
	}
	check_again(a, missed);
}

void agents_watch(struct agents *a)
{
	uint64_t us;

	a->beat_groups = (a->n + BEATS_AT_ONCE - 1) / BEATS_AT_ONCE;
	us = beat_every_ms(a) * 1000 / a->beat_groups;
	a->beat = event_new(a->base, -1, EV_PERSIST, on_beat, a);
	event_add(a->beat, &(struct timeval){ (time_t)(us / 1000000),
					      (suseconds_t)(us % 1000000) });
	a->check = event_new(a->base, -1, 0, on_check, a);
	a->checked_ms = clock_ms();
	check_again(a, false);
}

void agents_close(struct agents *a)
{
	for (size_t i = 0; i < a->n; i++) {
		struct host *h = &a->host[i];

		if (h->conn)
			h->transport->close(h->conn);
		h->conn = NULL;
	}
}

void agents_free(struct agents *a)
{
	agents_close(a);
	if (a->beat)
		event_free(a->beat);
	if (a->check)
		event_free(a->check);
	for (size_t i = 0; i < a->n; i++) {
		struct host *h = &a->host[i];

		free(h->name);
		free(h->user);
		free(h->node);
		free(h->step_gpus);
		free(h->list);
		free(h->addr);
		free(h->address);
		free(h->machine);
		free(h->own);
		if (h->turn)
			event_free(h->turn);
		buf_free(&h->in);
		buf_free(&h->out);
	}
	free(a->host);
	*a = (struct agents){ 0 };
}
