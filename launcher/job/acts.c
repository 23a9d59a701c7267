#include "launcher/job/acts.h"

#include <errno.h>
#include <signal.h>

#include "launcher/hosts/same_host.h"
#include "launcher/job/check.h"
#include "launcher/job/dump.h"
#include "launcher/job/exchange.h"
#include "launcher/job/fence.h"
#include "launcher/job/forget.h"
#include "launcher/job/growth.h"
#include "launcher/job/hang.h"
#include "launcher/job/health.h"
#include "launcher/job/job_plan.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/messages.h"
#include "launcher/job/monitor.h"
#include "launcher/job/names.h"
#include "launcher/job/rank_status.h"
#include "launcher/job/report.h"
#include "launcher/job/timeline.h"
#include "launcher/output/progress.h"

enum {
	AFTER_INT_MS = 2000 /* from TERM to KILL, when ^C had its whole grace already */
};

static uint32_t grace_ms(const struct job *j)
{
	return (uint32_t)j->request->kill_grace_ms;
}

/* ---- LAUNCH: agents ---- */

static void warn_of_waits(void *job, const struct err *e)
{
	report_note(job, "runner: warning: %s\nhint: %s", e->text, e->hint);
}

void acts_launch(struct job *j)
{
	if (j->epoch > 1) /* that of the first began with the search for addresses */
		j->agents.setup.deadline_ms =
			clock_ms() + (uint64_t)j->request->reach.start_timeout_ms;
	for (size_t i = 0; i < j->agents.n; i++)
		if (job_needs(j, i) && phase_host(j, i, RUN_EV_START))
			agents_start(&j->agents, &j->agents.host[i]);
	if (j->request->verbosity == 0 || j->request->verbosity == 1)
		j->progress = progress_open(&j->agents, warn_of_waits, j);
}

/* ---- PLACE: ranks to hosts, and to berths ---- */

/* The hosts whose ranks read stdin in this epoch. */
static void aim_input(struct job *j)
{
	const uint32_t reader = j->request->stdin_rank;
	struct host **targets = xcalloc(j->agents.n, sizeof(struct host *));
	size_t n = 0;

	for (size_t i = 0; i < j->agents.n; i++)
		if (job_needs(j, i) &&
		    (reader == STDIN_ALL ||
		     (reader < j->plan.np && j->plan.rank[reader].host == i)))
			targets[n++] = &j->agents.host[i];
	input_aim(j->input, targets, n, j->epoch);
	free(targets);
}

/* No agent starts any more. */
static void end_progress(struct job *j)
{
	progress_close(j->progress);
	j->progress = NULL;
}

/* No two hosts with ranks are one machine.  With --topology all agents run here. */
static int check_hosts(struct job *j)
{
	const struct host **used;
	size_t n = 0;
	int rc;

	if (j->request->reach.allow_same_host || j->request->topology.n)
		return 0;
	used = xcalloc(j->agents.n, sizeof *used);
	for (size_t i = 0; i < j->agents.n; i++)
		if (job_reaches(j, i))
			used[n++] = &j->agents.host[i];
	rc = same_host_check(used, n, &j->err);
	free(used);
	return rc;
}

static void on_typed(void *ctx)
{
	const struct job *j = ctx;

	if (j->output)
		output_typed(j->output);
}

static void acts_place(struct job *j)
{
	end_progress(j);
	if (job_spec_read(j) || job_plan_make(j) || check_hosts(j)) {
		if (j->request->check && j->lost) {
			check_say(j); /* too few hosts are left: this is why */
			acts_say_error(j);
			j->err = (struct err){ 0 };
		}
		j->refused = true;
		return;
	}
	for (size_t i = 0; i < j->agents.n; i++)
		if (!job_needs(j, i) && phase_host(j, i, RUN_EV_LEAVE))
			agents_leave(&j->agents.host[i]);
	if (!j->spec.visible_why) /* the first epoch */
		job_spec_choose_visible(j);
	if (!j->input && j->request->plan == PLAN_OFF && !j->request->check &&
	    j->request->stdin_rank != STDIN_NONE)
		j->input = input_open(j->base, on_typed, j);
	if (j->input)
		aim_input(j);
	job_spec_send(j);
}

/* ---- RUN ---- */

static void on_unread(void *ctx, const char *which, int error)
{
	struct job *j = ctx;

	if (j->unread)
		return;
	j->unread = j->unread_new = true;
	output_mute(j->output);
	if (error != EPIPE) {
		err_set(&j->err, E_OUTPUT, which, strerror(error));
		j->refused = true;
	}
}

