/* What an agent's frames and a host's loss mean for the session. */
#include "launcher/session.h"

#include "launcher/report.h"

static void on_hello(void *ctx, struct host *h)
{
	struct session *s = ctx;

	events_begin(s->events, "host up");
	events_text(s->events, "host", h->name);
	events_number(s->events, "cpus", h->cpus);
	events_number(s->events, "gpus", h->gpus);
	events_end(s->events);
	if (s->request->verbosity > 0)
		report_note(s, "runner: %s is up: %u cpus, %u GPUs (%s)", h->name,
			    h->cpus, h->gpus, h->transport->name);
}

static bool rank_of(struct session *s, const struct host *h, uint32_t epoch,
		    uint32_t rank)
{
	return epoch == s->epoch && s->rank && rank < s->plan.np &&
	       s->plan.rank[rank].host == session_index(s, h);
}

static void on_berth(struct session *s, struct host *h, const struct wire_berth *m)
{
	struct rank *r;

	if (!rank_of(s, h, m->epoch, m->rank))
		return;
	r = &s->rank[m->rank];
	r->gpu = xstrdup(m->gpu);
	r->gpu_name = xstrdup(m->gpu_name);
	r->gpu_index = m->gpu_index;
	r->cpus = xstrdup(m->cpus);
	r->numa = xstrdup(m->numa);
	r->visible = xstrdup(m->visible);
	r->why = xstrdup(m->why);
	r->nshared = m->shared_with.n;
	r->shared = xcalloc(r->nshared, sizeof *r->shared);
	if (r->nshared)
		memcpy(r->shared, m->shared_with.v, r->nshared * sizeof *r->shared);
}

static void on_placed(struct session *s, struct host *h, const struct wire_placed *m)
{
	struct host_run *run = &s->run[session_index(s, h)];

	if (m->epoch != s->epoch)
		return;
	run->placed = true;
	run->idle = xstrdup(m->idle);
	run->certificate = xstrdup(m->certificate);
}

static void on_started(struct session *s, struct host *h, const struct wire_started *m)
{
	struct rank *r;

	if (!rank_of(s, h, m->epoch, m->rank))
		return;
	r = &s->rank[m->rank];
	if (r->state == RANK_WAITING)
		r->state = RANK_RUNNING;
	r->pid = m->pid;
	r->bound = xstrdup(m->cpus);
	if (s->request->report_bindings)
		report_binding(s, m->rank);
	events_begin(s->events, "rank started");
	events_number(s->events, "rank", m->rank);
	events_text(s->events, "host", h->name);
	events_number(s->events, "pid", m->pid);
	events_text(s->events, "gpu", r->gpu && *r->gpu ? r->gpu : NULL);
	events_text(s->events, "cpus", m->cpus);
	events_end(s->events);
}

static void on_output(struct session *s, struct host *h, const struct wire_output *m)
{
	if (rank_of(s, h, m->epoch, m->rank) && s->output)
		output_data(s->output, session_index(s, h), m->rank, m->stream,
			    m->data.p, m->data.n);
}

static void on_credit(struct session *s, struct host *h, const struct wire_credit *m)
{
	if (m->epoch == s->epoch)
		input_credit(s->input, h, m->bytes);
}

static void event_ended(struct session *s, const struct host *h, uint32_t rank)
{
	const struct ending *e = &s->rank[rank].ending;

	events_begin(s->events, "rank ended");
	events_number(s->events, "rank", rank);
	events_text(s->events, "host", h->name);
	events_number(s->events, "pid", s->rank[rank].pid);
	events_number(s->events, "status", outcome_status(e));
	if (e->fate == FATE_SIGNAL || e->fate == FATE_OOM)
		events_text(s->events, "signal", outcome_signal_name(e->code));
	events_end(s->events);
}

