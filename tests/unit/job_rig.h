/* job_rig.h - for tests of launcher/job: a job over a transport in memory.
 *
 * Its agents answer each order, but only when a test delivers the answer; the clock
 * stands still but where a test moves it (clock_ms, clock_ns and raise are wrapped). */
#ifndef BERTH_TESTS_JOB_RIG_H
#define BERTH_TESTS_JOB_RIG_H

#include <check.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "launcher/cli/options.h"
#include "launcher/job/job.h"
#include "launcher/job/phase.h"

enum { HOSTS_MOST = 4, RANKS_MOST = 8, QUEUE = 256 };

static uint64_t now_ms;

uint64_t __wrap_clock_ms(void)
{
	return now_ms;
}

uint64_t __wrap_clock_ns(void)
{
	return now_ms * 1000000;
}

/* ^Z stops nobody here: time passes. */
static uint64_t stopped_ms;
int __real_raise(int signo);

int __wrap_raise(int signo)
{
	if (signo != SIGSTOP)
		return __real_raise(signo);
	now_ms += stopped_ms;
	return 0;
}

/* ---- agents in memory ---- */

/* One stream: of an agent of the job, or of one that cleans a host up. */
struct conn {
	const struct transport_events *events;
	void *ctx;
	size_t host;
	bool cleans, open, mute; /* mute: it answers nothing any more */
	struct buf in;           /* what runner sent */
	struct buf answer[QUEUE];
	size_t first, n; /* of answers that were not delivered */
	uint32_t epoch, nranks, rank[RANKS_MOST];
	uint32_t given; /* what `start` says of MPI */
	bool full;      /* it takes no more bytes */
	bool running[RANKS_MOST], started, told_stop;
};

static struct rig {
	struct job j;
	struct request r;
	size_t nhosts;
	struct conn *conn[64]; /* all streams, in the order of their start */
	size_t nconns;
	struct conn *agent[HOSTS_MOST];
	bool cleaned[HOSTS_MOST]; /* a stream was opened to clean it up */
	uint64_t clock_ahead_ns;  /* of all agents */
	bool cannot[HOSTS_MOST];  /* its placement finds no program */
	uint32_t mpi[HOSTS_MOST]; /* what it finds out about MPI */
	uint32_t orders_of_kill;  /* `stop` without a grace */
	uint32_t suspends, signals, queries, missing;
	int broken; /* the end of a pipe without a reader */
	uint32_t random;
	const char *machine[HOSTS_MOST]; /* what their agents call them; or NULL */
	/* Of what agents do nothing with; or NULL. */
	void (*heard)(struct conn *c, const struct wire_frame *f);
} g;

static inline uint32_t any(uint32_t below)
{
	g.random ^= g.random << 13;
	g.random ^= g.random >> 17;
	g.random ^= g.random << 5;
	return g.random % below;
}

#define ANSWER(c, name, ...)                                                           \
	do {                                                                           \
		struct wire_##name m_ = { __VA_ARGS__ };                               \
		ck_assert_uint_lt((c)->n, QUEUE);                                      \
		wire_pack_##name(&(c)->answer[(c)->n++], &m_);                         \
	} while (0)

static void on_job(struct conn *c, const struct wire_frame *f)
{
	struct wire_job m;

	ck_assert(!wire_unpack_job(&m, f->payload, f->n, NULL));
	c->epoch = m.epoch;
	c->nranks = (uint32_t)m.ranks.n;
	c->started = c->told_stop = false;
	for (uint32_t i = 0; i < c->nranks; i++) {
		c->rank[i] = m.ranks.v[i];
		c->running[i] = false;
		ANSWER(c, berth, .epoch = c->epoch, .rank = c->rank[i], .gpu = "",
		       .gpu_name = "", .cpus = "0", .numa = "", .visible = "",
		       .why = "");
	}
	wire_free_job(&m);
	ANSWER(c, placed, .epoch = c->epoch, .idle = "", .certificate = "",
	       .id = g.cannot[c->host] ? "E_NOT_FOUND" : "", .rank = c->rank[0],
	       .text = "there is no program 'x'", .hint = "", .mpi = g.mpi[c->host]);
}

static void exits(struct conn *c, uint32_t local, uint32_t code)
{
	c->running[local] = false;
	ANSWER(c, exited, .epoch = c->epoch, .rank = c->rank[local], .pid = 7,
	       .status = code << 8, .began_ns = now_ms * 1000000, .text = "",
	       .hint = "");
}