static void on_disk(void *ctx, const char *path, int error)
{
	struct job *j = ctx;
	struct err e;

	j->disk_failed = true;
	err_set(&e, E_DISK, path, strerror(error));
	report_error(j, &e);
}

static const char *output_host_name(void *ctx, uint32_t host)
{
	const struct job *j = ctx;

	return j->agents.host[host].name;
}

static int open_output(struct job *j)
{
	static const struct output_events events = { messages_credit, on_unread,
						     on_disk, output_host_name };
	const uint32_t most = job_ranks_most(j);
	struct log_rank *rank = xcalloc(most, sizeof *rank);
	int rc;

	for (uint32_t i = 0; i < j->plan.np; i++)
		rank[i] = (struct log_rank){ j->agents.host[j->plan.rank[i].host].name,
					     j->plan.rank[i].local, 0 };
	for (uint32_t i = j->plan.np; i < most; i++) /* it has no host yet */
		rank[i] = (struct log_rank){ "later", i, 0 };
	rc = output_open(&j->output, j->base, j->request, most, rank, j->spec.job_id,
			 &events, j, &j->err);
	free(rank);
	if (!rc)
		monitor_begin(j);
	return rc;
}

static bool host_answers(void *job, size_t host)
{
	const struct job *j = job;

	return j->run[host].phase < RUN_CLEARED;
}

static void start_ranks(struct job *j)
{
	struct epoch e;

	if (check_programs(j) || job_spec_send_tf_config(j)) {
		j->refused = true;
		return;
	}
	if (!j->output) { /* the first epoch */
		if (open_output(j)) {
			j->refused = true;
			return;
		}
		report_overload(j);
		agents_watch(&j->agents);
		if (j->request->timeout_ms)
			j->limit_ms = clock_ms() + (uint64_t)j->request->timeout_ms;
	}
	j->ran = true;
	e = job_epoch(j);
	j->serves.names = names_open(&e);
	j->serves.exchanges = exchanges_open(&e, messages_missed, j);
	j->serves.fence = fence_open(&e, j->serves.exchanges, &messages_of_fence, j);
	j->serves.status = rank_status_open(
		&e, &(struct rank_status_uses){ .output = j->output,
						.events = j->events,
						.warns = j->request->verbosity >= 0,
						.hinted = &j->status_hinted,
						.answers = host_answers,
						.ctx = j });
	j->serves.hang = hang_open(j);
	messages_start(j);
}

/* ---- FAIL, STOP: the end of the ranks ---- */

static void acts_stop(struct job *j)
{
	messages_stop(j, grace_ms(j));
}

static void stop_at_once(struct job *j)
{
	messages_stop(j, 0);
}

static void say_kill(struct job *j)
{
	const uint32_t n = j->plan.np - j->ended;

	report_note(j, "runner: ^C: ending %u rank%s now", n, str_plural(n));
}

/* Under --keep-going the cause has not been said yet. */
static void stop_ended(struct job *j)
{
	if (j->failed && !j->signo)
		report_cause(j);
	for (uint32_t i = 0; i < j->plan.np; i++)
		j->rank[i].dismissed = j->rank[i].state != RANK_ENDED;
	if (j->ended < j->plan.np)
		acts_stop(j);
	else
		stop_at_once(j);
}

static void stop_after_signal(struct job *j)
{
	messages_stop(j, j->grace_signo == SIGINT ? AFTER_INT_MS : 0);
}

/* The first signal starts the grace, and no later one moves it. */
static void begin_grace(struct job *j, int signo)
{
	if (j->grace_signo)
		return;
	j->grace_signo = signo;
	j->deadline_ms = clock_ms() + grace_ms(j);
}

static void acts_interrupt(struct job *j)
{
	const uint32_t n = j->plan.np - j->ended;
	struct str grace = { 0 };

	str_add_seconds(&grace, grace_ms(j));
	report_note(j,
		    "runner: ^C: sent SIGINT to %u rank%s, SIGTERM follows in %s s; ^C "
		    "again ends them now",
		    n, str_plural(n), str_text(&grace));
	str_free(&grace);
	messages_signal(j, SIGINT, false);
	begin_grace(j, SIGINT);
}

static void acts_forward(struct job *j)
{
	messages_signal(j, j->signals.last, false);
}

/* The first signal is said: a log shows then why the job ended. */
static void say_signal(struct job *j, bool kill_follows)
{
	const char *name = j->signals.last == SIGHUP ? "SIGHUP" : "SIGTERM";
	const uint32_t n = j->plan.np - j->ended;
	struct str kill = { 0 };

	if (j->signals.said)
		return;
	j->signals.said = true;
	if (kill_follows) {
		str_add(&kill, ", SIGKILL follows in ");
		str_add_seconds(&kill, grace_ms(j));
		str_add(&kill, " s");
	}
	report_note(j, "runner: received %s: sent %s to %u rank%s%s", name, name, n,
		    str_plural(n), str_text(&kill));
	str_free(&kill);
}

