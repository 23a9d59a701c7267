/* How a job ends before it wants to: failures, signals, time limits; and how all jobs
 * end. */
#include "launcher/job/job.h"

#include <event2/event.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/transport/local.h"
#include "launcher/job/rank_status.h"
#include "launcher/output/progress.h"
#include "launcher/job/report.h"

enum {
	CAUSE_MS = 800, /* to tell of endings before the first heard; agents hold 400 */
	CONFIRM_MS =
		7000, /* after the grace: agents take up to 5 s to see a process die */
	LEAVE_MS = 3000,    /* from bye to the end of the stream */
	AFTER_INT_MS = 2000 /* from TERM to KILL, when ^C had its whole grace already */
};

static uint32_t grace_ms(const struct session *s)
{
	return (uint32_t)s->request->kill_grace_s * 1000;
}

static bool up(const struct session *s, size_t i)
{
	return s->plan.np && s->agents.host[i].state == HOST_UP &&
	       s->plan.node[i] != PLAN_UNUSED;
}

/* ---- orders to the agents ---- */

void session_signal_ranks(struct session *s, int signo, bool tree)
{
	struct wire_signal m = { (uint32_t)signo, tree };

	for (size_t i = 0; i < s->agents.n; i++) {
		if (!up(s, i))
			continue;
		wire_pack_signal(&s->agents.host[i].out, &m);
		agents_flush(&s->agents.host[i]);
	}
}

static void order_end(struct session *s, uint32_t grace)
{
	struct wire_stop m = { s->epoch, grace };

	for (size_t i = 0; i < s->agents.n; i++) {
		if (!up(s, i))
			continue;
		s->run[i].ending = false;
		wire_pack_stop(&s->agents.host[i].out, &m);
		agents_flush(&s->agents.host[i]);
	}
}

void stop_ranks(struct session *s, uint32_t grace)
{
	order_end(s, grace);
	s->phase = PHASE_STOP;
	session_timer(s, (uint64_t)grace + CONFIRM_MS);
}

void stop_ended(struct session *s)
{
	if (s->failed && !s->signo) /* --keep-going: nobody has said it yet */
		report_cause(s);
	stop_ranks(s, 0);
}

static bool has_job(const struct session *s, size_t host)
{
	return up(s, host) && !s->run[host].gone;
}

bool stop_all_gone(struct session *s)
{
	return !session_waits(s, has_job);
}

/* ---- a failure and its cause ---- */

static bool owes_ending(const struct session *s, size_t host)
{
	return up(s, host) && !s->run[host].ending;
}

static bool all_ending(struct session *s)
{
	return !session_waits(s, owes_ending);
}

static void decide_cause(struct session *s)
{
	report_cause(s);
	s->phase = PHASE_STOP;
	session_timer(s, (uint64_t)grace_ms(s) + CONFIRM_MS);
}

void stop_on_failure(struct session *s)
{
	bool wanted = s->signo || s->timed_out || s->unread;

	if (s->phase != PHASE_RUN || wanted || (s->request->keep_going && !s->lost))
		return;
	s->phase = PHASE_CAUSE;
	order_end(s, grace_ms(s));
	session_timer(s, CAUSE_MS);
	if (all_ending(s)) /* no host is left to ask */
		decide_cause(s);
}

void stop_on_ending(struct session *s)
{
	if (s->phase == PHASE_CAUSE && all_ending(s))
		decide_cause(s);
}

/* ---- time ---- */

/* Hosts that have not said hello, or not placed their ranks, by --start-timeout. */
static void give_up_start(struct session *s)
{
	const bool asked = s->master_addr; /* to place ranks */
	struct err e;

	for (size_t i = 0; i < s->agents.n; i++) {
		struct host *h = &s->agents.host[i];
		bool late = h->state == HOST_STARTING ||
			    (asked && up(s, i) && !s->run[i].placed);

		if (!late)
			continue;
		err_set(&e, E_START_TIMEOUT, h->name,
			"the agent runs and says nothing");
		agents_give_up(h, &e);
	}
}

/* Hosts that did not say that all is gone. */
static void give_up_silent(struct session *s)
{
	struct err e;

	for (size_t i = 0; i < s->agents.n; i++) {
		struct host *h = &s->agents.host[i];

		if (h->state != HOST_UP || s->run[i].gone)
			continue;
		err_set(&e, E_UNCONFIRMED, h->name);
		s->run[i].unconfirmed = true;
		agents_give_up(h, &e);
	}
}

