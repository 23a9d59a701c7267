#include "launcher/job/messages.h"

#include <signal.h>

#include "launcher/job/check.h"
#include "launcher/job/cleanup.h"
#include "launcher/job/exchange.h"
#include "launcher/job/dump.h"
#include "launcher/job/fence.h"
#include "launcher/job/growth.h"
#include "launcher/job/hang.h"
#include "launcher/job/health.h"
#include "launcher/job/host_map.h"
#include "launcher/job/monitor.h"
#include "launcher/job/mpi.h"
#include "launcher/job/names.h"
#include "launcher/job/phase.h"
#include "launcher/job/rank_status.h"
#include "launcher/job/report.h"
#include "launcher/job/timeline.h"

static void messages_on_hello(void *ctx, struct host *h)
{
	struct job *j = ctx;

	phase_host(j, job_index(j, h), RUN_EV_HELLO);
	health_ask(j, h);
	growth_look(j);
	events_begin(j->events, "host up");
	events_text(j->events, "host", h->name);
	events_number(j->events, "cpus", h->cpus);
	events_number(j->events, "gpus", h->gpus);
	events_end(j->events);
	if (j->request->verbosity > 0)
		report_note(j, "runner: %s is up: %u cpu%s, %u GPU%s (%s)", h->name,
			    h->cpus, str_plural(h->cpus), h->gpus, str_plural(h->gpus),
			    h->transport->name);
}

/* It may be on its way already. */
static const char *on_host_map_request(struct job *j, struct host *h)
{
	if (!j->serves.fence)
		return "'host_map_request' message out of turn";
	if (fence_uses(j->serves.fence, h))
		host_map_send(j, h);
	return NULL;
}

/* ---- what runner tells ---- */

void messages_start(struct job *j)
{
	const struct wire_start m = { .epoch = j->epoch, .mpi = mpi_given(j) };

	j->unstarted = j->plan.np;
	for (uint32_t i = 0; i < j->plan.np; i++)
		j->rank[i].state = RANK_STARTING;
	for (size_t i = 0; i < j->agents.n; i++) {
		if (!job_reaches(j, i))
			continue;
		if (j->plan.local_size[i] > j->account.usage[i].ranks)
			j->account.usage[i].ranks = j->plan.local_size[i];
		if (m.mpi & MPI_GIVE_PMIX) {
			j->agents.host[i].out_due += MPI_QUEUED_MOST + MPI_ANSWER_MOST;
			if (j->plan.nodes > 1)
				on_host_map_request(j, &j->agents.host[i]);
		}
		AGENTS_SEND(&j->agents.host[i], start, &m);
	}
}

void messages_stop(struct job *j, uint32_t grace_ms)
{
	const struct wire_stop m = { j->epoch, grace_ms };

	j->grace_ms = grace_ms;
	for (size_t i = 0; i < j->agents.n; i++) {
		if (!job_reaches(j, i))
			continue;
		AGENTS_SEND(&j->agents.host[i], stop, &m);
	}
}

void messages_signal(struct job *j, int signo, bool tree)
{
	const struct wire_signal m = { (uint32_t)signo, tree };

	if (j->phase < JOB_RUN)
		return;
	for (size_t i = 0; i < j->agents.n; i++) {
		if (!job_reaches(j, i))
			continue;
		AGENTS_SEND(&j->agents.host[i], signal, &m);
	}
}

void messages_credit(void *job, uint32_t host, size_t n)
{
	struct job *j = job;
	struct host *h = &j->agents.host[host];
	struct host_run *run = &j->run[host];
	struct wire_credit m = { .epoch = j->epoch };

	run->credit += n;
	if (run->credit < j->spec.credit_bytes / 4)
		return;
	m.bytes = (uint32_t)run->credit;
	run->credit = 0;
	if (h->state != HOST_UP)
		return;
	run->window += m.bytes;
	AGENTS_SEND(h, credit, &m);
}

/* ---- what agents say: each function returns what is wrong with it, or NULL ---- */

