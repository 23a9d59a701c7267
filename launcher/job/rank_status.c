#include "launcher/job/rank_status.h"

#include <event2/event.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/loop.h"
#include "launcher/job/report.h"

enum {
	ANSWER_MS = 1000,
	STALLS_MOST = 16, /* that differ, at a time */
	SETS_MOST = 64,
	TEXT_MOST = 300,
	STALLS_TAKEN = 1000 /* reports of the ranks of a host, in an epoch */
};

/* Ranks that wait in the same operation for the same others. */
struct stall {
	struct rank_set waiting, missing;
	char *text;
};

/* One query of the agents, while answers may come. */
struct rank_status {
	struct job *job;
	struct event *timer;
	bool *asked; /* by host: it was, and has not answered */
	size_t nasked;
	bool print;
	struct rank_set requests; /* ranks that ask which ranks they wait for */
	struct stall stall[STALLS_MOST];
	size_t nstalls;
	struct rank_set reporters; /* of stalls */
};

static const char not_its[] = "message about a rank of another host";

static bool is_sound(const struct job *j, const struct host *h, uint32_t rank)
{
	return j->phase >= JOB_RUN && job_has_rank(j, h, rank);
}

/* ---- one rank ---- */

static uint32_t *copy_list(wire_u32v v)
{
	uint32_t *list = xcalloc(v.n + 1, sizeof *list);

	memcpy(list, v.v, v.n * sizeof *list);
	return list;
}

const char *rank_status_op(struct job *j, struct host *h, const struct wire_rank_op *m)
{
	struct rank_op *op;

	if (!is_sound(j, h, m->rank))
		return not_its;
	if (m->sets.n > SETS_MOST || m->seqs.n != m->sets.n || m->runs.n != m->sets.n)
		return "malformed 'rank_op' message";
	op = xcalloc(1, sizeof *op);
	*op = (struct rank_op){ .text = str_plain(xstrndup(m->text, TEXT_MOST)),
				.set = copy_list(m->sets),
				.seq = copy_list(m->seqs),
				.runs = copy_list(m->runs),
				.n = m->sets.n };
	rank_op_free(j->rank[m->rank].op);
	j->rank[m->rank].op = op;
	return NULL;
}

/* ---- what the user sees ---- */

static uint32_t first_rank(const struct rank_set *set)
{
	uint32_t rank = 0;

	while (!rank_set_has(set, rank))
		rank++;
	return rank;
}

static const char *host_name(const struct job *j, uint32_t rank)
{
	return j->agents.host[j->plan.rank[rank].host].name;
}

static void print_rank(struct job *j, uint32_t i, struct rank_waits *waits)
{
	static const char *const states[] = { [RANK_WAITING] = "waiting",
					      [RANK_STARTING] = "waiting",
					      [RANK_RUNNING] = "running",
					      [RANK_ENDED] = "ended" };
	const struct rank *r = &j->rank[i];
	const long quiet_ms = output_quiet_ms(j->output, i);
	struct str line = { 0 };

	str_addf(&line, "  rank %u  %s  pid %u  %s  ", i, host_name(j, i), r->pid,
		 states[r->state]);
	if (quiet_ms < 0)
		str_add(&line, "no output yet");
	else
		str_addf(&line, "last output %ld.%ld s ago", quiet_ms / 1000,
			 quiet_ms % 1000 / 100);
	if (r->op && *r->op->text) {
		const struct rank_wait *w =
			r->state == RANK_RUNNING ? rank_waits_get(j, waits, i) : NULL;

		str_addf(&line, "\n    %s%s", r->op->text, w ? w->text : "");
	}
	report_note(j, "%s", str_text(&line));
	str_free(&line);
}

/* ---- stalls ---- */

/* What the first of the MISSING ranks did last, with its name if there are others. */
static void print_last(const struct job *j, const struct rank_set *missing,
		       struct str *out)
{
	const uint32_t first = first_rank(missing);
	const struct rank *r = &j->rank[first];
	const bool one = rank_set_count(missing) == 1;

	str_add(out, " (");
	if (!one)
		str_addf(out, "rank %u on '%s', ", first, host_name(j, first));
	if (r->state == RANK_ENDED)
		str_add(out, one ? "it has ended" : "which has ended");
	else
		str_addf(out, "%slast operation: %s", one ? "its " : "",
			 r->op && *r->op->text ? r->op->text : "not known");
	str_add(out, ")");
}

/* Once, how the user gets more: by a key, or without a terminal by a signal. */
static void print_stall_hint(struct job *j, struct err *e)
{
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		err_hint(e,
			 "run 'kill -QUIT %d' on this machine to see the status of "
			 "every rank",
			 (int)getpid());
	report_note(j, "hint: %s", e->hint);
}

/* `rank 2 on 'n2'`, `ranks 2,5`, or NONE. */
static void print_some(const struct job *j, const struct rank_set *set,
		       const char *none, struct str *out)
{
	const size_t n = rank_set_count(set);

	if (n)
		rank_waits_print(out, set);
	else
		str_add(out, none);
	if (n == 1)
		str_addf(out, " on '%s'", host_name(j, first_rank(set)));
}