/* While a slow reader holds output up, agents can't be done: wait on. */
static void on_stop_late(struct session *s)
{
	if (s->output && output_waiting(s->output) && !s->unread) {
		s->overdue = true;
		session_timer(s, 1000);
		return;
	}
	give_up_silent(s);
}

void stop_on_timer(struct session *s)
{
	switch (s->phase) {
	case PHASE_START:
		give_up_start(s);
		break;
	case PHASE_RUN: /* the grace after a signal of the user is over */
		stop_ranks(s, s->signo == SIGINT ? AFTER_INT_MS : 0);
		break;
	case PHASE_CAUSE:
		decide_cause(s);
		break;
	case PHASE_STOP:
		on_stop_late(s);
		break;
	case PHASE_LEAVE:
		s->phase = PHASE_OVER;
		break;
	case PHASE_OVER:
		break;
	}
}

static void on_time_limit(evutil_socket_t fd, short what, void *ctx)
{
	struct session *s = ctx;
	struct err e;

	(void)fd;
	(void)what;
	if (s->phase != PHASE_RUN && s->phase != PHASE_START && !restart_wanted(s))
		return; /* it ends anyway */
	s->timed_out = true;
	err_set(&e, E_TIMEOUT, s->request->timeout_s);
	report_error(s, &e);
	if (s->phase == PHASE_START) /* of another epoch */
		s->phase = PHASE_OVER;
	if (s->phase == PHASE_RUN)
		stop_ranks(s, grace_ms(s));
}

void stop_time_limit(struct session *s)
{
	if (!s->request->timeout_s)
		return;
	s->time_limit = event_new(s->base, -1, 0, on_time_limit, s);
	event_add(s->time_limit, &(struct timeval){ .tv_sec = s->request->timeout_s });
}

/* ---- signals to runner ---- */

static bool grace_unlimited(const struct session *s)
{
	return report_in_managed_job() && !s->request->kill_grace_given;
}

static void interrupt(struct session *s)
{
	s->interrupts++;
	if (s->interrupts == 1 && s->phase == PHASE_RUN) {
		report_note(s,
			    "runner: ^C: sent SIGINT to %u ranks, SIGTERM follows in "
			    "%ld s; ^C again ends them now",
			    s->plan.np - s->ended, s->request->kill_grace_s);
		session_signal_ranks(s, SIGINT, false);
		session_timer(s, grace_ms(s));
	} else if (s->interrupts > 2) {
		stop_now(s);
	} else if (s->phase != PHASE_LEAVE) {
		if (s->phase == PHASE_CAUSE) /* what is known by now */
			report_cause(s);
		report_note(s, "runner: ^C: ending %u ranks now",
			    s->plan.np - s->ended);
		stop_ranks(s, 0);
	}
}

void stop_now(struct session *s)
{
	if (s->output)
		output_mute(s->output);
	give_up_silent(s);
	s->phase = PHASE_OVER;
}

static void terminate(struct session *s, int signo)
{
	session_signal_ranks(s, signo, false);
	if (s->phase == PHASE_RUN && !grace_unlimited(s))
		session_timer(s, grace_ms(s));
}

static void resume(struct session *s)
{
	s->agents.paused = false;
	for (size_t i = 0; i < s->agents.n; i++) {
		s->agents.host[i].heard_ms = clock_ms();
		if (!up(s, i))
			continue;
		wire_pack_resume(&s->agents.host[i].out, &(struct wire_resume){});
		agents_flush(&s->agents.host[i]);
	}
	session_signal_ranks(s, SIGCONT, true);
	input_wake(s->input);
}

static bool hosts_know(const struct session *s)
{
	for (size_t i = 0; i < s->agents.n; i++)
		if (up(s, i) && s->agents.host[i].out.len)
			return false;
	return true;
}

static void pause_in(struct session *s, unsigned ms);

static void on_pause(evutil_socket_t fd, short what, void *ctx)
{
	struct session *s = ctx;

	(void)fd;
	(void)what;
	if (!hosts_know(s) && clock_ms() < s->pause_by_ms) {
		pause_in(s, 1);
		return;
	}
	raise(SIGSTOP);
	resume(s); /* fg or bg: here runner goes on */
}

static void pause_in(struct session *s, unsigned ms)
{
	const struct timeval t = { .tv_usec = (suseconds_t)ms * 1000 };

	event_base_once(s->base, -1, EV_TIMEOUT, on_pause, s, &t);
}

/* ^Z: the ranks stop, the agents are told to count no silence, then, a tenth of a
 * second later at most, runner stops itself. */