enum {
	NOTES_MAX = 100, /* lines of one host that are shown */
	/* Bytes of frames that are kept until the job ends: of a host, of each rank. */
	SAID_MAX = 16 << 20,
	SAID_EACH = 4096,
	/* Bytes that the pipes of a rank can hold once its processes are dead. */
	PIPES_MAX = 2 << 20
};

static struct host_run *run_of(struct job *j, const struct host *h)
{
	return &j->run[job_index(j, h)];
}

static const char not_its[] = "message about a rank of another host";

/* A copy of an agent's TEXT that can be shown. */
static char *messages_shown(const char *text)
{
	return str_plain(xstrdup(text));
}

static const char *on_berth(struct job *j, struct host *h, const struct wire_berth *m)
{
	struct rank *r;

	if (!job_has_rank(j, h, m->rank))
		return not_its;
	r = &j->rank[m->rank];
	if (r->cpus)
		return "second 'berth' message of a rank";
	r->gpu = messages_shown(m->gpu);
	r->gpu_name = messages_shown(m->gpu_name);
	r->gpu_index = m->gpu_index;
	r->cpus = messages_shown(m->cpus);
	r->numa = messages_shown(m->numa);
	r->visible = messages_shown(m->visible);
	r->why = messages_shown(m->why);
	r->nshared = m->shared_with.n;
	r->shared = xcalloc(r->nshared, sizeof *r->shared);
	if (r->nshared)
		memcpy(r->shared, m->shared_with.v, r->nshared * sizeof *r->shared);
	run_of(j, h)->berths++;
	return NULL;
}

/* M tells of the programs.  Returns the fault of M, or NULL. */
static const char *on_programs(struct job *j, struct host *h,
			       const struct wire_placed *m)
{
	struct host_run *run = run_of(j, h);
	const enum err_id id = err_by_name(m->id);

	if (!*m->id)
		return NULL;
	if (!job_has_rank(j, h, m->rank))
		return not_its;
	if (id != E_NOT_FOUND && id != E_NOT_EXECUTABLE && id != E_WDIR &&
	    id != E_SPAWN && id != E_HOROVOD && id != E_PACKAGE)
		return "'placed' message with an impossible error";
	run->cannot = id;
	run->cannot_rank = m->rank;
	run->cannot_text = messages_shown(m->text);
	run->cannot_hint = messages_shown(m->hint);
	return NULL;
}

/* The ranks of H join those that run. */
static void start_newcomers(struct job *j, struct host *h)
{
	const uint32_t index = job_index(j, h), n = j->plan.local_size[index];
	/* MPI's world is of the ranks that it began with */
	const struct wire_start m = { .epoch = j->epoch, .joins = true };
	const struct host_run *run = run_of(j, h);
	struct err e;

	if (run->cannot) {
		err_set(&e, E_SYSTEM, h->name, run->cannot_text);
		agents_give_up(h, &e);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct rank *r = &j->rank[j->plan.ranks[index][i]];

		r->state = RANK_STARTING;
		r->again_ms = clock_ms();
	}
	j->unstarted += n;
	if (n > j->account.usage[index].ranks)
		j->account.usage[index].ranks = n;
	AGENTS_SEND(h, start, &m);
}

static const char *on_placed(struct job *j, struct host *h, const struct wire_placed *m)
{
	struct host_run *run = run_of(j, h);
	const char *wrong;

	if (run->berths != j->plan.local_size[job_index(j, h)])
		return "'placed' message before each rank's berth";
	if (!phase_host(j, job_index(j, h), RUN_EV_PLACED))
		return "second 'placed' message";
	if (m->ports.n != (j->spec.tf_config ? run->berths : 0))
		return "'placed' message with a wrong number of ports";
	for (size_t i = 0; i < m->ports.n; i++)
		if (!m->ports.v[i] || m->ports.v[i] > 65535)
			return "'placed' message with an impossible port";
	run->ports = xcalloc(m->ports.n + 1, sizeof *run->ports);
	if (m->ports.n)
		memcpy(run->ports, m->ports.v, m->ports.n * sizeof *run->ports);
	run->mpi = m->mpi;
	run->idle = messages_shown(m->idle);
	run->certificate = messages_shown(m->certificate);
	if (*m->drawing)
		run->drawing = xstrdup(m->drawing);
	wrong = on_programs(j, h, m);
	if (!wrong && j->phase == JOB_RUN && !run->leaves)
		start_newcomers(j, h);
	return wrong;
}

