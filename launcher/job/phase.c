#include "launcher/job/phase.h"

#include <signal.h>

#include "launcher/job/fence.h"
#include "launcher/job/rank_status.h"

enum {
	START_MS = 2000, /* after --start-timeout, at which the transports give up; they
			      are late on a busy machine, but know why */
	CHECKED_MS = 2000, /* the same, for answers after it */
	CAUSE_MS = 800, /* to tell of endings before the first heard; agents hold 400 */
	CONFIRM_MS = 7000, /* after the grace: an agent takes up to 5 s to see a process
			      die */
	CLOSE_MS = 3000,   /* from `shutdown` to the end of the stream */
	CLOSE_SOON_MS = 500 /* the same, if no rank ever ran or all was given up */
};

/* clang-format off */
static const struct phase_step steps[JOB_DONE][EV_COUNT] = {
	[JOB_LAUNCH] = {
		[EV_ALL]     = { JOB_PLACE, ACT_PLACE },
		[EV_SHORT]   = { JOB_DRAIN, ACT_SAY_LOST },
		[EV_LATE]    = { JOB_STAY,  ACT_GIVE_UP_LATE },
		[EV_ERROR]   = { JOB_CLOSE, ACT_SAY_ERROR },
		[EV_LIMIT]   = { JOB_CLOSE, ACT_SAY_LIMIT },
		[EV_UNREAD]  = { JOB_CLOSE, ACT_SHUTDOWN },
		[EV_INT1]    = { JOB_CLOSE, ACT_SHUTDOWN },
		[EV_INT3]    = { JOB_CLOSE, ACT_GIVE_UP_ALL },
		[EV_TERM]    = { JOB_CLOSE, ACT_SHUTDOWN },
	},
	[JOB_PLACE] = {
		[EV_ALL]     = { JOB_RUN,   ACT_START },
		[EV_SHORT]   = { JOB_STOP,  ACT_SAY_LOST_STOP },
		[EV_PLANNED] = { JOB_CLOSE, ACT_PRINT_PLAN },
		[EV_CHECK]   = { JOB_CHECK, ACT_CHECK },
		[EV_LATE]    = { JOB_STAY,  ACT_GIVE_UP_LATE },
		[EV_ERROR]   = { JOB_CLOSE, ACT_SAY_ERROR },
		[EV_LIMIT]   = { JOB_CLOSE, ACT_SAY_LIMIT },
		[EV_UNREAD]  = { JOB_CLOSE, ACT_SHUTDOWN },
		[EV_INT1]    = { JOB_CLOSE, ACT_SHUTDOWN },
		[EV_INT3]    = { JOB_CLOSE, ACT_GIVE_UP_ALL },
		[EV_TERM]    = { JOB_CLOSE, ACT_SHUTDOWN },
	},
	[JOB_CHECK] = {
		[EV_ALL]     = { JOB_CLOSE, ACT_SAY_CHECK },
		[EV_LATE]    = { JOB_STAY,  ACT_GIVE_UP_LATE },
		[EV_ERROR]   = { JOB_CLOSE, ACT_SAY_ERROR },
		[EV_LIMIT]   = { JOB_CLOSE, ACT_SAY_LIMIT },
		[EV_UNREAD]  = { JOB_CLOSE, ACT_SHUTDOWN },
		[EV_INT1]    = { JOB_CLOSE, ACT_SHUTDOWN },
		[EV_INT3]    = { JOB_CLOSE, ACT_GIVE_UP_ALL },
		[EV_TERM]    = { JOB_CLOSE, ACT_SHUTDOWN },
	},
	[JOB_RUN] = {
		[EV_ALL]     = { JOB_STOP,  ACT_STOP_ENDED },
		[EV_LATE]    = { JOB_STOP,  ACT_STOP_AFTER_SIGNAL },
		[EV_FAILED]  = { JOB_FAIL,  ACT_STOP },
		[EV_RESIZE]  = { JOB_STOP,  ACT_SAY_RESIZE_STOP },
		[EV_ERROR]   = { JOB_STOP,  ACT_SAY_ERROR_STOP },
		[EV_LIMIT]   = { JOB_STOP,  ACT_SAY_LIMIT_STOP },
		[EV_UNREAD]  = { JOB_STOP,  ACT_STOP },
		[EV_INT1]    = { JOB_STAY,  ACT_INTERRUPT },
		[EV_INT2]    = { JOB_STOP,  ACT_KILL_SAID },
		[EV_INT3]    = { JOB_CLOSE, ACT_GIVE_UP_ALL },
		[EV_TERM]    = { JOB_STAY,  ACT_TERMINATE },
	},
	[JOB_FAIL] = {
		[EV_ALL]     = { JOB_STOP,  ACT_SAY_CAUSE },
		[EV_LATE]    = { JOB_STOP,  ACT_SAY_CAUSE },
		[EV_LIMIT]   = { JOB_STAY,  ACT_SAY_LIMIT_ONLY },
		[EV_INT1]    = { JOB_STOP,  ACT_SAY_CAUSE_KILL },
		[EV_INT3]    = { JOB_CLOSE, ACT_GIVE_UP_ALL },
		[EV_TERM]    = { JOB_STAY,  ACT_FORWARD },
	},
	[JOB_STOP] = {
		[EV_ALL]     = { JOB_DRAIN, ACT_DRAIN },
		[EV_LATE]    = { JOB_STAY,  ACT_GIVE_UP_SILENT },
		[EV_LIMIT]   = { JOB_STAY,  ACT_SAY_LIMIT_ONLY },
		[EV_INT1]    = { JOB_STOP,  ACT_KILL_SAID },
		[EV_INT2]    = { JOB_STOP,  ACT_KILL_SAID },
		[EV_INT3]    = { JOB_CLOSE, ACT_GIVE_UP_ALL },
		[EV_TERM]    = { JOB_STAY,  ACT_FORWARD },
	},
	[JOB_DRAIN] = {
		[EV_ALL]     = { JOB_CLOSE,  ACT_SHUTDOWN },
		[EV_AGAIN]   = { JOB_WAIT,   ACT_AWAIT_HOSTS },
		[EV_ERROR]   = { JOB_CLOSE,  ACT_SAY_ERROR },
		[EV_LIMIT]   = { JOB_STAY,   ACT_SAY_LIMIT_ONLY },
		[EV_UNREAD]  = { JOB_CLOSE,  ACT_SHUTDOWN },
		[EV_INT3]    = { JOB_CLOSE,  ACT_GIVE_UP_ALL },
	},
	[JOB_WAIT] = {
		[EV_ALL]     = { JOB_LAUNCH, ACT_RESTART },
		[EV_LATE]    = { JOB_CLOSE,  ACT_SAY_FEW },
		[EV_ERROR]   = { JOB_CLOSE,  ACT_SAY_ERROR },
		[EV_LIMIT]   = { JOB_CLOSE,  ACT_SAY_LIMIT },
		[EV_UNREAD]  = { JOB_CLOSE,  ACT_SHUTDOWN },
		[EV_INT1]    = { JOB_CLOSE,  ACT_SHUTDOWN },
		[EV_INT2]    = { JOB_CLOSE,  ACT_SHUTDOWN },
		[EV_INT3]    = { JOB_CLOSE,  ACT_GIVE_UP_ALL },
		[EV_TERM]    = { JOB_CLOSE,  ACT_SHUTDOWN },
	},
	[JOB_CLOSE] = {
		[EV_ALL]     = { JOB_DONE,  ACT_NONE },
		[EV_LATE]    = { JOB_DONE,  ACT_NONE },
		[EV_INT3]    = { JOB_DONE,  ACT_NONE },
	},
};

