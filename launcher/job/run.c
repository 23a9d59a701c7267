#include "launcher/job/job.h"

#include <event2/event.h>
#include <signal.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/job/acts.h"
#include "launcher/job/dump.h"
#include "launcher/job/dump_socket.h"
#include "launcher/job/growth.h"
#include "launcher/job/job_plan.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/ledger_file.h"
#include "launcher/job/messages.h"
#include "launcher/job/monitor.h"
#include "launcher/job/phase.h"
#include "launcher/job/rank_status.h"
#include "launcher/job/report.h"
#include "launcher/job/report_file.h"
#include "launcher/job/signals.h"
#include "launcher/job/timeline.h"
#include "launcher/output/progress.h"
#include "launcher/transport/child.h"
#include "launcher/transport/ssh_pool.h"

enum { TWICE_MS = 2000 /* between two Ctrl-\ */ };

/* ---- the machine ---- */

/* EV has come.  Nothing else assigns the phase. */
static void job_take(struct job *j, enum job_event ev)
{
	const struct phase_step step = phase_step(j->phase, ev);

	if (ev == EV_LIMIT)
		j->limit_ms = 0;
	if (ev == EV_UNREAD)
		j->unread_new = false;
	if (ev == EV_LATE)
		j->deadline_ms = 0; /* the act may set one */
	if (step.next != JOB_STAY) {
		j->phase = step.next;
		j->awaited = 0;
	}
	if (step.act != ACT_NONE)
		acts_do(j, step.act);
	if (step.next != JOB_STAY) {
		phase_await(j); /* one pass over the hosts */
		j->deadline_ms = phase_deadline_ms(j, clock_ms());
	}
}

void job_turn(struct job *j)
{
	enum job_event ev;

	do {
		if (j->phase == JOB_DRAIN && j->output)
			j->awaited = !j->unread && output_waiting(j->output);
		ev = j->phase == JOB_DONE ? EV_NONE : phase_due(j, clock_ms());
		if (ev != EV_NONE)
			job_take(j, ev);
	} while (ev != EV_NONE);
}

/* Ctrl-\: the table; twice within 2 s: where the ranks are. */
static void take_quit(struct job *j)
{
	const uint64_t now = clock_ms();

	if (j->signals.quit_ms && now - j->signals.quit_ms < TWICE_MS &&
	    j->account.dump) {
		j->signals.quit_ms = 0;
		dump_ask(j->account.dump, dump_print, j);
		return;
	}
	j->signals.quit_ms = now;
	monitor_print(j);
	rank_status_print(j->serves.status);
}

void job_signal(struct job *j, int signo)
{
	switch (signo) {
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
		/* A signal after a failure leaves the failure's status, but ^C always
		 * shows: a shell's loop has to see it. */
		if (!j->signo &&
		    (signo == SIGINT || j->phase <= JOB_RUN ||
		     (j->phase < JOB_CLOSE && phase_restart_wanted(j, clock_ms()))))
			j->signo = signo;
		j->signals.last = signo;
		if (signo == SIGINT)
			j->signals.interrupts++;
		job_take(j, signo != SIGINT              ? EV_TERM
			    : j->signals.interrupts == 1 ? EV_INT1
			    : j->signals.interrupts == 2 ? EV_INT2
							 : EV_INT3);
		break;
	case SIGUSR1:
	case SIGUSR2:
		messages_signal(j, signo, false);
		break;
	case SIGQUIT:
		take_quit(j);
		break;
	case SIGCONT:
		input_wake(j->input);
		break;
	default:
		break;
	}
}

static void job_on_timer(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	(void)ctx; /* job_run() looks at the clock */
}

/* Wake up when the deadline or the limit passes. */
static void arm_timer(struct job *j)
{
	uint64_t due = j->deadline_ms, now = clock_ms();

	if (j->limit_ms && (!due || j->limit_ms < due))
		due = j->limit_ms;
	event_del(j->timer);
	if (!due)
		return;
	loop_after_ms(j->timer, due > now ? due - now : 0);
}

/* ---- from the hosts to the status ---- */

void job_open(struct job *j, const struct request *r, const struct selection *hosts,
	      const struct err *e)
{
	*j = (struct job){ .request = r,
			   .epoch = 1,
			   .source = *hosts,
			   .account.begin_ns = hosts->begin_ns,
			   .refused = e };
	if (e)
		j->err = *e;
	j->base = loop_open();
	j->timer = event_new(j->base, -1, 0, job_on_timer, j);
	signals_open(j, job_signal);
	job_spec_open(&j->spec);
	j->agents =
		(struct agents){ .base = j->base,
				 .host = hosts->host,
				 .n = hosts->n,
				 .most = hosts->n,
				 .setup = hosts->setup,
				 .host_timeout_ms = (uint64_t)r->reach.host_timeout_ms,
				 .events = &messages_events,
				 .ctx = j };
	j->agents.setup.base = j->base;
	growth_open(j);
	for (size_t i = 0; i < hosts->n; i++)
		j->agents.host[i].agents = &j->agents;
}

