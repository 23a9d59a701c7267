/* libFuzzer on what agents say to runner: bytes through agents.c's frames and frames.c's
 * meaning, for a job of four ranks on two hosts.
 *
 * The input is a script: a byte that says what happens, and for bytes of a host one
 * that says how many.  A transport in memory stands for the real ones. */
#include <event2/event.h>

#include "fuzz.h"

#include "launcher/job/rank_status.h"
#include "launcher/cli/options.h"
#include "launcher/job/report.h"
#include "launcher/job/job.h"
#include "launcher/job/fence.h"

enum { HOSTS = 2, RANKS = 4, SENT_MAX = 1 << 20 };

struct conn {
	const struct transport_events *events;
	void *ctx;
	size_t sent;
};

static struct conn *mem_start(const struct transport_setup *setup,
			      const struct target *t,
			      const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);

	(void)setup;
	(void)t;
	*c = (struct conn){ events, ctx, 0 };
	return c;
}

static size_t mem_send(struct conn *c, const void *data, size_t n)
{
	(void)data;
	c->sent += n;
	if (c->sent > SENT_MAX)
		abort(); /* an agent made runner answer without end */
	return n;
}

static void mem_close(struct conn *c)
{
	free(c);
}

static const struct transport memory = { "memory", mem_start, mem_send, mem_close };

/* ---- the session, as session.c has it between its steps ---- */

static void left(void *ctx, uint32_t host, size_t n)
{
	struct session *s = ctx;

	s->run[host].window += n;
	if (s->run[host].window > s->credit_bytes)
		abort(); /* more was shown than came */
}

static void unread(void *ctx, const char *which, int error)
{
	(void)ctx;
	(void)which;
	(void)error;
}

static void disk(void *ctx, const char *path, int error)
{
	unread(ctx, path, error);
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	(void)ctx;
}

static void add_host(struct session *s, size_t i)
{
	struct host *h = &s->agents.host[i];

	*h = (struct host){ .agents = &s->agents,
			    .name = xstrdup(i ? "b" : "a"),
			    .slots = RANKS / HOSTS,
			    .transport = &memory };
	h->target.name = h->name;
	agents_start(&s->agents, h);
}

static void add_plan(struct session *s)
{
	struct map_host hosts[HOSTS] = { { "a", RANKS / HOSTS, 0 },
					 { "b", RANKS / HOSTS, 0 } };

	if (map_ranks(&s->plan, s->request, hosts, HOSTS, "-H", &s->err))
		abort();
	s->rank = xcalloc(s->plan.np, sizeof *s->rank);
}

static void open_session(struct session *s, const struct request *r,
			 struct event_base *base)
{
	*s = (struct session){ .request = r, .base = base, .epoch = 1 };
	s->timer = event_new(base, -1, 0, on_timer, s);
	s->agents = (struct agents){ .base = base,
				     .n = HOSTS,
				     .events = &session_agents_events,
				     .ctx = s,
				     .host_timeout_s = 60 };
	s->agents.host = xcalloc(HOSTS, sizeof *s->agents.host);
	s->run = xcalloc(HOSTS, sizeof *s->run);
	add_plan(s);
	for (size_t i = 0; i < HOSTS; i++)
		add_host(s, i);
	s->slots_from = xstrdup("-H");
	s->cwd = xstrdup("/");
}

static void ask_to_place(struct session *s)
{
	if (s->master_addr)
		return;
	for (size_t i = 0; i < HOSTS; i++)
		if (s->agents.host[i].state != HOST_UP)
			return;
	s->master_addr = xstrdup("127.0.0.1");
	s->world = world_open(s);
	s->credit_bytes = 4096;
	for (size_t i = 0; i < HOSTS; i++)
		s->run[i].window = s->credit_bytes;
	s->input = input_open(s->base);
	input_aim(s->input, (struct host *[]){ &s->agents.host[0] }, 1, s->epoch);
}

static void start_ranks(struct session *s)
{
	static const struct output_events events = { left, unread, disk };

	if (s->phase != PHASE_START || s->lost || !s->run[0].placed ||
	    !s->run[1].placed)
		return;
	if (output_open(&s->output, s->base, s->request, s->plan.np, &events, s,
			&s->err))
		abort();
	s->phase = PHASE_RUN;
}

/* ---- the script ---- */

static void stream_ends(struct host *h)
{
	struct transport_end end = { .status = 1, .said = "\x1b[2Jno" };

	if (h->conn)
		h->conn->events->ended(h->conn->ctx, &end);
}

static void give(struct host *h, const uint8_t *p, size_t n)
{
	/* a block of its own: a read past it is seen */
	uint8_t *copy = xmalloc(n ? n : 1);

	memcpy(copy, p, n);
	if (h->conn && n)
		h->conn->events->bytes(h->conn->ctx, copy, n);
	free(copy);
}

static void step(struct session *s, unsigned what, const uint8_t **p,
		 const uint8_t *end)
{
	struct host *h = &s->agents.host[what & 1];
	size_t n;

	switch (what >> 1 & 7) {
	case 0:
		ask_to_place(s);
		break;
	case 1:
		start_ranks(s);
		break;
	case 2:
		stream_ends(h);
		break;
	case 3:
		if (s->phase != PHASE_START)
			stop_on_timer(s);
		break;
	case 5:
		look_roll_call(s);
		break;
	case 4:
		if (s->cleanup.host)
			h = &s->cleanup.host[what & 1];
		/* fall through */
	default:
		n = *p < end ? *(*p)++ : 0;
		n = n < (size_t)(end - *p) ? n : (size_t)(end - *p);
		give(h, *p, n);
		*p += n;
	}
}

static void check(const struct session *s)
{
	uint32_t ended = 0;

	for (uint32_t i = 0; i < s->plan.np; i++)
		ended += s->rank[i].state == RANK_ENDED;
	if (ended != s->ended || s->failed > s->ended)
		abort();
	for (size_t i = 0; i < HOSTS; i++)
		if (s->agents.host[i].in.len > WIRE_HEAD_BYTES + 131072 + 255)
			abort();
	session_cause(s);
}

static void free_output_of_runner(void)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	dup2(null, 1);
	close(null);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct request r;
	const uint8_t *p = data, *end = data + size;
	static int err = -1, null = -1;
	struct session s;

	if (err < 0) {
		struct strv notes = { 0 };
		struct str print = { 0 };
		struct err e;
		char *argv[] = { (char *)"runner", (char *)"-np",
				 (char *)"4",      (char *)"--report-bindings",
				 (char *)"true",   (char *)"-v",
				 (char *)"x",      NULL };

		if (options_read_site(&r, &notes, &print, NULL, 7, argv, argv + 7,
				      &e) != OPTIONS_RUN)
			abort();
		free_output_of_runner();
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		err = fcntl(2, F_DUPFD_CLOEXEC, 100);
	}
	dup2(null, 2); /* notes of runner */
	open_session(&s, &r, event_base_new());
	while (p < end && s.phase != PHASE_OVER) {
		unsigned what = *p++;

		step(&s, what, &p, end);
		event_base_loop(s.base, EVLOOP_NONBLOCK);
		check(&s);
	}
	if (s.output && s.rank) {
		report_roll_call(&s);
		report_unconfirmed(&s);
	}
	dup2(err, 2);
	session_free(&s);
	return 0;
}
