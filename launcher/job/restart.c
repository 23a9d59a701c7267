/* --restarts: after a failure the same agents starts all ranks again, as the next epoch.
 *
 * Hosts that were lost are left out if the others have the slots; hosts that had no
 * rank so far are spares.  A host that is lost, or refuses, while the next epoch is
 * placed costs another restart. */
#include "launcher/job/job.h"

#include "launcher/job/report.h"

bool restart_wanted(const struct session *s)
{
	long cause = session_cause(s);

	return s->failed && s->epoch <= (uint32_t)s->request->restarts && !s->signo &&
	       !s->timed_out && !s->unread && s->err.id == ERR_NONE &&
	       (cause < 0 || s->rank[cause].ending.fate != FATE_EXEC);
}

/* The same number of ranks on the hosts that are left. */
static int replan(struct session *s)
{
	struct plan plan = { 0 };
	struct err e = { 0 }, whole;

	if (!session_plan(s, &plan, s->plan.np, &e)) {
		plan_free(&s->plan);
		s->plan = plan;
		return 0;
	}
	err_set(&whole, E_RESTART, e.text);
	report_error(s, &whole);
	return -1;
}

static void next_epoch(struct session *s)
{
	for (size_t i = 0; i < s->agents.n; i++)
		s->run[i].dropped |=
			s->agents.host[i].state == HOST_LOST || s->run[i].left;
	session_forget_ranks(s);
	s->epoch++;
	s->ended = s->failed = 0;
	s->lost = s->overdue = false;
	s->phase = PHASE_START;
	s->agents.setup.deadline_ms =
		clock_ms() + (uint64_t)s->request->start_timeout_s * 1000;
	output_restart(s->output);
	if (s->request->verbosity >= 0)
		report_note(s, "runner: restart %u of %d: %u ranks on %u host%s",
			    s->epoch - 1, s->request->restarts, s->plan.np,
			    s->plan.nodes, s->plan.nodes > 1 ? "s" : "");
	events_begin(s->events, "restart");
	events_number(s->events, "epoch", s->epoch);
	events_end(s->events);
}

/* A host failed while the epoch was placed: say so, take the others' ranks back. */
static void withdraw(struct session *s)
{
	report_lost_hosts(s);
	report_error(s, &s->err);
	s->err = (struct err){ 0 };
	for (size_t i = 0; i < s->agents.n; i++)
		s->run[i].dropped |= s->agents.host[i].state == HOST_LOST;
	s->failed = s->plan.np; /* none of them runs */
	if (!s->master_addr)    /* nobody was asked to place them yet */
		return;
	stop_ranks(s, 0);
	session_until(s, session_run_over);
}

bool restart_ranks(struct session *s)
{
	while (restart_wanted(s)) {
		if (replan(s))
			return false;
		next_epoch(s);
		if (!session_start_agents(s) && !session_ask_places(s))
			return true;
		if (!s->lost || s->phase == PHASE_OVER)
			return false;
		withdraw(s);
	}
	return false;
}