static const enum host_phase hosts[RUN_PHASES][RUN_EVENTS] = {
	[RUN_NONE] = {
		[RUN_EV_START]    = RUN_STARTING,
	},
	[RUN_STARTING] = {
		[RUN_EV_HELLO]    = RUN_TRYING,
		[RUN_EV_LOST]     = RUN_GONE,
	},
	[RUN_TRYING] = {
		[RUN_EV_HEALTHY]  = RUN_PLACING,
		[RUN_EV_LEAVE]    = RUN_LEAVING,
		[RUN_EV_LOST]     = RUN_GONE,
		[RUN_EV_EPOCH]    = RUN_TRYING,
	},
	[RUN_PLACING] = {
		[RUN_EV_PLACED]   = RUN_PLACED,
		[RUN_EV_STOP_ACK] = RUN_STOPPED,
		[RUN_EV_LEAVE]    = RUN_LEAVING,
		[RUN_EV_LOST]     = RUN_GONE,
		[RUN_EV_EPOCH]    = RUN_PLACING,
	},
	[RUN_PLACED] = {
		[RUN_EV_CHECKED]  = RUN_CHECKED,
		[RUN_EV_STOP_ACK] = RUN_STOPPED,
		[RUN_EV_LEAVE]    = RUN_LEAVING,
		[RUN_EV_LOST]     = RUN_GONE,
	},
	[RUN_CHECKED] = {
		[RUN_EV_LEAVE]    = RUN_LEAVING,
		[RUN_EV_LOST]     = RUN_GONE,
	},
	[RUN_STOPPED] = { /* each `stop` is acknowledged */
		[RUN_EV_STOP_ACK] = RUN_STOPPED,
		[RUN_EV_CLEARED]  = RUN_CLEARED,
		[RUN_EV_LEAVE]    = RUN_LEAVING,
		[RUN_EV_LOST]     = RUN_GONE,
	},
	[RUN_CLEARED] = {
		[RUN_EV_STOP_ACK] = RUN_CLEARED,
		[RUN_EV_LEAVE]    = RUN_LEAVING,
		[RUN_EV_LOST]     = RUN_GONE,
		[RUN_EV_EPOCH]    = RUN_TRYING,
	},
	[RUN_LEAVING] = { /* its agent may have answered before it was told */
		[RUN_EV_START]    = RUN_STARTING,
		[RUN_EV_PLACED]   = RUN_LEAVING,
		[RUN_EV_STOP_ACK] = RUN_LEAVING,
		[RUN_EV_CLOSED]   = RUN_LEFT,
		[RUN_EV_LOST]     = RUN_GONE,
	},
	[RUN_LEFT] = {
		[RUN_EV_START]    = RUN_STARTING,
	},
	[RUN_GONE] = {
		[RUN_EV_EPOCH]    = RUN_DROPPED,
		[RUN_EV_RETRY]    = RUN_LEFT,
	},
	[RUN_DROPPED] = {
		[RUN_EV_RETRY]    = RUN_LEFT,
	},
};
/* clang-format on */

