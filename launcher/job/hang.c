#include "launcher/job/hang.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/loop.h"
#include "launcher/job/dump.h"
#include "launcher/job/fence.h"
#include "launcher/job/hang_judge.h"
#include "launcher/job/job.h"
#include "launcher/job/phase.h"
#include "launcher/job/rank_status.h"
#include "launcher/job/report.h"

enum {
	LEAST_CPU_MS = 10, /* a tick: less is not seen */
	CPU_SHARE = 100,   /* less than this part of a CPU is no work */
	LEAST_KIB = 4,
	LATE_MOST = 90, /* percent of a time: a hang is found 10 times later at most */
	LATE_SAID_MS = 100,
	END_MS = 12000 /* from `hung` to the end of a rank: 2 s, and KILL */
};

/* One rank as it was seen last. */
struct seen {
	bool known; /* in this look: */
	char now_state;
	uint32_t now_life, now_cpu_ms, now_kib, now_late_ms, number, pending;
	uint32_t life, pid;
	char state;
	uint32_t cpu_ms, kib; /* when it did something last */
	uint64_t ops; /* a hash of its operations in libberth, as rank_op says */
	bool steps;   /* it has done operations, and waits for no world */
	bool changed; /* its operations, since the last look */
	/* The time that it has had: hang.now_ms less that in which it had no CPU.  Now,
	 * at the last look, at its last work, at its last change of operations, and at
	 * that of another rank that waits */
	uint64_t ran_ms, before_ms, moved_ms, op_ms, others_ms;
	uint64_t state_ms;       /* hang.now_ms when it came into STATE */
	bool timed;              /* late_ms is known */
	uint32_t late_ms;        /* as its agent counts it */
	uint64_t owed_ms;        /* of that, what is still to be left out */
	uint64_t others_late_ms; /* left out since others_ms */
};

/* Ranks that are to be ended, once it is known where all ranks are. */
struct due {
	struct hang_verdict is; /* why: HANG_NOT: none are */
	uint64_t limit_ms, asked_ms;
	char *dump; /* or NULL: agents are asked */
};

struct hang {
	struct job *j;
	struct event *timer, *late; /* late: DUE is done without a further look */
	struct due due;
	struct seen *seen;      /* of each rank */
	struct hang_rank *rank; /* the same, for hang_judge() */
	uint64_t now_ms;        /* of looks: see hang.h */
	uint64_t last_ms;       /* clock_ms() of the last one */
	uint64_t pause_ms;      /* the longest so far */
	uint64_t silent_ms;     /* hang.now_ms when any rank did something last */
	enum hang_why said;     /* a report of this is out, */
	uint32_t said_rank;     /* of this rank */
};

/* ---- looks ---- */

/* Numbers modulo 2^32.  They are less than before if a process has ended. */
static bool has_changed(uint32_t now, uint32_t before, uint64_t least)
{
	const uint32_t by = now - before;

	return by >= least && -by >= least;
}

/* RANK, as the kernel sees it. */
static void see_use(struct hang *g, uint32_t rank)
{
	struct seen *s = &g->seen[rank];
	const uint64_t share = (s->ran_ms - s->moved_ms) / CPU_SHARE;
	const char state = s->now_state;

	if (!s->known)
		return;
	if (s->state != state)
		s->state_ms = g->now_ms;
	s->state = state;
	if (state != 'R' && state != 't' &&
	    !has_changed(s->now_cpu_ms, s->cpu_ms,
			 share > LEAST_CPU_MS ? share : LEAST_CPU_MS) &&
	    !has_changed(s->now_kib, s->kib, LEAST_KIB))
		return;
	s->cpu_ms = s->now_cpu_ms;
	s->kib = s->now_kib;
	s->moved_ms = s->ran_ms;
}

/* The time that RANK has had since the last look, PAST_MS ago.  The kernel counts a
 * wait for a CPU once it is over, so it may be longer than that: the rest is left out
 * at the next looks. */
static void see_time(struct seen *s, uint64_t past_ms, uint64_t limit_ms)
{
	const bool is_told = s->known && s->now_life == s->life;
	uint64_t late_ms = past_ms * LATE_MOST / 100;

	if (is_told && s->timed)
		s->owed_ms += s->now_late_ms - s->late_ms;
	if (is_told)
		s->late_ms = s->now_late_ms;
	s->timed |= is_told;
	if (s->owed_ms > limit_ms)
		s->owed_ms = limit_ms;
	if (late_ms > s->owed_ms)
		late_ms = s->owed_ms;
	s->owed_ms -= late_ms;
	s->others_late_ms += late_ms;
	s->before_ms = s->ran_ms;
	s->ran_ms += past_ms - late_ms;
}

