/* What an agent's frames and a host's loss mean for the session. */
#include "launcher/job/job.h"

#include "launcher/job/rank_status.h"
#include "launcher/job/report.h"
#include "launcher/job/fence.h"

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

/* ---- what is no agent's to say ---- */

enum {
	NOTES_MAX = 100, /* lines of one host that are shown */
	/* What a host may tell of itself and its ranks, kept until the job ends. */
	SAID_MAX = 16 << 20,
	SAID_EACH = 4096,
	/* What the pipes of a rank can hold once its processes are dead. */
	PIPES_MAX = 2 << 20
};

static struct host_run *run_of(struct session *s, const struct host *h)
{
	return &s->run[session_index(s, h)];
}

static bool is_its(const struct session *s, const struct host *h, uint32_t rank)
{
	return s->rank && rank < s->plan.np &&
	       s->plan.rank[rank].host == session_index(s, h);
}

static const char not_its[] = "message about a rank of another host";

/* Text of an agent's, to be shown. */
static char *shown(const char *text)
{
	return str_plain(xstrdup(text));
}

/* ---- what agents say: each returns what is wrong with it, or NULL ---- */

static const char *on_berth(struct session *s, struct host *h,
			    const struct wire_berth *m)
{
	struct rank *r;

	if (!is_its(s, h, m->rank))
		return not_its;
	r = &s->rank[m->rank];
	if (r->cpus)
		return "second 'berth' message of a rank";
	r->gpu = shown(m->gpu);
	r->gpu_name = shown(m->gpu_name);
	r->gpu_index = m->gpu_index;
	r->cpus = shown(m->cpus);
	r->numa = shown(m->numa);
	r->visible = shown(m->visible);
	r->why = shown(m->why);
	r->nshared = m->shared_with.n;
	r->shared = xcalloc(r->nshared, sizeof *r->shared);
	if (r->nshared)
		memcpy(r->shared, m->shared_with.v, r->nshared * sizeof *r->shared);
	run_of(s, h)->berths++;
	return NULL;
}

static const char *on_placed(struct session *s, struct host *h,
			     const struct wire_placed *m)
{
	struct host_run *run = run_of(s, h);

	if (run->placed)
		return "second 'placed' message";
	if (run->berths != s->plan.local_size[session_index(s, h)])
		return "'placed' message before each rank's berth";
	run->placed = true;
	run->idle = shown(m->idle);
	run->certificate = shown(m->certificate);
	return NULL;
}

static const char *on_started(struct session *s, struct host *h,
			      const struct wire_started *m)
{
	struct rank *r;

	if (!is_its(s, h, m->rank))
		return not_its;
	r = &s->rank[m->rank];
	if (s->phase == PHASE_START || r->state != RANK_WAITING)
		return "'started' message of a rank that was not told to start";
	r->state = RANK_RUNNING;
	r->pid = m->pid;
	r->bound = shown(m->cpus);
	if (s->request->report_bindings)
		report_binding(s, m->rank);
	events_begin(s->events, "rank started");
	events_number(s->events, "rank", m->rank);
	events_text(s->events, "host", h->name);
	events_number(s->events, "pid", m->pid);
	events_text(s->events, "gpu", r->gpu && *r->gpu ? r->gpu : NULL);
	events_text(s->events, "cpus", m->cpus);
	events_end(s->events);
	return NULL;
}