static bool slots_known(const struct job *j)
{
	for (size_t i = 0; i < j->agents.n; i++)
		if (j->agents.host[i].slots < 0 || job_has_gpu_slots(j, i))
			return false;
	/* else the agents know how many of these there are */
	return j->request->per_object == PER_NODE;
}

/* A line of --events among the output of the ranks. */
static void on_event(void *ctx, const char *line, size_t n)
{
	const struct job *j = ctx;

	if (j->output)
		output_line(j->output, line, n);
	else if (write(STDOUT_FILENO, line, n) < 0)
		return; /* the job goes on without it */
}

static void write_timeline(struct job *j)
{
	struct str line = { 0 };
	struct err e;

	if (!j->account.timeline)
		return;
	if (timeline_write(j->account.timeline, &line, &e))
		report_error(j, &e);
	else if (j->request->verbosity >= 0)
		report_note(j, "runner: timeline %s", str_text(&line));
	str_free(&line);
}

void job_begin(struct job *j)
{
	const struct request *r = j->request;
	const bool runs = r->plan == PLAN_OFF && !r->check;
	size_t logins = 0;

	j->run = xcalloc(j->agents.n, sizeof *j->run);
	j->account.usage = xcalloc(j->agents.n, sizeof *j->account.usage);
	record_open(&j->account.record, 0, 0, insight_period_ms(&j->request->insight));
	j->phase = JOB_LAUNCH;
	if (j->refused) /* there are no hosts */
		return;
	/* where slots are known, hosts without a rank need no agent */
	if ((slots_known(j) && job_plan_make(j)) ||
	    events_open(&j->events, r->events_file, j->spec.job_id, on_event, j,
			&j->err) ||
	    timeline_open(&j->account.timeline, runs ? r->insight.timeline.file : NULL,
			  &j->events, j->spec.job_id, &j->err) ||
	    report_file_open(j)) {
		j->refused = true;
		return;
	}
	if (runs) { /* it goes on if --dump cannot find it */
		j->account.dump = dump_open(j);
		j->account.door =
			dump_socket_open(j->account.dump, j->base, j->spec.job_id);
		if (!j->account.door && r->verbosity >= 0)
			report_note(j,
				    "runner: warning: --dump cannot find this job: %s",
				    strerror(errno));
	}
	for (size_t i = 0; i < j->agents.n; i++)
		logins += job_needs(j, i) &&
			  j->agents.host[i].transport == &transport_ssh;
	j->agents.setup.pool = ssh_pool_open(j->base, logins);
	acts_launch(j);
	phase_await(j);
	j->deadline_ms = phase_deadline_ms(j, clock_ms());
}

int job_finish(struct job *j)
{
	int status = phase_status(j);

	agents_close(&j->agents);
	agents_close(&j->cleanup.agents);
	child_wait_all(phase_close_ms(j));
	report_unconfirmed(j);
	if (j->refused) /* stdout or stderr failed while the job ended */
		acts_say_error(j);
	ledger_file_note(j);
	report_end(j, status);
	events_begin(j->events, "end");
	events_number(j->events, "status", status);
	events_end(j->events);
	report_file_write(j, status);
	write_timeline(j);
	if (j->output)
		output_settle(j->output);
	return status;
}

void job_until(struct job *j, enum job_phase phase)
{
	for (job_turn(j); j->phase < phase; job_turn(j)) {
		arm_timer(j);
		event_base_loop(j->base, EVLOOP_ONCE);
	}
}

int job_run(struct job *j)
{
	job_begin(j);
	job_until(j, JOB_DONE);
	return job_finish(j);
}

void job_free(struct job *j)
{
	struct ssh_pool *pool = j->agents.setup.pool;

	growth_close(&j->growth);
	monitor_close(j);
	acts_forget_ranks(j);
	free(j->rank);
	free(j->run);
	free(j->source.slots_from);
	free(j->source.warning);
	check_lines_free(&j->checks);
	account_free(&j->account);
	job_spec_free(&j->spec);
	plan_free(&j->plan);
	progress_close(j->progress);
	output_free(j->output);
	input_free(j->input);
	events_close(j->events);
	report_file_close(j);
	timeline_free(j->account.timeline);
	dump_socket_free(j->account.door);
	dump_free(j->account.dump);
	free((char *)j->agents.setup.own_agent);
	agents_free(&j->agents);
	agents_free(&j->cleanup.agents);
	ssh_pool_close(pool);
	signals_close(&j->signals);
	event_free(j->timer);
	event_base_free(j->base);
}