const char *hang_looked(struct hang *g, const struct host *h,
			const struct wire_looked *m)
{
	uint32_t host, n;

	if (!g)
		return NULL;
	host = job_index(g->j, h);
	if (!job_reaches(g->j, host))
		return NULL; /* its ranks are on no host any more */
	n = g->j->plan.local_size[host];
	if (m->lives.n != n || m->states.n != n || m->cpu_ms.n != n || m->kib.n != n ||
	    m->numbers.n != n || m->pending.n != n || m->late_ms.n != n)
		return "malformed 'looked' message";
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t rank = g->j->plan.ranks[host][i];
		struct seen *s = &g->seen[rank];

		s->now_life = m->lives.v[i];
		s->now_state = (char)(m->states.v[i] & 127);
		s->known = s->now_state != 0;
		s->now_cpu_ms = m->cpu_ms.v[i];
		s->now_kib = m->kib.v[i];
		s->now_late_ms = m->late_ms.v[i];
		if (s->number != m->numbers.v[i] || s->pending != m->pending.v[i])
			s->ops = 0; /* whatever rank_op says */
		s->number = m->numbers.v[i];
		s->pending = m->pending.v[i];
	}
	return NULL;
}

static uint64_t hash_list(uint64_t hash, const uint32_t *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ v[i]) * 0x100000001b3u;
	return hash;
}

static void see_ops(struct hang *g, uint32_t rank, const struct rank_op *op)
{
	struct seen *s = &g->seen[rank];
	uint64_t ops = 0xcbf29ce484222325u;
	bool steps = s->number && op && *op->text;

	if (op) {
		ops = hash_list(ops, op->set, op->n);
		ops = hash_list(ops, op->seq, op->n);
		ops = hash_list(ops, op->runs, op->n);
	}
	ops |= 1; /* never 0 */
	s->changed = s->ops != ops;
	if (!s->changed)
		return;
	/* It waits in an init round, or for the next world: what comes before its first
	 * operation, a program's imports, is no pause between operations. */
	for (size_t i = 0; op && i < op->n; i++)
		steps &= op->set[i] != WIRE_INIT_ROUNDS || !op->runs[i];
	if (s->steps && steps && s->before_ms > s->op_ms + g->pause_ms)
		g->pause_ms = s->before_ms - s->op_ms;
	s->ops = ops;
	s->steps = steps;
	s->op_ms = s->ran_ms;
}

/* RANK is in another life than at the last look, or in none.  True if one has ended. */
static bool see_life(struct hang *g, uint32_t rank)
{
	const struct rank *r = &g->j->rank[rank];
	const uint32_t life = r->state == RANK_RUNNING ? r->starts + 1 : 0;
	struct seen *s = &g->seen[rank];
	const bool same = s->life == life && s->pid == r->pid, ended = s->life && !same;

	if (!same || !life) {
		s->life = life;
		s->pid = r->pid;
		s->steps = s->timed = false;
		s->state = '\0';
		s->cpu_ms = s->kib = 0;
		s->owed_ms = s->others_late_ms = 0;
		s->before_ms = s->moved_ms = s->op_ms = s->others_ms = s->ran_ms;
		s->state_ms = g->now_ms;
	}
	/* the agent may have said that before it started this life */
	s->known &= s->now_life == s->life;
	return ended;
}

/* QUIET_MS: since the last look; COUNTS_MS of that are time. */
static void see_all(struct hang *g, struct rank_waits *waits, uint64_t quiet_ms,
		    uint64_t counts_ms)
{
	const uint64_t before_ms = g->now_ms - counts_ms,
		       limit_ms =
			       hang_limit_ms(&g->j->request->lives.hang, g->pause_ms);
	bool ended = false, works = false;

	for (uint32_t i = 0; i < g->j->plan.np; i++) {
		const long silent_ms = output_quiet_ms(g->j->output, i);
		struct seen *s = &g->seen[i];

		see_time(s, counts_ms, limit_ms);
		ended |= see_life(g, i);
		see_use(g, i);
		if (silent_ms >= 0 && (uint64_t)silent_ms <= quiet_ms)
			s->moved_ms = s->ran_ms; /* output is work, too */
		see_ops(g, i, waits->op[i]);
		works |= s->moved_ms == s->ran_ms;
	}
	/* Those that have waited for it hear of its end only now. */
	for (uint32_t i = 0; ended && i < g->j->plan.np; i++)
		g->seen[i].op_ms = g->seen[i].ran_ms;
	if (!works)
		return;
	if (before_ms > g->silent_ms + g->pause_ms)
		g->pause_ms = before_ms - g->silent_ms;
	g->silent_ms = g->now_ms;
}