static const char *on_output(struct session *s, struct host *h,
			     const struct wire_output *m)
{
	uint32_t index = session_index(s, h);
	struct host_run *run = &s->run[index];

	if (!is_its(s, h, m->rank) || m->stream < 1 || m->stream > 2)
		return not_its;
	if (!s->output || run->gone)
		return "output when no rank runs";
	if (WIRE_OUTPUT_HEAD_BYTES + m->data.n > run->window)
		return "more output than it was granted";
	run->window -= WIRE_OUTPUT_HEAD_BYTES + m->data.n;
	if (s->overdue)
		run->overdue_bytes += m->data.n;
	if (run->overdue_bytes / PIPES_MAX > s->plan.local_size[index])
		return "output without end after the end";
	output_data(s->output, index, m->rank, m->stream, m->data.p, m->data.n);
	return NULL;
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

static const char *on_ended(struct session *s, struct host *h,
			    const struct wire_exited *m)
{
	struct rank *r;

	if (!is_its(s, h, m->rank))
		return not_its;
	r = &s->rank[m->rank];
	if (s->phase == PHASE_START || r->state == RANK_ENDED)
		return "'exited' message of a rank that does not run";
	r->state = RANK_ENDED;
	r->late = run_of(s, h)->stopping;
	if (m->pid)
		r->pid = m->pid;
	outcome_classify(&r->ending, m->status, m->oom, !m->pid);
	r->ending.began_ns = agents_time(h, m->began_ns);
	r->ending.clock_error_ns = h->clock_error_ns;
	r->ending.error_printed_ns =
		m->error_printed_ns ? agents_time(h, m->error_printed_ns) : 0;
	r->text = xstrdup(m->text);
	r->hint = xstrdup(m->hint);
	s->ended++;
	event_ended(s, h, m->rank);
	fence_rank_ended(s, m->rank);
	if (r->ending.fate > FATE_OK) {
		s->failed++;
		stop_on_failure(s);
	}
	if (s->ended == s->plan.np && s->phase == PHASE_RUN)
		stop_ended(s);
	return NULL;
}

/* Every ending that came before `end` was sent before this. */
static const char *on_ending(struct session *s, struct host *h)
{
	struct host_run *run = run_of(s, h);

	if (s->phase == PHASE_START || s->phase == PHASE_RUN)
		return "'stop_ack' message before the end";
	run->ending = run->stopping = true;
	stop_on_ending(s);
	return NULL;
}

static const char *on_gone(struct session *s, struct host *h,
			   const struct wire_cleared *m)
{
	struct host_run *run = run_of(s, h);
	char *which;

	if (!run->stopping || run->gone)
		return "'cleared' message that nobody asked for";
	run->gone = true;
	run->left = m->left;
	h->port = m->port;
	if (!m->left)
		return NULL;
	which = shown(m->which);
	output_note(s->output, "runner: %s: %u processes could not be ended: %s",
		    h->name, m->left, which);
	free(which);
	return NULL;
}

static const char *on_credit(struct session *s, struct host *h,
			     const struct wire_credit *m)
{
	return input_credit(s->input, h, m->bytes) ? NULL : "credit beyond its limit";
}

static const char *on_agent_note(struct session *s, struct host *h,
				 const struct wire_log *m)
{
	uint32_t before = run_of(s, h)->notes;
	char *text, *hint;

	if ((m->level >= LOG_WARNING ? s->request->verbosity < 0
				     : s->request->verbosity < 1) ||
	    before > NOTES_MAX)
		return NULL;
	run_of(s, h)->notes++;
	text = before < NOTES_MAX ? shown(m->text) : xstrdup("further notes not shown");
	hint = before < NOTES_MAX ? shown(m->hint) : xstrdup("");
	report_note(s, "runner: %s%s: %.1000s%s%.500s",
		    m->level >= LOG_WARNING ? "warning: " : "", h->name, text,
		    *hint ? "\nhint: " : "", hint);
	free(text);
	free(hint);
	return NULL;
}

#define TAKE(name, call) WIRE_TAKE(name, wrong = call)
/* A message of an epoch that is over means nothing any more. */
#define TAKE_JOB(name, call)                                                           \
	TAKE(name, m.epoch<s->epoch ? NULL : m.epoch> s->epoch || !s->master_addr      \
			   ? "message about no job"                                    \
			   : call)

static int take(struct session *s, struct host *h, const struct wire_frame *f,
		struct err *e)
{
	const char *wrong = NULL;

	switch (f->type) {
		TAKE_JOB(output, on_output(s, h, &m))
		TAKE_JOB(berth, on_berth(s, h, &m))
		TAKE_JOB(placed, on_placed(s, h, &m))
		TAKE_JOB(started, on_started(s, h, &m))
		TAKE_JOB(exited, on_ended(s, h, &m))
		TAKE_JOB(credit, on_credit(s, h, &m))
		TAKE_JOB(stop_ack, on_ending(s, h))
		TAKE_JOB(cleared, on_gone(s, h, &m))
		TAKE_JOB(host_map_request, fence_asked(s, h))
		TAKE_JOB(fence, fence_texts(s, h, &m))
		TAKE_JOB(lost, fence_lost(s, h, &m))
		TAKE_JOB(stall, rank_status_stall(s, h, &m))
		TAKE_JOB(rank_op, rank_status_doing(s, h, &m))
		TAKE_JOB(query_done, rank_status_done(s, h))
		TAKE_JOB(missing_request, rank_status_ask(s, h, &m))
		TAKE(log, on_agent_note(s, h, &m))
	default:
		wrong = "second 'hello' message";
	}
	return wrong ? err_set(e, E_WIRE, wrong) : 0;
}

/* Whoever takes it sees to it that little of it is kept. */
static bool is_kept_short(unsigned type)
{
	return type == WIRE_output || type == WIRE_log || type == WIRE_credit ||
	       type == WIRE_fence || type == WIRE_stall || type == WIRE_rank_op ||
	       type == WIRE_query_done || type == WIRE_missing_request;
}

static bool says_too_much(struct session *s, const struct host *h,
			  const struct wire_frame *f)
{
	struct host_run *run = run_of(s, h);
	size_t ranks = s->plan.np ? s->plan.local_size[session_index(s, h)] : 0;

	if (!is_kept_short(f->type))
		run->said += f->n;
	return run->said > SAID_MAX + ranks * SAID_EACH;
}

static void on_frame(void *ctx, struct host *h, const struct wire_frame *f)
{
	struct err e = { 0 };

	if (says_too_much(ctx, h, f))
		err_set(&e, E_WIRE, "more than can be said of its ranks");
	else if (!take(ctx, h, f, &e))
		return;
	err_in(&e, "%s", h->name);
	agents_give_up(h, &e);
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
		cleanup_send(s, h);
	fence_host_lost(s, index);
	for (uint32_t local = 0; local < s->plan.local_size[index]; local++) {
		uint32_t i = s->plan.ranks[index][local];
		struct rank *r = &s->rank[i];

		if (r->state == RANK_ENDED)
			continue;
		r->state = RANK_ENDED;
		r->late = s->run[index].stopping;
		r->ending = (struct ending){ FATE_LOST, (int64_t)clock_ns(), 0, 0, 0 };
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
		    h->name, seconds, s->agents.host_timeout_s);
}

static void on_closed(void *ctx, struct host *h)
{
	(void)ctx;
	(void)h; /* session_leave() counts them */
}

const struct agents_events session_agents_events = { on_hello, on_frame, on_lost,
						     on_silent, on_closed };