/* A resource manager brings its own KILL. */
static void acts_terminate(struct job *j)
{
	const bool kills = !j->spec.managed || j->request->kill_grace_given;

	say_signal(j, kills && !j->grace_signo);
	acts_forward(j);
	if (kills)
		begin_grace(j, j->signals.last);
}

/* ---- CLOSE ---- */

void acts_say_error(struct job *j)
{
	j->refused = false;
	if (j->err.id != ERR_NONE)
		report_error(j, &j->err);
}

static void shut_down(struct job *j)
{
	end_progress(j);
	/* all ranks ended with 0, then a host was lost: the user has not been told */
	if (j->ran && j->lost && j->err.id == ERR_NONE && !j->timed_out && !j->signo &&
	    !j->unread && phase_cause(j) < 0) {
		report_lost_hosts(j);
		acts_say_error(j);
		j->err = (struct err){ 0 }; /* the status comes from j->lost */
	}
	for (size_t i = 0; i < j->agents.n; i++)
		if (phase_host(j, i, RUN_EV_LEAVE))
			agents_leave(&j->agents.host[i]);
}

/* ---- errors, limits, lost hosts ---- */

static void say_limit(struct job *j)
{
	struct str limit = { 0 };
	struct err e;

	j->timed_out = true;
	str_add_seconds(&limit, (uint64_t)j->request->timeout_ms);
	err_set(&e, E_TIMEOUT, str_text(&limit));
	report_error(j, &e);
	str_free(&limit);
}

/* The job ends anyway: the limit matters only to a restart. */
static void say_limit_of_restart(struct job *j)
{
	if (phase_restart_wanted(j, clock_ms()))
		say_limit(j);
}

/* Hosts that did not come up, or did not place their ranks.  In a later epoch that
 * costs a restart, if there is one left. */
static void say_lost(struct job *j)
{
	end_progress(j);
	report_lost_hosts(j);
	report_error(j, &j->err);
	if (j->growth.tick)
		j->growth.resizes = true;
	else if (!j->ran)
		return;
	j->err = (struct err){ 0 };
	j->failed = j->plan.np; /* none of them runs */
	for (size_t i = 0; i < j->agents.n; i++)
		if (j->run[i].phase == RUN_GONE)
			phase_host(j, i, RUN_EV_EPOCH);
}

static void give_up_late(struct job *j)
{
	struct err e;

	for (size_t i = 0; i < j->agents.n; i++) {
		struct host *h = &j->agents.host[i];

		if (!phase_awaits(j, i))
			continue;
		err_set(&e, E_START_TIMEOUT, h->name,
			"the agent runs and says nothing");
		agents_give_up(h, &e);
	}
}

static void give_up_uncleared(struct job *j)
{
	struct err e;

	for (size_t i = 0; i < j->agents.n; i++) {
		struct host *h = &j->agents.host[i];

		if (h->state != HOST_UP || j->run[i].phase >= RUN_CLEARED)
			continue;
		err_set(&e, E_UNCONFIRMED, h->name);
		j->run[i].unconfirmed = true;
		agents_give_up(h, &e);
	}
}

/* While a slow reader holds output up, agents cannot have cleared: wait on.  The same
 * while timelines come. */
static void give_up_silent(struct job *j)
{
	if (timeline_grows(j->account.timeline)) {
		j->deadline_ms = clock_ms() + 5000;
		return;
	}
	if (j->output && output_waiting(j->output) && !j->unread) {
		j->overdue = true;
		j->deadline_ms = clock_ms() + 1000;
		return;
	}
	give_up_uncleared(j);
}

static void give_up_all(struct job *j)
{
	if (j->output)
		output_mute(j->output);
	give_up_uncleared(j);
	agents_close(&j->cleanup.agents);
	j->cleanup.running = 0;
}

/* ---- DRAIN: the last output, the next epoch ---- */

static void acts_drain(struct job *j)
{
	if (j->output)
		output_finish(j->output);
}

static void end_services(struct services *s)
{
	hang_free(s->hang);
	fence_free(s->fence);
	names_free(s->names);
	exchanges_free(s->exchanges);
	rank_status_free(s->status);
	*s = (struct services){ 0 };
}

void acts_forget_ranks(struct job *j)
{
	for (uint32_t i = 0; j->rank && i < j->plan.np; i++)
		forget_rank(&j->rank[i]);
	for (size_t i = 0; j->run && i < j->agents.n; i++)
		forget_host(&j->run[i]);
	free(j->spec.master_addr);
	j->spec.master_addr = NULL;
	dump_epoch_ends(j->account.dump);
	end_services(&j->serves);
}