/* ---- who waits for whom ---- */

static void describe_ranks(struct hang *g, struct rank_waits *waits)
{
	uint32_t came = 0; /* ranks that wait, and have changed operations */

	for (uint32_t i = 0; i < g->j->plan.np; i++) {
		const struct seen *s = &g->seen[i];
		const struct rank_op *op = waits->op[i];
		const struct rank *r = &g->j->rank[i];
		const bool runs = r->state == RANK_RUNNING,
			   leaves = r->left_out ||
				    g->j->run[g->j->plan.rank[i].host].leaves;
		bool waiting = s->pending;

		for (size_t k = 0; op && k < op->n; k++)
			waiting |= op->runs[k];
		g->rank[i] = (struct hang_rank){
			.lives = runs && !leaves,
			.leaves = runs && leaves,
			.known = s->known,
			.joined = op && *op->text,
			.waits = waiting,
			.state = s->state,
			.still_ms = s->ran_ms - s->op_ms,
			.idle_ms = s->ran_ms - s->moved_ms,
			.state_ms = g->now_ms - s->state_ms,
		};
		came += s->changed && waiting;
	}
	for (uint32_t i = 0; i < g->j->plan.np; i++) {
		struct seen *s = &g->seen[i];

		if (came > (s->changed && g->rank[i].waits)) { /* others than I have */
			s->others_ms = s->ran_ms;
			s->others_late_ms = 0;
		}
		g->rank[i].awaited_ms = s->ran_ms - s->others_ms;
	}
}

static void add_behind(struct hang *g, const struct rank_set *missing, uint32_t n)
{
	uint32_t k;

	for (uint32_t i = 0; n && rank_set_first(missing, i, &k); i = k + 1)
		g->rank[k].behind += n;
}

/* Each rank that has waited for LIMIT_MS counts for those for which it waits; ranks in
 * a row that wait for the same are counted together. */
static void count_behind(struct hang *g, struct rank_waits *waits, uint64_t limit_ms)
{
	const struct rank_set none = { 0 }, *last = &none;
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->j->plan.np; i++) {
		const struct hang_rank *r = &g->rank[i];
		const struct rank_set *now;

		if (!r->lives || !r->waits || r->still_ms < limit_ms || !waits->op[i])
			continue;
		if (rank_op_is_asynchronous(waits->op[i]))
			continue; /* the numbers do not say */
		now = &rank_waits_get(waits, i)->missing;
		if (now != last) {
			add_behind(g, last, n);
			last = now;
			n = 0;
		}
		n++;
	}
	add_behind(g, last, n);
}

/* ---- what is done ---- */

/* Those that have waited for the limit. */
static void add_waiting(struct hang *g, uint64_t limit_ms, struct str *out)
{
	struct rank_set set = { 0 };
	size_t n;

	for (uint32_t i = 0; i < g->j->plan.np; i++)
		if (g->rank[i].lives && g->rank[i].waits &&
		    g->rank[i].still_ms >= limit_ms)
			rank_set_add(&set, i);
	n = rank_set_count(&set);
	if (n) {
		str_add(out, ", ");
		rank_waits_print(out, &set);
		str_add(out, n == 1 ? " waits" : " wait");
	}
	rank_set_free(&set);
}

/* `stopped (state T) for 5.1 s, ranks 0-2 wait` */
static void add_why(struct hang *g, const struct hang_verdict *is, uint64_t limit_ms,
		    struct str *out)
{
	static const char *const words[] = {
		[HANG_STOPPED] = "stopped (state T) for ",
		[HANG_BLOCKED] = "blocked in the kernel (state D) for ",
		[HANG_IDLE] = "it has done nothing for ",
		[HANG_BUSY] = "it works, and does not come for ",
		[HANG_MANY] = "several of them do nothing, for ",
		[HANG_CIRCLE] = "each waits for others, for ",
		[HANG_SILENT] = "none has used a CPU, read, written or printed for ",
	};
	const uint64_t late_ms = g->seen[is->rank].others_late_ms;