static void print_stall(struct job *j, const struct stall *st)
{
	const size_t n = rank_set_count(&st->missing);
	struct str waiting = { 0 }, missing = { 0 }, last = { 0 };
	struct err e = { 0 };

	print_some(j, &st->missing, "other ranks", &missing);
	print_some(j, &st->waiting, "", &waiting);
	if (n)
		print_last(j, &st->missing, &last);
	err_set(&e, E_STALL, str_text(&missing), n == 1 ? "s" : "", str_text(&waiting),
		st->text, str_text(&last));
	if (j->request->verbosity >= 0) {
		report_note(j, "runner: warning: %s", e.text);
		if (!j->stall_hinted)
			print_stall_hint(j, &e);
		j->stall_hinted = true;
	}
	events_begin(j->events, "stall");
	events_number(j->events, "rank", first_rank(&st->waiting));
	events_text(j->events, "text", e.text);
	events_end(j->events);
	str_free(&waiting);
	str_free(&missing);
	str_free(&last);
}

static void add_ranks(const struct job *j, struct rank_set *to,
		      const struct rank_set *from)
{
	for (uint32_t k = 0; k < j->plan.np; k++)
		if (rank_set_has(from, k))
			rank_set_add(to, k);
}

/* A rank sees of other hosts only that nothing comes, and also takes those for missing
 * that wait as it does.  What all agents say of ST: the ranks that have not come to the
 * operation, and all that wait for them. */
static void correct_stall(struct job *j, struct stall *st, struct rank_waits *waits)
{
	const uint32_t first = first_rank(&st->waiting);
	const struct rank_wait *w;

	if (!j->rank[first].op || rank_op_is_asynchronous(j->rank[first].op))
		return;
	w = rank_waits_get(j, waits, first);
	if (!rank_set_count(&w->missing))
		return; /* it waits no longer */
	rank_set_free(&st->missing);
	add_ranks(j, &st->missing, &w->missing);
	for (uint32_t k = 0; k < j->plan.np; k++)
		if (k != first && !rank_set_has(&st->waiting, k) &&
		    rank_waits_alike(j->rank[k].op, j->rank[first].op)) {
			rank_set_add(&st->waiting, k);
			if (!rank_set_has(&j->rank_status->reporters, k))
				j->rank[k].stall_named_ms = clock_ms();
		}
}

/* One line for each cause: the stalls that wait for the same ranks are one. */
static void print_stalls(struct job *j, struct rank_waits *waits)
{
	struct rank_status *q = j->rank_status;

	for (size_t i = 0; i < q->nstalls; i++)
		correct_stall(j, &q->stall[i], waits);
	for (size_t i = 0; i < q->nstalls; i++) {
		struct stall *st = &q->stall[i];
		size_t before = 0;

		while (before < i &&
		       !rank_set_equal(&q->stall[before].missing, &st->missing))
			before++;
		if (before < i)
			continue;
		for (size_t k = i + 1; k < q->nstalls; k++)
			if (rank_set_equal(&q->stall[k].missing, &st->missing))
				add_ranks(j, &st->waiting, &q->stall[k].waiting);
		print_stall(j, st);
	}
}

/* ---- answers to ranks ---- */

/* Tell each rank that asked which ranks it waits for. */
static void answer_requests(struct job *j, const struct rank_set *requests,
			    struct rank_waits *waits)
{
	for (uint32_t r = 0; r < j->plan.np; r++) {
		struct wire_missing m = { .epoch = j->epoch, .rank = r };
		struct host *h = &j->agents.host[j->plan.rank[r].host];
		const struct rank_wait *w;

		if (!rank_set_has(requests, r) || h->state != HOST_UP)
			continue;
		w = rank_waits_get(j, waits, r);
		m.ranks = (wire_u32v){ w->answer, w->nanswer };
		wire_pack_missing(&h->out, &m);
		agents_flush(h);
	}
}

/* ---- the query ---- */

void rank_status_free(struct job *j)
{
	struct rank_status *q = j->rank_status;

	if (!q)
		return;
	j->rank_status = NULL;
	for (size_t i = 0; i < q->nstalls; i++) {
		rank_set_free(&q->stall[i].waiting);
		rank_set_free(&q->stall[i].missing);
		free(q->stall[i].text);
	}
	event_free(q->timer);
	rank_set_free(&q->requests);
	rank_set_free(&q->reporters);
	free(q->asked);
	free(q);
}

static void status_finish(struct job *j)
{
	struct rank_status *q = j->rank_status;
	struct rank_waits *waits = xcalloc(1, sizeof *waits);

	answer_requests(j, &q->requests, waits);
	print_stalls(j, waits);
	if (q->print) {
		report_note(j, "runner: rank status: %u rank%s, %u ended", j->plan.np,
			    str_plural(j->plan.np), j->ended);
		for (uint32_t i = 0; i < j->plan.np; i++)
			print_rank(j, i, waits);
	}
	rank_waits_free(waits);
	free(waits);
	rank_status_free(j);
}

