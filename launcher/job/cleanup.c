/* A stream was lost but the host may still answer: what was daemonised there may have
 * survived its agent.  A new agent over a new stream kills what carries the job's
 * job_id. */
#include "launcher/job/job.h"

enum {
	BROOM_MS = 5000, /* for an agent to come up there */
	LAST_MS = 1000   /* and to sweep, at the last moment */
};

static size_t index_of(const struct session *s, const struct host *h)
{
	return (size_t)(h - s->cleanup.host);
}

static void on_hello(void *ctx, struct host *h)
{
	const struct session *s = ctx;
	struct wire_sweep m = { s->job_id };

	wire_pack_sweep(&h->out, &m);
	agents_flush(h);
}

static void on_frame(void *ctx, struct host *h, const struct wire_frame *f)
{
	struct session *s = ctx;

	if (f->type != WIRE_cleared)
		return;
	s->run[index_of(s, h)].unconfirmed = false;
	agents_leave(h);
}

/* The host stays unconfirmed. */
static void on_lost(void *ctx, struct host *h)
{
	(void)ctx;
	(void)h;
}

static void on_silent(void *ctx, struct host *h, unsigned seconds)
{
	(void)ctx;
	(void)h;
	(void)seconds;
}

static const struct agents_events cleanup_events = { on_hello, on_frame, on_lost,
						     on_silent, on_lost };

static void cleanup_open(struct session *s)
{
	s->cleanup =
		(struct agents){ .base = s->base,
				 .host = xcalloc(s->agents.n, sizeof *s->cleanup.host),
				 .n = s->agents.n,
				 .setup = s->agents.setup,
				 .host_timeout_s = s->agents.host_timeout_s,
				 .events = &cleanup_events,
				 .ctx = s };
}

void cleanup_send(struct session *s, const struct host *lost)
{
	size_t i = session_index(s, lost);
	struct host *h;

	s->run[i].unconfirmed = true;
	if (!s->cleanup.host)
		cleanup_open(s);
	s->cleanup.setup.deadline_ms = clock_ms() + BROOM_MS;
	h = &s->cleanup.host[i];
	*h = (struct host){ .agents = &s->cleanup,
			    .name = xstrdup(lost->name),
			    .target = lost->target,
			    .local = lost->local,
			    .transport = lost->transport };
	agents_start(&s->cleanup, h);
}

bool cleanup_done(const struct session *s)
{
	for (size_t i = 0; i < s->cleanup.n; i++) {
		enum host_state state = s->cleanup.host[i].state;

		if (state == HOST_STARTING || state == HOST_UP || state == HOST_LEAVING)
			return false;
	}
	return true;
}

uint64_t cleanup_patience_ms(const struct session *s)
{
	uint64_t until = s->cleanup.setup.deadline_ms + LAST_MS, now = clock_ms();

	return s->cleanup.host && until > now ? until - now : 0;
}