	str_addf(out, "%s%llu.%llu s", words[is->why],
		 (unsigned long long)is->ms / 1000,
		 (unsigned long long)is->ms / 100 % 10);
	if (is->why == HANG_BUSY && late_ms >= LATE_SAID_MS)
		str_addf(out, " (and had no CPU for %llu.%llu s more)",
			 (unsigned long long)late_ms / 1000,
			 (unsigned long long)late_ms / 100 % 10);
	if (is->why != HANG_CIRCLE)
		add_waiting(g, limit_ms, out);
}

/* `rank 3 on 'n2' hangs: WHY`, or all. */
static void hang_say(struct hang *g, const struct hang_verdict *is, enum hang_act act,
		     const char *why)
{
	static const char *const acts[] = { "", "report", "kill", "restart",
					    "replace" };
	const bool one = is->why <= HANG_BUSY;
	const char *last = one ? rank_status_last(g->j->serves.status, is->rank) : "";
	struct str who = { 0 }, text = { 0 };
	struct err e = { 0 };

	if (one)
		str_addf(&who, "rank %u on '%s'", is->rank,
			 g->j->agents.host[g->j->plan.rank[is->rank].host].name);
	else
		str_add(&who, "all ranks");
	str_add(&text, why);
	if (*last)
		str_addf(&text, "; its last operation: %s", last);
	err_set(&e, E_HANG, str_text(&who), one ? "s" : "", str_text(&text));
	events_begin(g->j->events, "hang");
	if (one)
		events_number(g->j->events, "rank", is->rank);
	events_text(g->j->events, "action", acts[act]);
	events_text(g->j->events, "text", e.text);
	events_end(g->j->events);
	if (g->j->request->verbosity >= 0)
		report_note(g->j, "runner: warning: %s%s%s", e.text,
			    act == HANG_REPORT ? "\nhint: " : "",
			    act == HANG_REPORT ? e.hint : "");
	str_free(&who);
	str_free(&text);
}

static void end_one(struct hang *g, uint32_t rank, enum hang_act act, const char *why)
{
	struct rank *r = &g->j->rank[rank];
	struct host *h = &g->j->agents.host[g->j->plan.rank[rank].host];

	if (r->state != RANK_RUNNING || h->state != HOST_UP ||
	    g->seen[rank].life != r->starts + 1)
		return;
	r->hung = act;
	free(r->hung_text);
	r->hung_text = xstrdup(why);
	r->hung_ms = g->now_ms;
	AGENTS_SEND(h, hung,
		    &((struct wire_hung){ .epoch = g->j->epoch,
					  .rank = rank,
					  .life = r->starts + 1 }));
}

/* The act that follows from IS. */
static enum hang_act find_act(const struct hang *g, const struct hang_verdict *is)
{
	struct job *j = g->j;
	const struct hang_can can = {
		.replace = is->why <= HANG_BUSY && phase_may_replace(j, is->rank),
		.restart = phase_has_restart(j, clock_ms()),
	};

	return hang_act(&j->request->lives.hang, is->why, can);
}

/* Say it, with where all ranks are, and end those that hang. */
static void hang_end(struct hang *g, const struct hang_verdict *is, uint64_t limit_ms,
		     const char *dump)
{
	const enum hang_act act = find_act(g, is);
	struct str why = { 0 };

	add_why(g, is, limit_ms, &why);
	hang_say(g, is, act, str_text(&why));
	if (dump)
		dump_print(g->j, dump);
	for (uint32_t i = 0; act != HANG_REPORT && i < g->j->plan.np; i++)
		if (g->rank[i].lives && (is->why > HANG_BUSY || i == is->rank))
			end_one(g, i, act, str_text(&why));
	str_free(&why);
}

static void due_do(struct hang *g)
{
	struct due due = g->due;

	g->due = (struct due){ 0 };
	event_del(g->late);
	if (due.is.why && g->j->phase == JOB_RUN && !g->j->grace_signo)
		hang_end(g, &due.is, due.limit_ms, due.dump);
	free(due.dump);
}

static void hang_on_late(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	due_do(ctx);
}

/* One more look, if there is time for it. */
static void hang_on_dump(void *ctx, const char *text)
{
	struct hang *g = ctx;
	const uint64_t past_ms = clock_ms() - g->due.asked_ms;

	if (!g->due.is.why || g->due.dump)
		return; /* it went on meanwhile */
	g->due.dump = xstrdup(text);
	loop_after_ms(g->late, past_ms < DUMP_MS ? DUMP_MS - past_ms : 0);
	if (past_ms < DUMP_MS)
		loop_after_ms(g->timer, 0);
}