/* RANK runs now, or never will. */
static void leave_starting(struct job *j, struct rank *r, enum rank_state state)
{
	const bool starting = r->state == RANK_STARTING;

	r->state = state;
	if (starting && !--j->unstarted && !r->starts && j->request->report_bindings)
		report_bindings(j);
}

static const char *on_started(struct job *j, struct host *h,
			      const struct wire_started *m)
{
	struct rank *r;
	struct err e;

	if (!job_has_rank(j, h, m->rank))
		return not_its;
	r = &j->rank[m->rank];
	if (r->state != RANK_STARTING)
		return "'started' message of a rank that was not told to start";
	r->pid = m->pid;
	r->bound = messages_shown(m->cpus);
	if (r->starts && output_rank_again(j->output, m->rank, &e)) {
		report_error(j, &e);
		j->disk_failed = true;
	}
	leave_starting(j, r, RANK_RUNNING);
	timeline_begin(j->account.timeline, j->epoch, m->rank, h);
	events_begin(j->events, "rank started");
	events_number(j->events, "rank", m->rank);
	events_text(j->events, "host", h->name);
	events_number(j->events, "pid", m->pid);
	events_text(j->events, "gpu", r->gpu && *r->gpu ? r->gpu : NULL);
	events_text(j->events, "cpus", m->cpus);
	events_end(j->events);
	return NULL;
}

static bool gives_stream(const struct job *j, uint32_t stream)
{
	switch (stream) {
	case WIRE_STDOUT:
	case WIRE_STDERR:
		return true;
	case WIRE_NCCL_LOG:
		return j->request->insight.nccl_transports;
	case WIRE_TIMELINE:
		return j->account.timeline;
	default:
		return false;
	}
}

static const char *on_output(struct job *j, struct host *h, const struct wire_output *m)
{
	uint32_t index = job_index(j, h);
	struct host_run *run = &j->run[index];

	if (!job_has_rank(j, h, m->rank) || !gives_stream(j, m->stream))
		return not_its;
	if (!j->output || run->phase >= RUN_CLEARED)
		return "output when no rank runs";
	if (WIRE_OUTPUT_HEAD_BYTES + m->data.n > run->window)
		return "more output than it was granted";
	run->window -= WIRE_OUTPUT_HEAD_BYTES + m->data.n;
	if (m->stream == WIRE_TIMELINE) {
		if (!timeline_data(j->account.timeline, m->rank, h, m->data.p,
				   m->data.n))
			return not_its;
		messages_credit(j, index, WIRE_OUTPUT_HEAD_BYTES + m->data.n);
		return NULL;
	}
	if (j->overdue)
		run->overdue_bytes += m->data.n;
	if (run->overdue_bytes / PIPES_MAX > j->plan.local_size[index])
		return "more output after the end of the ranks than their pipes can "
		       "hold";
	output_data(j->output, index, m->rank, m->stream, m->data.p, m->data.n);
	return NULL;
}

void messages_note_restart(struct job *j)
{
	const size_t most = (size_t)j->request->lives.restarts;

	j->account.restarts.all++;
	if (!j->request->lives.span_ms)
		return;
	if (j->account.restarts.n == most)
		memmove(j->account.restarts.at_ms, j->account.restarts.at_ms + 1,
			--j->account.restarts.n * sizeof *j->account.restarts.at_ms);
	j->account.restarts.at_ms =
		xreallocarray(j->account.restarts.at_ms, j->account.restarts.n + 1,
			      sizeof *j->account.restarts.at_ms);
	j->account.restarts.at_ms[j->account.restarts.n++] = clock_ms();
}