struct phase_step phase_step(enum job_phase phase, enum job_event ev)
{
	return phase == JOB_DONE ? (struct phase_step){ 0 } : steps[phase][ev];
}

long phase_cause(const struct job *j)
{
	struct ending *v = xcalloc(j->plan.np, sizeof *v);
	long cause;

	for (uint32_t i = 0; i < j->plan.np; i++)
		if (!j->rank[i].late)
			v[i] = j->rank[i].ending;
	cause = outcome_cause(v, j->plan.np);
	free(v);
	return cause;
}

/* --restarts has one left. */
static bool has_restart(const struct lives *l, const struct account *a, uint64_t now_ms)
{
	const uint64_t span_ms = (uint64_t)l->span_ms;
	size_t n = span_ms ? 0 : a->restarts.all;

	for (size_t i = 0; span_ms && i < a->restarts.n; i++)
		n += now_ms - a->restarts.at_ms[i] < span_ms;
	return n < (size_t)l->restarts;
}

bool phase_has_restart(const struct job *j, uint64_t now_ms)
{
	return has_restart(&j->request->lives, &j->account, now_ms);
}

bool phase_restart_wanted(const struct job *j, uint64_t now_ms)
{
	long cause;

	if (j->signo || j->timed_out || j->unread || j->err.id != ERR_NONE)
		return false;
	if (j->growth.resizes)
		return true;
	if (!j->failed || !has_restart(&j->request->lives, &j->account, now_ms))
		return false;
	cause = phase_cause(j);
	return cause < 0 || (j->rank[cause].ending.fate != FATE_EXEC &&
			     j->rank[cause].hung != HANG_KILL);
}

