/* libFuzzer on what agents say to runner: bytes through agents.c's frames and
 * messages.c's meaning, for a job of four ranks on two hosts, with signals and
 * deadlines in between.
 *
 * The input is a script: a byte that says what happens, and for bytes of a host one
 * that says how many.  If the first byte is 254, the job is one of --check.  A
 * transport in memory stands for the real ones. */
#include <event2/event.h>
#include <signal.h>

#include "fuzz.h"

#include "launcher/cli/options.h"
#include "launcher/job/job.h"
#include "launcher/job/phase.h"

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

static const struct transport memory = { "memory", mem_start, mem_send, mem_close,
					 NULL };

static void open_job(struct job *j, const struct request *r)
{
	struct selection s = { .host = xcalloc(HOSTS, sizeof *s.host),
			       .n = HOSTS,
			       .setup = hosts_setup(&r->reach, r->verbosity),
			       .slots_from = xstrdup("-H") };

	for (size_t i = 0; i < HOSTS; i++) {
		struct host *h = &s.host[i];

		*h = (struct host){ .name = xstrdup(i ? "b" : "a"),
				    .slots = RANKS / HOSTS,
				    .transport = &memory };
		h->target.name = h->name;
	}
	job_open(j, r, &s, NULL);
}

/* ---- the script ---- */

static void stream_ends(struct host *h)
{
	struct transport_end end = { .status = 1, .said = "\x1b[2Jno" };

	if (h->conn)
		h->conn->events->ended(h->conn->ctx, &end);
}

static void give(struct host *h, const void *p, size_t n)
{
	/* a block of its own: a read past it is seen */
	uint8_t *copy = xmalloc(n ? n : 1);

	memcpy(copy, p, n);
	if (h->conn && n)
		h->conn->events->bytes(h->conn->ctx, copy, n);
	free(copy);
}

static void give_hello(struct host *h)
{
	struct wire_hello m = { .version = BERTH_VERSION,
				.wire = WIRE_VERSION,
				.cpus = 2,
				.cores = 2,
				.address = "",
				.port = 20000 };
	struct buf b = { 0 };

	buf_add(&b, WIRE_MAGIC, WIRE_MAGIC_BYTES);
	wire_pack_hello(&b, &m);
	give(h, buf_head(&b), b.len);
	buf_free(&b);
}

static void step(struct job *j, unsigned what, const uint8_t **p, const uint8_t *end)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGQUIT, SIGUSR1 };
	struct host *h = &j->agents.host[what & 1];
	size_t n;

	switch (what >> 1 & 7) {
	case 0:
	case 1:
		if (h->state == HOST_STARTING && !h->greeted)
			give_hello(h);
		break;
	case 2:
		stream_ends(h);
		break;
	case 3:
		if (j->deadline_ms)
			j->deadline_ms = 1; /* it has passed */
		break;
	case 5:
		job_signal(j, signals[what >> 4 & 3]);
		break;
	case 4:
		if (j->cleanup.agents.host)
			h = &j->cleanup.agents.host[what & 1];
		/* fall through */
	default:
		n = *p < end ? *(*p)++ : 0;
		n = n < (size_t)(end - *p) ? n : (size_t)(end - *p);
		give(h, *p, n);
		*p += n;
	}
}

static void check(const struct job *j)
{
	uint32_t ended = 0;

	for (uint32_t i = 0; i < j->plan.np; i++)
		ended += j->rank[i].state == RANK_ENDED;
	if (ended != j->ended || (j->failed > j->ended && j->failed != j->plan.np))
		abort();
	for (size_t i = 0; i < HOSTS; i++)
		if (j->agents.host[i].in.len > WIRE_HEAD_BYTES + 131072 + 255 ||
		    j->run[i].window > j->spec.credit_bytes)
			abort();
	phase_status(j);
}

static void read_options(struct request *r)
{
	struct strv notes = { 0 };
	struct str print = { 0 };
	struct err e;
	char *argv[] = { (char *)"runner", (char *)"-np",
			 (char *)"4",      (char *)"--report-bindings",
			 (char *)"true",   (char *)"-v",
			 (char *)"x",      NULL };

	if (options_read(r, &notes, &print, NULL, 7, argv, argv + 7, &e) != OPTIONS_RUN)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct request r;
	const uint8_t *p = data, *end = data + size;
	static int err = -1, null = -1;
	struct job j;

	if (err < 0) {
		read_options(&r);
		null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		dup2(null, 1);
		err = fcntl(2, F_DUPFD_CLOEXEC, 100);
	}
	dup2(null, 2); /* notes of runner */
	r.check = p < end && *p == 254;
	p += r.check;
	open_job(&j, &r);
	job_begin(&j);
	job_turn(&j);
	while (p < end && j.phase != JOB_DONE) {
		unsigned what = *p++;

		step(&j, what, &p, end);
		event_base_loop(j.base, EVLOOP_NONBLOCK);
		job_turn(&j);
		check(&j);
	}
	job_finish(&j);
	dup2(err, 2);
	job_free(&j);
	return 0;
}