static void log_end(const struct job *j, const struct host *h, uint32_t rank)
{
	const struct rank *r = &j->rank[rank];
	const enum fate fate = r->ending.fate;

	events_begin(j->events, "rank ended");
	events_number(j->events, "rank", rank);
	events_text(j->events, "host", h->name);
	events_number(j->events, "pid", r->pid);
	events_number(j->events, "status", outcome_status(&r->ending));
	if (fate == FATE_SIGNAL || fate == FATE_OOM)
		events_text(j->events, "signal", outcome_signal_name(r->ending.code));
	events_end(j->events);
}

/* RANK of host H, which was in phase AT, has ended, or is lost with it: all that wait
 * for the rank hear of it here.  fence.h hears of a lost host as a whole. */
static void rank_gone(struct job *j, const struct host *h, uint32_t rank,
		      enum host_phase at)
{
	struct rank *r = &j->rank[rank];
	const enum fate fate = r->ending.fate;
	const bool dismissed = r->dismissed && fate != FATE_LOST;

	leave_starting(j, r, RANK_ENDED);
	r->late = at >= RUN_STOPPED || dismissed || r->left_out;
	j->ended++;
	j->failed += fate > FATE_OK && !dismissed && !r->left_out;
	j->growth.left_out += r->left_out;
	if (j->phase == JOB_RUN && fence_has_newcomer(j->serves.fence))
		phase_await(j); /* the others may not be */
	else if (j->phase == JOB_RUN && !job_serves(j, rank))
		j->awaited--;
	log_end(j, h, rank);
	if (fate != FATE_LOST)
		fence_rank_ended(j->serves.fence, rank);
	exchange_rank_ended(j->serves.exchanges, rank);
	names_rank_ended(j->serves.names, rank);
}

void messages_missed(void *job, uint32_t rank)
{
	struct job *j = job;
	struct rank *r = &j->rank[rank];

	if (r->state != RANK_ENDED || r->ending.fate != FATE_OK)
		return;
	r->ending.fate = FATE_EXIT;
	r->ending.code = 1;
	free(r->text);
	r->text = xstrdup("exited with status 0 while others waited for it in MPI");
	j->failed++;
}

/* RANK of host H has failed: it starts again, and its agent ends what it left. */
static void rank_again(struct job *j, struct host *h, uint32_t rank)
{
	struct rank *r = &j->rank[rank];
	struct wire_start m = { .epoch = j->epoch, .mpi = mpi_given(j), .rank = rank };

	m.joins = fence_can_replace(j->serves.fence, rank);
	log_end(j, h, rank);
	exchange_rank_ended(j->serves.exchanges, rank);
	names_rank_ended(j->serves.names, rank);
	messages_note_restart(j);
	report_replaced(j, rank);
	rank_status_forget(j->serves.status, rank);
	r->state = RANK_STARTING;
	r->ending = (struct ending){ 0 };
	free(r->bound);
	free(r->text);
	free(r->hint);
	free(r->hung_text);
	r->bound = r->text = r->hint = r->hung_text = NULL;
	r->hung = HANG_LEAVE;
	m.life = ++r->starts + 1;
	r->again_ms = clock_ms();
	j->unstarted++;
	events_begin(j->events, "rank starts again");
	events_number(j->events, "rank", rank);
	events_number(j->events, "life", m.life);
	events_text(j->events, "text", account_last_loss(&j->account));
	events_end(j->events);
	AGENTS_SEND(h, start, &m);
	if (m.joins)
		fence_rank_again(j->serves.fence, rank);
	phase_await(j); /* the work may be over, since it began to die */
}

static void messages_back(void *job, uint32_t rank, uint32_t ranks)
{
	struct job *j = job;

	phase_await(j);
	report_back(j, rank, ranks);
	events_begin(j->events, "rank is back");
	events_number(j->events, "rank", rank);
	events_number(j->events, "life", j->rank[rank].starts + 1);
	events_number(j->events, "ranks", ranks);
	events_end(j->events);
}