static void on_stop(struct conn *c, const struct wire_frame *f)
{
	struct wire_stop m;

	ck_assert(!wire_unpack_stop(&m, f->payload, f->n, NULL));
	ck_assert_uint_eq(m.epoch, c->epoch);
	g.orders_of_kill += !m.grace_ms;
	if (c->told_stop)
		return;
	c->told_stop = true;
	ANSWER(c, stop_ack, c->epoch);
	for (uint32_t i = 0; i < c->nranks; i++)
		if (c->running[i])
			exits(c, i, 9);
	ANSWER(c, cleared, .epoch = c->epoch, .which = "");
}

static void on_check(struct conn *c)
{
	struct timespec real;

	clock_gettime(CLOCK_REALTIME, &real);
	ANSWER(c, check_result, .epoch = c->epoch, .row = CHECK_PROGRAM,
	       .verdict = g.cannot[c->host] ? CHECK_FAILED : CHECK_OK, .text = "x",
	       .hint = "");
	ANSWER(c, check_done, .epoch = c->epoch,
	       .realtime_ns = (uint64_t)real.tv_sec * 1000000000 +
			      (uint64_t)real.tv_nsec - now_ms * 1000000 +
			      g.clock_ahead_ns);
}

/* What an agent does with a frame of runner's. */
static void obey(struct conn *c, const struct wire_frame *f)
{
	struct wire_start start;

	switch (f->type) {
	case WIRE_job:
		on_job(c, f);
		break;
	case WIRE_start:
		ck_assert(!wire_unpack_start(&start, f->payload, f->n, NULL));
		c->given = start.mpi;
		c->started = true;
		if (start.life && g.heard)
			g.heard(c, f);
		for (uint32_t i = 0; i < c->nranks; i++) {
			if (start.life && c->rank[i] != start.rank)
				continue;
			c->running[i] = true;
			ANSWER(c, started, c->epoch, c->rank[i], 7, "0");
		}
		break;
	case WIRE_stop:
		on_stop(c, f);
		break;
	case WIRE_sweep:
		ANSWER(c, cleared, .which = "");
		break;
	case WIRE_check:
		on_check(c);
		break;
	case WIRE_suspend:
		g.suspends++;
		break;
	case WIRE_query:
		g.queries++;
		break;
	case WIRE_missing:
		g.missing++;
		break;
	case WIRE_signal:
		g.signals++;
		break;
	case WIRE_shutdown:
		c->n++; /* an empty answer: the end of the stream */
		break;
	default:
		if (g.heard)
			g.heard(c, f);
		break;
	}
}

static struct conn *memory_start(const struct transport_setup *setup,
				 const struct target *t,
				 const struct transport_events *events, void *ctx)
{
	struct conn *c = xcalloc(1, sizeof *c);

	(void)setup;
	*c = (struct conn){ .events = events,
			    .ctx = ctx,
			    .host = (size_t)(t->name[1] - '0'),
			    .open = true };
	c->cleans = ((struct host *)ctx)->agents != &g.j.agents;
	buf_add(&c->answer[0], WIRE_MAGIC, WIRE_MAGIC_BYTES);
	ANSWER(c, hello, .version = BERTH_VERSION, .wire = WIRE_VERSION, .cpus = 2,
	       .cores = 2, .gpus = 2, .address = "", .port = 20000,
	       .machine = g.machine[c->host] ? g.machine[c->host] : "");
	ck_assert_uint_lt(g.nconns, 64);
	g.conn[g.nconns++] = c;
	if (c->cleans)
		g.cleaned[c->host] = true;
	else
		g.agent[c->host] = c;
	return c;
}

static size_t memory_send(struct conn *c, const void *data, size_t n)
{
	struct wire_frame f;
	struct err e;
	long used;

	if (c->full)
		return 0;
	buf_add(&c->in, data, n);
	while ((used = wire_next_from(WIRE_LAUNCHER, &f, buf_head(&c->in), c->in.len,
				      &e)) > 0) {
		obey(c, &f);
		buf_drop(&c->in, (size_t)used);
	}
	ck_assert_int_eq(used, 0);
	return n;
}

static void memory_close(struct conn *c)
{
	c->open = false;
}