/* Too few hosts are left.  With a fixed number of ranks that ends the job later. */
static void await_hosts(struct job *j)
{
	struct str limit = { 0 };

	growth_look(j);
	if (!j->growth.lacks_hosts)
		return;
	str_add_seconds(&limit, (uint64_t)j->request->growing.timeout_ms);
	report_note(j,
		    "runner: waits up to %s s for hosts: those that are left have too "
		    "few slots for --min-np %d",
		    str_text(&limit), j->request->growing.min_np);
	str_free(&limit);
}

static void say_few(struct job *j)
{
	struct str limit = { 0 };

	str_add_seconds(&limit, (uint64_t)j->request->growing.timeout_ms);
	err_set(&j->err, E_FEW_HOSTS, j->request->growing.min_np, str_text(&limit));
	str_free(&limit);
	report_error(j, &j->err);
}

static void acts_restart(struct job *j)
{
	const bool resized = j->growth.resizes;
	struct plan next = { 0 };
	struct str why = { 0 };

	if (job_plan_next(
		    j, &next)) { /* that has been said, and the status is the cause's */
		j->refused = true;
		return;
	}
	for (size_t i = 0; i < j->agents.n; i++) {
		const bool is_old = j->run[i].phase == RUN_CLEARED;

		if (phase_host(j, i, RUN_EV_EPOCH) && is_old)
			health_ask(j, &j->agents.host[i]);
	}
	acts_forget_ranks(j);
	plan_free(&j->plan);
	j->plan = next;
	j->epoch++;
	if (!resized)
		messages_note_restart(j);
	report_reason(&why, j);
	if (why.len)
		account_loss(&j->account, clock_ns(), why.s);
	j->growth.resizes = false;
	j->growth.left_out = 0;
	j->ended = j->failed = 0;
	j->lost = j->overdue = false;
	account_cause(&j->account, NULL);
	if (j->output && output_restart(j->output, j->epoch, &j->err)) {
		j->refused = true;
		return;
	}
	report_restart(j, resized);
	events_begin(j->events, "restart");
	events_number(j->events, "epoch", j->epoch);
	events_text(j->events, "text", why.len ? why.s : NULL);
	events_end(j->events);
	str_free(&why);
	acts_launch(j);
}

/* The steps of each act. */
static void (*const acts[][3])(struct job *j) = {
	[ACT_PLACE] = { acts_place },
	[ACT_PRINT_PLAN] = { report_overload, report_plan, shut_down },
	[ACT_CHECK] = { check_ask },
	[ACT_SAY_CHECK] = { check_say, shut_down },
	[ACT_START] = { start_ranks },
	[ACT_AWAIT_HOSTS] = { await_hosts },
	[ACT_RESTART] = { acts_restart },
	[ACT_SAY_RESIZE_STOP] = { report_resize, acts_stop },
	[ACT_SAY_FEW] = { say_few, shut_down },
	[ACT_SHUTDOWN] = { shut_down },
	[ACT_GIVE_UP_LATE] = { give_up_late },
	[ACT_GIVE_UP_SILENT] = { give_up_silent },
	[ACT_GIVE_UP_ALL] = { give_up_all, shut_down },
	[ACT_SAY_ERROR] = { acts_say_error, shut_down },
	[ACT_SAY_ERROR_STOP] = { acts_say_error, stop_at_once },
	[ACT_SAY_LOST] = { say_lost },
	[ACT_SAY_LOST_STOP] = { say_lost, stop_at_once },
	[ACT_SAY_CAUSE] = { report_cause },
	[ACT_SAY_CAUSE_KILL] = { report_cause, say_kill, stop_at_once },
	[ACT_SAY_LIMIT] = { say_limit, shut_down },
	[ACT_SAY_LIMIT_STOP] = { say_limit, acts_stop },
	[ACT_SAY_LIMIT_ONLY] = { say_limit_of_restart },
	[ACT_DRAIN] = { acts_drain },
	[ACT_STOP] = { acts_stop },
	[ACT_KILL_SAID] = { say_kill, stop_at_once },
	[ACT_STOP_AFTER_SIGNAL] = { stop_after_signal },
	[ACT_STOP_ENDED] = { stop_ended },
	[ACT_INTERRUPT] = { acts_interrupt },
	[ACT_TERMINATE] = { acts_terminate },
	[ACT_FORWARD] = { acts_forward },
};

void acts_do(struct job *j, enum job_act act)
{
	for (size_t i = 0; i < 3 && acts[act][i]; i++)
		acts[act][i](j);
}