bool phase_may_replace(const struct job *j, uint32_t rank)
{
	const enum replace how = j->request->lives.replace;
	/* With --replace alone, if no rank uses libberth, the others need not know. */
	const bool alone = how == REPLACE_ALONE && !fence_is_used(j->serves.fence) &&
			   !*rank_status_last(j->serves.status, rank);

	return how != REPLACE_ALL &&
	       (alone || fence_can_replace(j->serves.fence, rank));
}

bool phase_replace_wanted(const struct job *j, uint32_t rank, uint64_t now_ms)
{
	const struct rank *r = &j->rank[rank];

	return phase_may_replace(j, rank) && r->hung != HANG_KILL &&
	       r->hung != HANG_RESTART && j->phase == JOB_RUN &&
	       (r->ending.fate == FATE_EXIT || r->ending.fate == FATE_SIGNAL ||
		r->ending.fate == FATE_OOM) &&
	       !r->dismissed && !j->failed && !j->grace_signo && !j->timed_out &&
	       !j->unread && j->err.id == ERR_NONE &&
	       has_restart(&j->request->lives, &j->account, now_ms);
}

bool phase_goes_on_without(const struct job *j, size_t host)
{
	uint32_t left = 0;

	if (!j->growth.tick || j->phase != JOB_RUN || j->failed || j->lost ||
	    j->grace_signo || j->timed_out || j->unread || j->err.id != ERR_NONE)
		return false;
	for (uint32_t i = 0; i < j->plan.np; i++)
		left += j->rank[i].state != RANK_ENDED &&
			!fence_is_newcomer(j->serves.fence, i) && /* it has no state */
			j->plan.rank[i].host != host &&
			!j->run[j->plan.rank[i].host].leaves;
	return left >= (uint32_t)j->request->growing.min_np &&
	       fence_can_lose(j->serves.fence, (uint32_t)host);
}

/* --keep-going is for failures of ranks.  A job that a signal, its limit or a reader
 * ends anyway has no cause to look for. */
static bool failure_ends_job(const struct job *j)
{
	return (j->lost || (j->failed && !j->request->lives.keep_going)) && !j->signo &&
	       !j->timed_out && !j->unread;
}

enum job_event phase_due(const struct job *j, uint64_t now_ms)
{
	bool starting = j->phase < JOB_RUN;

	if (j->unread_new)
		return EV_UNREAD;
	if (j->refused && steps[j->phase][EV_ERROR].next != JOB_STAY)
		return EV_ERROR;
	if (j->phase == JOB_RUN && failure_ends_job(j))
		return EV_FAILED;
	if (j->phase == JOB_RUN && j->growth.resizes && !j->grace_signo)
		return EV_RESIZE;
	if (!j->awaited && starting && j->lost && !j->request->check)
		return EV_SHORT;
	if (!j->awaited && j->phase == JOB_PLACE && j->request->plan != PLAN_OFF)
		return EV_PLANNED;
	if (!j->awaited && j->phase == JOB_PLACE && j->request->check)
		return EV_CHECK;
	if (!j->awaited)
		return j->phase == JOB_DRAIN && phase_restart_wanted(j, now_ms)
			       ? EV_AGAIN
			       : EV_ALL;
	if (j->limit_ms && now_ms >= j->limit_ms)
		return EV_LIMIT;
	return j->deadline_ms && now_ms >= j->deadline_ms ? EV_LATE : EV_NONE;
}