static void hang_do(struct hang *g, const struct hang_verdict *is, uint64_t limit_ms)
{
	struct job *j = g->j;
	const enum hang_act act = find_act(g, is);
	const bool dumps = j->account.dump && j->request->verbosity >= 0;

	if (act == HANG_REPORT && g->said == is->why && g->said_rank == is->rank)
		return; /* the same as before */
	g->said = is->why;
	g->said_rank = is->rank;
	if (act == HANG_LEAVE)
		return;
	if (act == HANG_REPORT || !dumps) {
		hang_end(g, is, limit_ms, NULL);
		if (dumps)
			dump_ask(j->account.dump, dump_print, j);
		return;
	}
	g->due =
		(struct due){ .is = *is, .limit_ms = limit_ms, .asked_ms = clock_ms() };
	dump_ask(j->account.dump, hang_on_dump, g);
}

/* A rank that is told to end has not done so.  One that does not in END_MS never may:
 * then the job ends. */
static bool awaits_end(struct hang *g)
{
	struct job *j = g->j;
	bool any = false;

	for (uint32_t i = 0; i < j->plan.np; i++) {
		const struct rank *r = &j->rank[i];

		if (!g->rank[i].lives || !r->hung)
			continue;
		any = true;
		if (g->now_ms - r->hung_ms < END_MS || j->refused)
			continue;
		err_set(&j->err, E_RANK_HUNG, i,
			j->agents.host[j->plan.rank[i].host].name, "SIGKILL was sent",
			"it does not end");
		j->refused = true;
	}
	return any;
}

/* ---- the clock of looks ---- */

static uint64_t hang_interval(const struct hang *g)
{
	return hang_interval_ms(&g->j->request->lives.hang, g->j->plan.np);
}

static void hang_on_answers(void *ctx, struct rank_waits *waits)
{
	struct hang *g = ctx;
	const struct hang_limit *limit = &g->j->request->lives.hang;
	const uint64_t past_ms = clock_ms() - g->last_ms,
		       most_ms = 2 * hang_interval(g),
		       counts_ms = past_ms < most_ms ? past_ms : most_ms;
	struct hang_verdict is;
	uint64_t limit_ms;

	g->last_ms += past_ms;
	g->now_ms += counts_ms;
	see_all(g, waits, past_ms, counts_ms);
	limit_ms = hang_limit_ms(limit, g->pause_ms);
	describe_ranks(g, waits);
	for (uint32_t i = 0; i < g->j->plan.np; i++)
		g->seen[i].known = false; /* until its agent answers again */
	if (g->j->phase != JOB_RUN || g->j->grace_signo || awaits_end(g))
		return;
	count_behind(g, waits, g->due.is.why ? g->due.limit_ms : limit_ms);
	if (g->due.is.why) {
		if (!hang_holds(g->rank, g->j->plan.np, g->due.limit_ms, g->due.is))
			g->due.is.why = HANG_NOT;
		if (g->due.dump || !g->due.is.why)
			due_do(g);
		return;
	}
	is = hang_judge(g->rank, g->j->plan.np, limit_ms);
	hang_do(g, &is, limit_ms);
}

static void hang_on_timer(evutil_socket_t fd, short what, void *ctx)
{
	struct hang *g = ctx;

	(void)fd;
	(void)what;
	if (g->j->phase != JOB_RUN)
		return;
	loop_after_ms(g->timer, hang_interval(g));
	rank_status_look(g->j->serves.status);
}

struct hang *hang_open(struct job *j)
{
	const uint32_t most = job_epoch(j).ranks_most;
	struct hang *g;

	if (!j->request->lives.hang.ms)
		return NULL;
	g = xmalloc(sizeof *g);
	*g = (struct hang){ .j = j, .last_ms = clock_ms() };
	g->seen = xcalloc(most, sizeof *g->seen);
	g->rank = xcalloc(most, sizeof *g->rank);
	g->timer = event_new(j->base, -1, 0, hang_on_timer, g);
	g->late = event_new(j->base, -1, 0, hang_on_late, g);
	rank_status_watch(j->serves.status, hang_on_answers, g);
	loop_after_ms(g->timer, hang_interval(g));
	return g;
}

void hang_free(struct hang *g)
{
	if (!g)
		return;
	if (g->j->account.dump)
		dump_forget(g->j->account.dump, g);
	event_free(g->timer);
	event_free(g->late);
	free(g->due.dump);
	free(g->seen);
	free(g->rank);
	free(g);
}
