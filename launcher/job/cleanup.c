/* A stream was lost but the host may still answer: what was daemonised there may have
 * survived its agent.  A new agent over a new stream kills what carries the job's
 * cookie. */
#include "launcher/job/job.h"

enum {
	BROOM_MS = 5000, /* for an agent to come up there */
	LAST_MS = 1000   /* and to sweep, at the last moment */
};

static size_t index_of(const struct session *s, const struct host *h)
{
	return (size_t)(h - s->broom.host);
}

static void on_hello(void *ctx, struct host *h)
{
	const struct session *s = ctx;
	struct wire_sweep m = { s->cookie };

	wire_pack_sweep(&h->out, &m);
	fleet_flush(h);
}

static void on_frame(void *ctx, struct host *h, const struct wire_frame *f)
{
	struct session *s = ctx;

	if (f->type != WIRE_gone)
		return;
	s->run[index_of(s, h)].unconfirmed = false;
	fleet_leave(h);
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

static const struct fleet_events broom_events = { on_hello, on_frame, on_lost,
						  on_silent, on_lost };

static void broom_open(struct session *s)
{
	s->broom = (struct fleet){ .base = s->base,
				   .host = xcalloc(s->fleet.n, sizeof *s->broom.host),
				   .n = s->fleet.n,
				   .setup = s->fleet.setup,
				   .host_timeout_s = s->fleet.host_timeout_s,
				   .events = &broom_events,
				   .ctx = s };
}

void broom_send(struct session *s, const struct host *lost)
{
	size_t i = session_index(s, lost);
	struct host *h;

	s->run[i].unconfirmed = true;
	if (!s->broom.host)
		broom_open(s);
	s->broom.setup.deadline_ms = clock_ms() + BROOM_MS;
	h = &s->broom.host[i];
	*h = (struct host){ .fleet = &s->broom,
			    .name = xstrdup(lost->name),
			    .target = lost->target,
			    .local = lost->local,
			    .transport = lost->transport };
	fleet_start(&s->broom, h);
}

bool broom_done(const struct session *s)
{
	for (size_t i = 0; i < s->broom.n; i++) {
		enum host_state state = s->broom.host[i].state;

		if (state == HOST_STARTING || state == HOST_UP || state == HOST_LEAVING)
			return false;
	}
	return true;
}

uint64_t broom_patience_ms(const struct session *s)
{
	uint64_t until = s->broom.setup.deadline_ms + LAST_MS, now = clock_ms();

	return s->broom.host && until > now ? until - now : 0;
}