static const struct transport memory = { "memory", memory_start, memory_send,
					 memory_close, NULL };

static bool has_answer(const struct conn *c)
{
	return c && c->open && !c->mute && c->first < c->n;
}

static inline void lose(struct conn *c)
{
	static const struct transport_end end = { .status = -1, .said = "" };

	if (c && c->open)
		c->events->ended(c->ctx, &end);
}

static inline void deliver(struct conn *c)
{
	static const struct transport_end end = { .said = "" };
	struct buf *b = &c->answer[c->first++];

	if (b->len)
		c->events->bytes(c->ctx, buf_head(b), b->len);
	else
		c->events->ended(c->ctx, &end);
}

/* The agent of host_, which has no other answer to deliver, says so much. */
#define SAYS(host_, name, ...)                                                         \
	do {                                                                           \
		struct conn *c_ = g.agent[host_];                                      \
		ANSWER(c_, name, __VA_ARGS__);                                         \
		deliver(c_);                                                           \
		buf_free(&c_->answer[c_->n = --c_->first]);                            \
	} while (0)

/* ---- the rig ---- */

static void rig_open(size_t nhosts, const char *options)
{
	char *words = xstrdup(options), *rest = words, *word;
	struct strv argv = { 0 }, notes = { 0 };
	struct str print = { 0 };
	char *none[] = { NULL };
	struct selection s = { .n = nhosts, .slots_from = xstrdup("-H") };
	struct err e;

	strv_add(&argv, "runner");
	while ((word = strsep(&rest, " ")))
		if (*word)
			strv_add(&argv, word);
	strv_add(&argv, "true");
	ck_assert_msg(options_read(&g.r, &notes, &print, NULL, (int)argv.n, argv.v,
				   none, &e) == OPTIONS_RUN,
		      "%s", e.text);
	s.begin_ns = clock_ns();
	s.setup = hosts_setup(&g.r.reach, g.r.verbosity);
	s.host = xcalloc(nhosts, sizeof *s.host);
	g.nhosts = nhosts;
	for (size_t i = 0; i < nhosts; i++) {
		struct host *h = &s.host[i];

		*h = (struct host){ .name = xasprintf("h%zu", i),
				    .slots = 2,
				    .exit_status = -1,
				    .transport = &memory };
		h->target.name = h->name;
	}
	job_open(&g.j, &g.r, &s, NULL);
	strv_free(&argv);
	strv_free(&notes);
	str_free(&print);
	free(words);
}

static void rig_close(void)
{
	job_free(&g.j);
	options_free(&g.r);
	for (size_t i = 0; i < g.nconns; i++) {
		for (size_t k = 0; k < g.conn[i]->n; k++)
			buf_free(&g.conn[i]->answer[k]);
		buf_free(&g.conn[i]->in);
		free(g.conn[i]);
	}
	g = (struct rig){ .broken = g.broken, .random = g.random };
}

/* One turn of the loop, without waiting. */
static void turn(void)
{
	event_base_loop(g.j.base, EVLOOP_NONBLOCK);
	job_turn(&g.j);
}

/* All answers that there are, and those that they lead to. */
static inline void deliver_all(void)
{
	for (bool more = true; more && g.j.phase != JOB_DONE;) {
		more = false;
		for (size_t i = 0; i < g.nconns; i++)
			if (has_answer(g.conn[i])) {
				deliver(g.conn[i]);
				more = true;
				turn();
			}
	}
}

static inline void pass(uint64_t ms)
{
	now_ms += ms;
	turn();
}

static int stdout_was, stderr_was;

/* What runner says is for nobody here. */
static inline void quiet(void)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	fflush(NULL);
	dup2(null, 1);
	dup2(null, 2);
	close(null);
}

static void setup(void)
{
	int p[2];

	now_ms = 1000000;
	g = (struct rig){ .random = 1 };
	stdout_was = fcntl(1, F_DUPFD_CLOEXEC, 100);
	stderr_was = fcntl(2, F_DUPFD_CLOEXEC, 100);
	ck_assert(!pipe2(p, O_CLOEXEC));
	close(p[0]);
	g.broken = p[1];
	unsetenv("SLURM_JOB_ID");
}

static void teardown(void)
{
	fflush(NULL);
	dup2(stdout_was, 1);
	dup2(stderr_was, 2);
}

#endif