/* The others have gone on without the ranks of HOST. */
static void messages_left(void *job, uint32_t host)
{
	struct job *j = job;
	struct host *h = &j->agents.host[host];
	const struct wire_stop m = { j->epoch, (uint32_t)j->request->kill_grace_ms };

	for (uint32_t i = 0; i < j->plan.local_size[host]; i++)
		j->rank[j->plan.ranks[host][i]].left_out = true;
	report_left(j, h);
	AGENTS_SEND(h, stop, &m);
}

const struct fence_events messages_of_fence = { messages_back, messages_left };

static const char *messages_on_exited(struct job *j, struct host *h,
				      const struct wire_exited *m)
{
	struct rank *r;

	if (!job_has_rank(j, h, m->rank))
		return not_its;
	r = &j->rank[m->rank];
	if (r->state != RANK_STARTING && r->state != RANK_RUNNING)
		return "'exited' message of a rank that does not run";
	if (m->pid)
		r->pid = m->pid;
	outcome_classify(&r->ending, m->status, m->oom, !m->pid);
	r->ending.began_ns = agents_time(h, m->began_ns);
	r->ending.clock_error_ns = h->clock_error_ns;
	r->ending.error_printed_ns =
		m->error_printed_ns ? agents_time(h, m->error_printed_ns) : 0;
	r->text = xstrdup(m->text);
	r->hint = xstrdup(m->hint);
	usage_rank(&j->account.usage[job_index(j, h)], (uint64_t)r->ending.began_ns,
		   m->cpu_us, m->peak_bytes);
	if (run_of(j, h)->phase == RUN_PLACED && !r->left_out &&
	    phase_replace_wanted(j, m->rank, clock_ms()))
		rank_again(j, h, m->rank);
	else
		rank_gone(j, h, m->rank, run_of(j, h)->phase);
	return NULL;
}

/* Its agent sent each `exited` that came before `stop` before this. */
static const char *on_stop_ack(struct job *j, struct host *h)
{
	if ((j->phase <= JOB_RUN && !run_of(j, h)->leaves) ||
	    !phase_host(j, job_index(j, h), RUN_EV_STOP_ACK))
		return "'stop_ack' message before the end";
	return NULL;
}

/* The ranks of H that run are lost.  H leaves the plan if the others GO_ON. */
static void ranks_gone(struct job *j, struct host *h, enum host_phase at, bool go_on)
{
	const uint32_t index = job_index(j, h);

	for (uint32_t local = 0; local < j->plan.local_size[index]; local++) {
		const uint32_t i = j->plan.ranks[index][local];
		struct rank *r = &j->rank[i];

		if (r->state == RANK_ENDED)
			continue;
		r->ending = (struct ending){ FATE_LOST, (int64_t)clock_ns(), 0, 0, 0 };
		r->left_out = go_on;
		usage_rank(&j->account.usage[index], clock_ns(), 0, 0);
		rank_gone(j, h, i, at);
	}
	if (go_on)
		plan_leave(&j->plan, index);
}

static const char *on_cleared(struct job *j, struct host *h,
			      const struct wire_cleared *m)
{
	struct host_run *run = run_of(j, h);
	char *which;

	if (m->port > 65535) /* the next epoch's MASTER_PORT */
		return "'cleared' message with an impossible port";
	if (!phase_host(j, job_index(j, h), RUN_EV_CLEARED))
		return "'cleared' message that nobody asked for";
	usage_epoch(&j->account.usage[job_index(j, h)], m->cpu_us, m->peak_bytes);
	run->unkillable = m->unkillable;
	h->port = m->port;
	if (run->leaves && j->phase == JOB_RUN) {
		phase_host(j, job_index(j, h), RUN_EV_LEAVE);
		agents_leave(h);
		ranks_gone(j, h, RUN_CLEARED, true); /* that were never started */
	}
	if (!m->unkillable)
		return NULL;
	which = messages_shown(m->which);
	report_note(j, "runner: %s: %u process%s could not be killed: %s", h->name,
		    m->unkillable, m->unkillable == 1 ? "" : "es", which);
	free(which);
	return NULL;
}