static void status_on_late(evutil_socket_t fd, short what, void *ctx)
{
	const struct rank_status *q = ctx;

	(void)fd;
	(void)what;
	status_finish(q->job);
}

static struct rank_status *get_query(struct job *j)
{
	struct rank_status *q = j->rank_status;

	if (q)
		return q;
	q = j->rank_status = xcalloc(1, sizeof *q);
	q->job = j;
	q->asked = xcalloc(j->agents.n, sizeof *q->asked);
	q->timer = event_new(j->base, -1, 0, status_on_late, q);
	loop_after_ms(q->timer, ANSWER_MS);
	return q;
}

static void status_ask(struct job *j, uint32_t host)
{
	const struct wire_query m = { j->epoch };
	struct host *h = &j->agents.host[host];

	if (j->phase < JOB_RUN || !job_reaches(j, host) ||
	    j->run[host].phase >= RUN_CLEARED || j->rank_status->asked[host])
		return;
	j->rank_status->asked[host] = true;
	j->rank_status->nasked++;
	wire_pack_query(&h->out, &m);
	agents_flush(h);
}

static void ask_all(struct job *j)
{
	for (uint32_t i = 0; i < j->agents.n; i++)
		status_ask(j, i);
	if (!j->rank_status->nasked)
		status_finish(j);
}

const char *rank_status_done(struct job *j, struct host *h)
{
	struct rank_status *q = j->rank_status;

	if (!q || !q->asked[job_index(j, h)]) /* too late */
		return NULL;
	q->asked[job_index(j, h)] = false;
	if (!--q->nasked && !q->nstalls) /* more ranks may say the same */
		status_finish(j);
	return NULL;
}

/* The stall of TEXT that waits for MISSING; NULL: there are too many. */
static struct stall *get_stall(struct job *j, const struct rank_set *missing,
			       const char *text)
{
	struct rank_status *q = get_query(j);
	struct stall *st = q->stall;

	for (; st < q->stall + q->nstalls; st++)
		if (!strcmp(st->text, text) && rank_set_equal(&st->missing, missing))
			return st;
	if (q->nstalls == STALLS_MOST)
		return NULL;
	q->nstalls++;
	*st = (struct stall){ .text = xstrdup(text) };
	for (uint32_t i = 0; i < j->plan.np; i++)
		if (rank_set_has(missing, i))
			rank_set_add(&st->missing, i);
	return st;
}

/* Whether one more report of a stall from H is shown. */
static bool is_stall_taken(struct job *j, struct host *h)
{
	struct host_run *run = &j->run[job_index(j, h)];

	run->stalls += run->stalls <= STALLS_TAKEN;
	if (run->stalls == STALLS_TAKEN)
		report_note(j, "runner: %s: further stalls are not shown", h->name);
	return run->stalls < STALLS_TAKEN;
}

/* A line has named the rank while it waited in this operation: it begins with how many
 * seconds it has waited by its own clock. */
static bool status_is_named(struct job *j, const struct wire_stall *m)
{
	uint64_t *named_ms = &j->rank[m->rank].stall_named_ms;
	const uint64_t waited_ms = 1000 * strtoull(m->text, NULL, 10);
	const bool named = *named_ms && clock_ms() - *named_ms < waited_ms;

	*named_ms = 0;
	return named;
}

const char *rank_status_stall(struct job *j, struct host *h, const struct wire_stall *m)
{
	struct rank_set missing = { 0 };
	struct stall *st;
	char *text;

	if (!is_sound(j, h, m->rank))
		return not_its;
	if (!is_stall_taken(j, h))
		return NULL;
	for (size_t i = 0; i < m->missing.n; i++)
		if (m->missing.v[i] >= j->plan.np)
			return NULL; /* a rank said that, not its agent */
	for (size_t i = 0; i < m->missing.n; i++)
		rank_set_add(&missing, m->missing.v[i]);
	text = str_plain(xstrndup(m->text, TEXT_MOST));
	st = status_is_named(j, m) ? NULL : get_stall(j, &missing, text);
	if (st) {
		rank_set_add(&st->waiting, m->rank);
		rank_set_add(&j->rank_status->reporters, m->rank);
		for (size_t i = 0; i < j->agents.n; i++)
			status_ask(j, (uint32_t)i);
	}
	rank_set_free(&missing);
	free(text);
	return NULL;
}

const char *rank_status_missing_request(struct job *j, struct host *h,
					const struct wire_missing_request *m)
{
	struct host_run *run = &j->run[job_index(j, h)];
	const uint64_t now = clock_ms();

	if (!is_sound(j, h, m->rank))
		return not_its;
	rank_set_add(&get_query(j)->requests, m->rank);
	/* A host has all others asked once in a second.  Requests in between get
	 * what is known then. */
	if (run->missing_ms && now - run->missing_ms < ANSWER_MS)
		return NULL;
	run->missing_ms = now;
	ask_all(j);
	return NULL;
}

void rank_status_print(struct job *j)
{
	if (!j->rank || !j->output)
		return;
	get_query(j)->print = true;
	ask_all(j);
}
