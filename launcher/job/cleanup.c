#include "launcher/job/cleanup.h"

enum {
	LAUNCH_MS = 5000, /* for an agent to come up there */
	LAST_MS = 1000    /* and to sweep, at the last moment */
};

static void cleanup_on_hello(void *ctx, struct host *h)
{
	const struct job *j = ctx;

	AGENTS_SEND(h, sweep, &(struct wire_sweep){ j->spec.job_id });
}

static void cleanup_on_frame(void *ctx, struct host *h, const struct wire_frame *f)
{
	struct job *j = ctx;

	if (f->type != WIRE_cleared)
		return;
	j->run[h - j->cleanup.agents.host].unconfirmed = false;
	agents_leave(h);
}

static void on_end(void *ctx, struct host *h)
{
	struct job *j = ctx;

	(void)h;
	j->cleanup.running--;
	if (j->phase == JOB_CLOSE)
		j->awaited--;
}

void cleanup_postpone(struct cleanup *c, uint64_t ms)
{
	c->agents.setup.deadline_ms += ms;
	if (c->until_ms)
		c->until_ms += ms;
}

void cleanup_send(struct job *j, const struct host *lost)
{
	static const struct agents_events events = { .hello = cleanup_on_hello,
						     .frame = cleanup_on_frame,
						     .lost = on_end,
						     .closed = on_end };
	struct agents *a = &j->cleanup.agents;
	const size_t i = job_index(j, lost), most = j->agents.most;
	struct host *h;

	j->run[i].unconfirmed = true;
	if (!a->host)
		*a = (struct agents){ .base = j->base,
				      .host = xcalloc(most, sizeof *a->host),
				      .n = most,
				      .setup = j->agents.setup,
				      .host_timeout_ms = j->agents.host_timeout_ms,
				      .events = &events,
				      .ctx = j };
	a->setup.deadline_ms = clock_ms() + LAUNCH_MS;
	j->cleanup.until_ms = a->setup.deadline_ms + LAST_MS;
	h = &a->host[i];
	if (h->state == HOST_STARTING || h->state == HOST_UP ||
	    h->state == HOST_LEAVING)
		return; /* it is on its way */
	if (!h->name)
		*h = (struct host){ .agents = a,
				    .name = xstrdup(lost->name),
				    .target = lost->target,
				    .local = lost->local,
				    .transport = lost->transport };
	j->cleanup.running++;
	agents_start(a, h);
}