static void suspend(struct session *s)
{
	if (s->agents.paused)
		return;
	session_signal_ranks(s, SIGSTOP, true);
	for (size_t i = 0; i < s->agents.n; i++) {
		if (!up(s, i))
			continue;
		wire_pack_suspend(&s->agents.host[i].out, &(struct wire_suspend){});
		agents_flush(&s->agents.host[i]);
	}
	s->agents.paused = true;
	s->pause_by_ms = clock_ms() + 100;
	pause_in(s, 0);
}

static void before_run(struct session *s, int signo)
{
	if (signo == SIGTSTP) {
		progress_erase(s->progress);
		raise(SIGSTOP);
		return;
	}
	if (signo != SIGINT && signo != SIGTERM && signo != SIGHUP)
		return;
	s->interrupts += signo == SIGINT;
	s->signo = signo;
	s->phase = PHASE_OVER;
}

/* A job that has failed ends anyway, and with its own status; only a shell's loop has
 * to see that ^C came. */
static bool ends_job(const struct session *s, int signo)
{
	if (signo == SIGTERM || signo == SIGHUP)
		return s->phase == PHASE_RUN || restart_wanted(s);
	return signo == SIGINT;
}

void stop_on_signal(struct session *s, int signo)
{
	if (s->phase == PHASE_START || !s->output) { /* or on the way out from there */
		before_run(s, signo);
		return;
	}
	if (!s->signo && ends_job(s, signo))
		s->signo = signo;
	switch (signo) {
	case SIGINT:
		interrupt(s);
		break;
	case SIGTERM:
	case SIGHUP:
		terminate(s, signo);
		break;
	case SIGUSR1:
	case SIGUSR2:
		session_signal_ranks(s, signo, false);
		break;
	case SIGQUIT:
		rank_status_roll_call(s);
		break;
	case SIGTSTP:
		suspend(s);
		break;
	case SIGCONT:
		input_wake(s->input);
		break;
	default:
		break;
	}
}

/* ---- the end ---- */

static bool is_leaving(const struct session *s, size_t host)
{
	return s->agents.host[host].state == HOST_LEAVING;
}

static bool all_left(struct session *s)
{
	return !session_waits(s, is_leaving) && cleanup_done(s);
}

/* Only who asks for it three times leaves hosts behind that are not swept. */
void session_leave(struct session *s)
{
	uint64_t leave_ms = s->phase == PHASE_OVER ? 500 : LEAVE_MS;
	uint64_t sweep_ms = s->interrupts > 2 ? 0 : cleanup_patience_ms(s);

	s->phase = PHASE_LEAVE;
	for (size_t i = 0; i < s->agents.n; i++)
		agents_leave(&s->agents.host[i]);
	session_timer(s, sweep_ms > leave_ms ? sweep_ms : leave_ms);
	session_until(s, all_left);
	agents_close(&s->agents);
	agents_close(&s->cleanup);
	local_wait((unsigned)leave_ms);
	report_unconfirmed(s);
	s->phase = PHASE_OVER;
}

/* Die by SIGNO, so that whoever started runner sees it (a shell's loop stops). */
static void die_by(int signo)
{
	signal(signo, SIG_DFL);
	raise(signo);
}

/* Ranks that our own TERM ended are no cause, however the clocks disagree. */
long session_cause(const struct session *s)
{
	struct ending *v = xcalloc(s->plan.np, sizeof *v);
	long cause;

	for (uint32_t i = 0; i < s->plan.np; i++)
		if (!s->rank[i].late)
			v[i] = s->rank[i].ending;
	cause = outcome_cause(v, s->plan.np);
	free(v);
	return cause;
}

bool stop_lost_late(const struct session *s)
{
	return s->lost && s->err.id == ERR_NONE && !s->timed_out && !s->signo &&
	       !s->unread && session_cause(s) < 0;
}

int session_status(struct session *s)
{
	long cause = s->rank ? session_cause(s) : -1;
	int status = 0;

	if (s->err.id != ERR_NONE)
		status = err_status(s->err.id);
	else if (s->timed_out)
		status = EXIT_TIMELIMIT;
	else if (s->signo)
		status = outcome_signalled(s->signo,
					   !s->failed && s->ended == s->plan.np);
	else if (cause >= 0)
		status = outcome_status(&s->rank[cause].ending);
	else if (s->lost)
		status = EXIT_LOST;
	else if (s->disk_failed)
		status = EXIT_RUNNER;
	events_begin(s->events, "end");
	events_number(s->events, "status", status);
	events_end(s->events);
	if (s->signo == SIGINT)
		die_by(SIGINT);
	if (s->unread && s->err.id == ERR_NONE)
		die_by(SIGPIPE);
	return status;
}