bool phase_awaits(const struct job *j, size_t host)
{
	/* hosts in one of the phases FROM to BEFORE */
	static const struct {
		enum host_phase from, before;
	} awaits[JOB_DONE + 1] = {
		[JOB_LAUNCH] = { RUN_STARTING, RUN_PLACING },
		[JOB_PLACE] = { RUN_PLACING, RUN_PLACED },
		[JOB_CHECK] = { RUN_PLACING, RUN_CHECKED },
		[JOB_FAIL] = { RUN_PLACING, RUN_STOPPED },
		[JOB_STOP] = { RUN_PLACING, RUN_CLEARED },
		[JOB_CLOSE] = { RUN_LEAVING, RUN_LEFT },
	};
	const enum host_phase at = j->run[host].phase;

	return at >= awaits[j->phase].from && at < awaits[j->phase].before &&
	       (at == RUN_STARTING || at == RUN_TRYING || at == RUN_LEAVING ||
		job_needs(j, host));
}

bool phase_host(struct job *j, size_t host, enum host_event ev)
{
	const enum host_phase next = hosts[j->run[host].phase][ev];

	if (next == RUN_NONE)
		return false;
	j->awaited -= phase_awaits(j, host);
	j->run[host].phase = next;
	j->awaited += phase_awaits(j, host);
	return true;
}

void phase_await(struct job *j)
{
	j->awaited = j->phase == JOB_RUN     ? j->plan.np - j->ended
		     : j->phase == JOB_CLOSE ? j->cleanup.running
		     : j->phase == JOB_WAIT  ? j->growth.lacks_hosts
					     : 0;
	/* Once ranks have ended well, the work is over, and a newcomer that was in no
	 * world has none. */
	for (uint32_t i = 0; j->phase == JOB_RUN && i < j->plan.np; i++)
		j->awaited -= j->rank[i].state != RANK_ENDED &&
			      (job_serves(j, i) ||
			       (j->ended > j->failed + j->growth.left_out &&
				fence_is_newcomer(j->serves.fence, i)));
	for (size_t i = 0; i < j->agents.n; i++)
		j->awaited += phase_awaits(j, i);
}

uint32_t phase_close_ms(const struct job *j)
{
	return j->ran && j->signals.interrupts < 3 ? CLOSE_MS : CLOSE_SOON_MS;
}

uint64_t phase_deadline_ms(const struct job *j, uint64_t now_ms)
{
	const uint64_t start_ms = (uint64_t)j->request->reach.start_timeout_ms;
	uint64_t close_ms;

	switch (j->phase) {
	case JOB_LAUNCH:
		return now_ms + start_ms + START_MS +
		       (j->request->reach.health ? start_ms : 0);
	case JOB_PLACE:
		return now_ms + start_ms + START_MS;
	case JOB_CHECK: /* the agents give up after --start-timeout */
		return now_ms + start_ms + CHECKED_MS;
	case JOB_FAIL:
		return now_ms + CAUSE_MS;
	case JOB_STOP:
		return now_ms + j->grace_ms + CONFIRM_MS;
	case JOB_WAIT:
		return now_ms + (uint64_t)j->request->growing.timeout_ms;
	case JOB_CLOSE:
		close_ms = now_ms + phase_close_ms(j);
		return j->cleanup.until_ms > close_ms && j->signals.interrupts < 3
			       ? j->cleanup.until_ms
			       : close_ms;
	default:
		return 0;
	}
}

int phase_status(const struct job *j)
{
	const long cause = j->rank ? phase_cause(j) : -1;
	int status;

	if (j->err.id != ERR_NONE) {
		status = err_status(j->err.id);
		return status == EXIT_LOST && !j->ran ? EXIT_START : status;
	}
	if (j->timed_out)
		return EXIT_TIMELIMIT;
	if (j->signo)
		return outcome_signalled(j->signo, j->ran && !j->failed &&
							   j->ended == j->plan.np);
	if (cause >= 0)
		return outcome_status(&j->rank[cause].ending);
	if (j->checks.failed)
		return EXIT_START;
	if (j->lost)
		return j->ran ? EXIT_LOST : EXIT_START;
	return j->disk_failed ? EXIT_RUNNER : 0;
}

int phase_death(const struct job *j)
{
	if (j->signo == SIGINT)
		return SIGINT;
	return j->unread && j->err.id == ERR_NONE ? SIGPIPE : 0;
}