static const char *on_agent_note(struct job *j, struct host *h,
				 const struct wire_log *m)
{
	uint32_t before = run_of(j, h)->notes;
	char *text, *hint;

	if ((m->level >= LOG_WARNING ? j->request->verbosity < 0
				     : j->request->verbosity < 1) ||
	    before > NOTES_MAX)
		return NULL;
	run_of(j, h)->notes++;
	text = before < NOTES_MAX ? messages_shown(m->text)
				  : xstrdup("further notes not shown");
	hint = before < NOTES_MAX ? messages_shown(m->hint) : xstrdup("");
	report_note(j, "runner: %s%s: %.1000s%s%.500s",
		    m->level >= LOG_WARNING ? "warning: " : "", h->name, text,
		    *hint ? "\nhint: " : "", hint);
	free(text);
	free(hint);
	return NULL;
}

/* Slurm sends TERM to agents, and maybe to runner: it is one request. */
static const char *on_terminate(struct job *j, struct host *h)
{
	const bool first = !j->signals.told_ms;

	if (j->growth.tick && h->transport != &transport_srun) {
		growth_dismiss(j, job_index(j, h));
		return NULL;
	}
	j->signals.told_ms = clock_ms();
	if (first && j->signals.last != SIGTERM)
		j->signals.on_signal(j, SIGTERM);
	return NULL;
}

#define TAKE(name, call) WIRE_TAKE(name, wrong = call)
/* A message of an earlier epoch is dropped. */
#define TAKE_JOB(name, call)                                                           \
	TAKE(name, m.epoch<j->epoch ? NULL : m.epoch> j->epoch ||                      \
				   !j->spec.master_addr ||                             \
				   !job_needs(j, job_index(j, h))                      \
			   ? "message about no job"                                    \
			   : call)

static int messages_take(struct job *j, struct host *h, const struct wire_frame *f,
			 struct err *e)
{
	const char *wrong = NULL;

	switch (f->type) {
		TAKE_JOB(output, on_output(j, h, &m))
		TAKE_JOB(berth, on_berth(j, h, &m))
		TAKE_JOB(placed, on_placed(j, h, &m))
		TAKE_JOB(check_result, check_result(j, h, &m))
		TAKE_JOB(check_done, check_done(j, h, &m))
		TAKE_JOB(started, on_started(j, h, &m))
		TAKE_JOB(exited, messages_on_exited(j, h, &m))
		TAKE_JOB(credit, input_credit(j->input, h, m.bytes)
					 ? NULL
					 : "credit beyond its limit")
		TAKE_JOB(stop_ack, on_stop_ack(j, h))
		TAKE_JOB(cleared, on_cleared(j, h, &m))
		TAKE_JOB(host_map_request, on_host_map_request(j, h))
		TAKE_JOB(exchange, exchange_take(j->serves.exchanges, h, &m))
		TAKE_JOB(absent, exchange_absent(j->serves.exchanges, h, &m))
		TAKE_JOB(modex_request, mpi_modex_request(j, h, &m))
		TAKE_JOB(modex_data, mpi_modex_data(j, h, &m))
		TAKE_JOB(publish, names_publish(j->serves.names, h, &m))
		TAKE_JOB(lookup, names_lookup(j->serves.names, h, &m))
		TAKE_JOB(unpublish, names_unpublish(j->serves.names, h, &m))
		TAKE_JOB(event, names_event(j->serves.names, h, &m))
		TAKE_JOB(elastic, fence_elastic(j->serves.fence, h, &m))
		TAKE_JOB(change, fence_change(j->serves.fence, h, &m))
		TAKE_JOB(lost, fence_lost(j->serves.fence, h, &m))
		TAKE_JOB(rank_use, monitor_use(j, h, &m))
		TAKE_JOB(rank_ops, monitor_ops(j, h, &m))
		TAKE_JOB(large_ops, monitor_large(j, h, &m))
		TAKE_JOB(host_use, monitor_host(j, h, &m))
		TAKE_JOB(stall, rank_status_stall(j->serves.status, h, &m))
		TAKE_JOB(rank_op, rank_status_op(j->serves.status, h, &m))
		TAKE_JOB(query_done, rank_status_done(j->serves.status, h))
		TAKE_JOB(dumped, dump_dumped(j->account.dump, h, &m))
		TAKE_JOB(looked, hang_looked(j->serves.hang, h, &m))
		TAKE_JOB(missing_request,
			 rank_status_missing_request(j->serves.status, h, &m))
		TAKE(healthy, health_take(j, h, &m))
		TAKE(log, on_agent_note(j, h, &m))
		TAKE(terminate, on_terminate(j, h))
	default:
		wrong = "second 'hello' message";
	}
	return wrong ? err_set(e, E_WIRE, wrong) : 0;
}