static void on_ended(struct session *s, struct host *h, const struct wire_ended *m)
{
	struct rank *r;

	if (!rank_of(s, h, m->epoch, m->rank) || s->rank[m->rank].state == RANK_ENDED)
		return;
	r = &s->rank[m->rank];
	r->state = RANK_ENDED;
	r->late = s->run[session_index(s, h)].stopping;
	if (m->pid)
		r->pid = m->pid;
	outcome_classify(&r->ending, m->status, m->oom, !m->pid);
	r->ending.at_ns = fleet_time(h, m->at_ns);
	r->ending.error_ns = h->clock_error_ns;
	r->text = xstrdup(m->text);
	r->hint = xstrdup(m->hint);
	s->ended++;
	event_ended(s, h, m->rank);
	if (r->ending.fate > FATE_OK) {
		s->failed++;
		stop_on_failure(s);
	}
	if (s->ended == s->plan.np && s->phase == PHASE_RUN)
		stop_ended(s);
}

/* Every ending that came before `end` was sent before this. */
static void on_ending(struct session *s, struct host *h, const struct wire_ending *m)
{
	struct host_run *run = &s->run[session_index(s, h)];

	if (m->epoch != s->epoch)
		return;
	run->ending = run->stopping = true;
	stop_on_ending(s);
}

static void on_gone(struct session *s, struct host *h, const struct wire_gone *m)
{
	struct host_run *run = &s->run[session_index(s, h)];

	if (m->epoch != s->epoch)
		return;
	run->gone = true;
	run->left = m->left;
	h->port = m->port;
	if (m->left)
		output_note(s->output,
			    "runner: %s: %u processes could not be ended: %s", h->name,
			    m->left, m->which);
}

static void on_agent_note(struct session *s, struct host *h, const struct wire_log *m)
{
	if (m->level >= LOG_WARNING ? s->request->verbosity < 0
				    : s->request->verbosity < 1)
		return;
	report_note(s, "runner: %s%s: %s%s%s",
		    m->level >= LOG_WARNING ? "warning: " : "", h->name, m->text,
		    *m->hint ? "\nhint: " : "", m->hint);
}

#define TAKE(name, call)                                                               \
	case WIRE_##name: {                                                            \
		struct wire_##name m;                                                  \
                                                                                       \
		if (wire_unpack_##name(&m, f->payload, f->n, &e)) {                    \
			fleet_give_up(h, &e);                                          \
			return;                                                        \
		}                                                                      \
		call;                                                                  \
		wire_free_##name(&m);                                                  \
		return;                                                                \
	}

static void on_frame(void *ctx, struct host *h, const struct wire_frame *f)
{
	struct session *s = ctx;
	struct err e = { 0 };

	switch (f->type) {
		TAKE(output, on_output(s, h, &m))
		TAKE(berth, on_berth(s, h, &m))
		TAKE(placed, on_placed(s, h, &m))
		TAKE(started, on_started(s, h, &m))
		TAKE(ended, on_ended(s, h, &m))
		TAKE(credit, on_credit(s, h, &m))
		TAKE(ending, on_ending(s, h, &m))
		TAKE(gone, on_gone(s, h, &m))
		TAKE(log, on_agent_note(s, h, &m))
	default:
		break; /* a message that only the launcher sends */
	}
}

/* Every rank of a lost host is lost now, unless its end is known. */
static void on_lost(void *ctx, struct host *h)
{
	struct session *s = ctx;
	uint32_t index = session_index(s, h);

	s->lost = true;
	if (s->phase == PHASE_START || !s->rank)
		return;
	if (!s->run[index].gone && h->err.id != E_UNCONFIRMED)
		broom_send(s, h);
	for (uint32_t local = 0; local < s->plan.local_size[index]; local++) {
		uint32_t i = s->plan.ranks[index][local];
		struct rank *r = &s->rank[i];

		if (r->state == RANK_ENDED)
			continue;
		r->state = RANK_ENDED;
		r->late = s->run[index].stopping;
		r->ending = (struct ending){ FATE_LOST, (int64_t)clock_ns(), 0, 0 };
		s->ended++;
		s->failed++;
		event_ended(s, h, i);
	}
	stop_on_failure(s);
}

static void on_silent(void *ctx, struct host *h, unsigned seconds)
{
	struct session *s = ctx;

	report_note(s, "runner: %s: no sign of life for %u s; given up after %ld s",
		    h->name, seconds, s->fleet.host_timeout_s);
}

static void on_closed(void *ctx, struct host *h)
{
	(void)ctx;
	(void)h; /* session_leave() counts them */
}

const struct fleet_events session_fleet_events = { on_hello, on_frame, on_lost,
						   on_silent, on_closed };