/* The handlers of these keep little of them. */
static bool is_kept_short(unsigned type)
{
	return type == WIRE_output || type == WIRE_log || type == WIRE_credit ||
	       type == WIRE_exchange || type == WIRE_absent || type == WIRE_stall ||
	       type == WIRE_rank_op || type == WIRE_query_done ||
	       type == WIRE_missing_request || type == WIRE_modex_request ||
	       type == WIRE_modex_data || type == WIRE_publish || type == WIRE_lookup ||
	       type == WIRE_unpublish || type == WIRE_event || type == WIRE_change ||
	       type == WIRE_elastic || type == WIRE_looked || type == WIRE_dumped ||
	       type == WIRE_rank_use || type == WIRE_rank_ops ||
	       type == WIRE_large_ops || type == WIRE_host_use || type == WIRE_gpu_use;
}

static void messages_on_frame(void *ctx, struct host *h, const struct wire_frame *f)
{
	struct job *j = ctx;
	struct host_run *run = run_of(j, h);
	const size_t ranks = job_reaches(j, job_index(j, h))
				     ? j->plan.local_size[job_index(j, h)]
				     : 0;
	struct err e = { 0 };

	if (!is_kept_short(f->type))
		run->said_bytes += f->n;
	if (run->said_bytes > SAID_MAX + ranks * SAID_EACH)
		err_set(&e, E_WIRE, "more bytes than its ranks need");
	else if (!messages_take(j, h, f, &e))
		return;
	err_in(&e, "%s", h->name);
	agents_give_up(h, &e);
}

/* H answers nothing any more.  Each of its ranks that is not known to have ended has
 * failed. */
static void on_lost(void *ctx, struct host *h)
{
	struct job *j = ctx;
	const uint32_t index = job_index(j, h);
	const enum job_phase phase = j->phase;
	const enum host_phase at = j->run[index].phase;
	const bool goes_on = phase_goes_on_without(j, index);

	phase_host(j, index, RUN_EV_LOST);
	growth_lost(j, index);
	if (!job_needs(j, index) || phase == JOB_CLOSE)
		return;
	j->lost |= !goes_on;
	if (phase < JOB_RUN || !j->rank)
		return;
	if (goes_on)
		report_left(j, h);
	if (at != RUN_CLEARED && h->err.id != E_UNCONFIRMED)
		cleanup_send(j, h);
	fence_host_lost(j->serves.fence, index);
	ranks_gone(j, h, at, goes_on);
	if (goes_on)
		growth_look(j); /* a spare host takes its ranks */
}

static void on_silent(void *ctx, struct host *h, unsigned seconds)
{
	struct job *j = ctx;

	struct str limit = { 0 };

	str_add_seconds(&limit, j->agents.host_timeout_ms);
	report_note(j, "runner: %s: no message for %u s; given up after %s s", h->name,
		    seconds, str_text(&limit));
	str_free(&limit);
}

static void messages_on_closed(void *ctx, struct host *h)
{
	struct job *j = ctx;

	phase_host(j, job_index(j, h), RUN_EV_CLOSED);
}

const struct agents_events messages_events = { messages_on_hello, messages_on_frame,
					       on_lost, on_silent, messages_on_closed };
