#include "launcher/job/rank_status.h"

#include <event2/event.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/loop.h"

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

/* The answer of one host, so far. */
struct asked {
	bool now;            /* it was asked, and has not answered */
	uint32_t stalls;     /* reports of its ranks */
	uint64_t missing_ms; /* clock_ms() of its last `missing_request`; 0: none */
};

/* One query of the agents. */
struct query {
	size_t nasked;
	bool print;
	struct rank_set requests; /* ranks that ask which ranks they wait for */
	struct stall stall[STALLS_MOST];
	size_t nstalls;
	struct rank_set reporters; /* of stalls */
};

struct rank_status {
	struct epoch epoch;
	struct rank_status_uses uses;
	struct rank_op **op; /* of each rank, when it was asked last; or NULL */
	/* For each rank, clock_ms() of a line that named it as one that waits, before
	 * it said that itself; 0: none. */
	uint64_t *named_ms;
	struct asked *host;
	struct query query; /* the latest */
	void (*on_answers)(void *ctx, struct rank_waits *waits);
	void *ctx;
	struct event *timer; /* pending while answers to it may come */
};

static void status_on_late(evutil_socket_t fd, short what, void *ctx);

struct rank_status *rank_status_open(const struct epoch *e,
				     const struct rank_status_uses *uses)
{
	struct rank_status *s = xmalloc(sizeof *s);

	*s = (struct rank_status){ .epoch = *e, .uses = *uses };
	s->op = xcalloc(e->ranks_most, sizeof *s->op);
	s->named_ms = xcalloc(e->ranks_most, sizeof *s->named_ms);
	s->host = xcalloc(e->hosts_most, sizeof *s->host);
	s->timer = event_new(e->base, -1, 0, status_on_late, s);
	return s;
}

static void query_end(struct rank_status *s)
{
	struct query *q = &s->query;

	event_del(s->timer);
	for (size_t i = 0; i < q->nstalls; i++) {
		rank_set_free(&q->stall[i].waiting);
		rank_set_free(&q->stall[i].missing);
		free(q->stall[i].text);
	}
	rank_set_free(&q->requests);
	rank_set_free(&q->reporters);
	*q = (struct query){ 0 };
	for (size_t i = 0; i < s->epoch.plan->nhosts; i++)
		s->host[i].now = false;
}

void rank_status_free(struct rank_status *s)
{
	if (!s)
		return;
	query_end(s);
	event_free(s->timer);
	for (uint32_t i = 0; i < s->epoch.plan->np; i++)
		rank_op_free(s->op[i]);
	free(s->op);
	free(s->named_ms);
	free(s->host);
	free(s);
}

static const char not_its[] = "message about a rank of another host";

static bool is_sound(const struct rank_status *s, const struct host *h, uint32_t rank)
{
	return s && epoch_has_rank(&s->epoch, h, rank);
}

/* ---- one rank ---- */

static uint32_t *copy_list(wire_u32v v)
{
	uint32_t *list = xcalloc(v.n + 1, sizeof *list);

	memcpy(list, v.v, v.n * sizeof *list);
	return list;
}

const char *rank_status_op(struct rank_status *s, const struct host *h,
			   const struct wire_rank_op *m)
{
	struct rank_op *op;

	if (!is_sound(s, h, m->rank))
		return not_its;
	if (m->sets.n > SETS_MOST || m->seqs.n != m->sets.n || m->runs.n != m->sets.n)
		return "malformed 'rank_op' message";
	op = xcalloc(1, sizeof *op);
	*op = (struct rank_op){ .text = str_plain(xstrndup(m->text, TEXT_MOST)),
				.set = copy_list(m->sets),
				.seq = copy_list(m->seqs),
				.runs = copy_list(m->runs),
				.n = m->sets.n };
	rank_op_free(s->op[m->rank]);
	s->op[m->rank] = op;
	return NULL;
}

const char *rank_status_last(const struct rank_status *s, uint32_t rank)
{
	return s && s->op[rank] ? s->op[rank]->text : "";
}

void rank_status_waits(const struct rank_status *s, struct rank_waits *waits)
{
	waits->epoch = &s->epoch;
	waits->op = s->op;
}

void rank_status_forget(struct rank_status *s, uint32_t rank)
{
	rank_op_free(s->op[rank]);
	s->op[rank] = NULL;
	s->named_ms[rank] = 0;
}

/* ---- what the user sees ---- */

static uint32_t first_rank(const struct rank_set *set)
{
	uint32_t rank = 0;

	while (!rank_set_has(set, rank))
		rank++;
	return rank;
}

static const char *host_name(const struct rank_status *s, uint32_t rank)
{
	return s->epoch.agents->host[s->epoch.plan->rank[rank].host].name;
}

static void print_rank(struct rank_status *s, uint32_t i, struct rank_waits *waits)
{
	static const char *const states[] = { [RANK_WAITING] = "waiting",
					      [RANK_STARTING] = "waiting",
					      [RANK_RUNNING] = "running",
					      [RANK_ENDED] = "ended" };
	const struct rank *r = &s->epoch.rank[i];
	const char *last = rank_status_last(s, i);
	const long quiet_ms = output_quiet_ms(s->uses.output, i);
	struct str line = { 0 };

	str_addf(&line, "  rank %u  %s  pid %u  %s  ", i, host_name(s, i), r->pid,
		 states[r->state]);
	if (quiet_ms < 0)
		str_add(&line, "no output yet");
	else
		str_addf(&line, "last output %ld.%ld s ago", quiet_ms / 1000,
			 quiet_ms % 1000 / 100);
	if (*last) {
		const struct rank_wait *w =
			r->state == RANK_RUNNING ? rank_waits_get(waits, i) : NULL;

		str_addf(&line, "\n    %s%s", last, w ? w->text : "");
	}
	output_note(s->uses.output, "%s", str_text(&line));
	str_free(&line);
}

/* ---- stalls ---- */

/* Prints the last act of the first of the MISSING ranks, with its name if there are
 * others. */
static void print_last(const struct rank_status *s, const struct rank_set *missing,
		       struct str *out)
{
	const uint32_t first = first_rank(missing);
	const char *last = rank_status_last(s, first);
	const bool one = rank_set_count(missing) == 1;

	str_add(out, " (");
	if (!one)
		str_addf(out, "rank %u on '%s', ", first, host_name(s, first));
	if (epoch_has_ended(&s->epoch, first))
		str_add(out, one ? "it has ended" : "which has ended");
	else
		str_addf(out, "%slast operation: %s", one ? "its " : "",
			 *last ? last : "not known");
	str_add(out, ")");
}

/* `rank 2 on 'n2'`, `ranks 2,5`, or NONE. */
static void print_some(const struct rank_status *s, const struct rank_set *set,
		       const char *none, struct str *out)
{
	const size_t n = rank_set_count(set);

	if (n)
		rank_waits_print(out, set);
	else
		str_add(out, none);
	if (n == 1)
		str_addf(out, " on '%s'", host_name(s, first_rank(set)));
}

static void print_stall(struct rank_status *s, const struct stall *st)
{
	const size_t n = rank_set_count(&st->missing);
	struct str waiting = { 0 }, missing = { 0 }, last = { 0 };
	struct err e = { 0 };

	print_some(s, &st->missing, "other ranks", &missing);
	print_some(s, &st->waiting, "", &waiting);
	if (n)
		print_last(s, &st->missing, &last);
	err_set(&e, E_STALL, str_text(&missing), n == 1 ? "s" : "", str_text(&waiting),
		st->text, str_text(&last));
	if (s->uses.warns) {
		output_note(s->uses.output, "runner: warning: %s", e.text);
		/* once: how the user gets more, by a key or by a signal */
		if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
			err_hint(&e,
				 "run 'kill -QUIT %d' on this machine to see the "
				 "status of every rank",
				 (int)getpid());
		if (!*s->uses.hinted)
			output_note(s->uses.output, "hint: %s", e.hint);
		*s->uses.hinted = true;
	}
	events_begin(s->uses.events, "stall");
	events_number(s->uses.events, "rank", first_rank(&st->waiting));
	events_text(s->uses.events, "text", e.text);
	events_end(s->uses.events);
	str_free(&waiting);
	str_free(&missing);
	str_free(&last);
}

static void add_ranks(const struct rank_status *s, struct rank_set *to,
		      const struct rank_set *from)
{
	for (uint32_t k = 0; k < s->epoch.plan->np; k++)
		if (rank_set_has(from, k))
			rank_set_add(to, k);
}

/* A rank sees of other hosts only that nothing comes, and also takes those for missing
 * that wait as it does.  What all agents say of ST: the ranks that have not come to the
 * operation, and all that wait for them. */
static void correct_stall(struct rank_status *s, struct stall *st,
			  struct rank_waits *waits)
{
	const uint32_t first = first_rank(&st->waiting);
	const struct rank_wait *w;

	if (!s->op[first] || rank_op_is_asynchronous(s->op[first]))
		return;
	w = rank_waits_get(waits, first);
	if (!rank_set_count(&w->missing))
		return; /* it waits no longer */
	rank_set_free(&st->missing);
	add_ranks(s, &st->missing, &w->missing);
	for (uint32_t k = 0; k < s->epoch.plan->np; k++)
		if (k != first && !rank_set_has(&st->waiting, k) &&
		    rank_waits_alike(s->op[k], s->op[first])) {
			rank_set_add(&st->waiting, k);
			if (!rank_set_has(&s->query.reporters, k))
				s->named_ms[k] = clock_ms();
		}
}

/* One line for each cause: the stalls that wait for the same ranks are one. */
static void print_stalls(struct rank_status *s, struct rank_waits *waits)
{
	struct query *q = &s->query;

	for (size_t i = 0; i < q->nstalls; i++)
		correct_stall(s, &q->stall[i], waits);
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
				add_ranks(s, &st->waiting, &q->stall[k].waiting);
		print_stall(s, st);
	}
}

/* ---- answers to ranks ---- */

/* Tell each rank that asked which ranks it waits for. */
static void answer_requests(struct rank_status *s, const struct rank_set *requests,
			    struct rank_waits *waits)
{
	for (uint32_t r = 0; r < s->epoch.plan->np; r++) {
		struct wire_missing m = { .epoch = s->epoch.number, .rank = r };
		struct host *h = &s->epoch.agents->host[s->epoch.plan->rank[r].host];
		const struct rank_wait *w;

		if (!rank_set_has(requests, r) || h->state != HOST_UP)
			continue;
		w = rank_waits_get(waits, r);
		m.ranks = (wire_u32v){ w->answer, w->nanswer };
		AGENTS_SEND(h, missing, &m);
	}
}

/* ---- the query ---- */

static void status_finish(struct rank_status *s)
{
	const uint32_t np = s->epoch.plan->np;
	struct rank_waits *waits = xcalloc(1, sizeof *waits);
	uint32_t ended = 0;

	rank_status_waits(s, waits);
	answer_requests(s, &s->query.requests, waits);
	print_stalls(s, waits);
	for (uint32_t i = 0; i < np; i++)
		ended += epoch_has_ended(&s->epoch, i);
	if (s->query.print) {
		output_note(s->uses.output, "runner: rank status: %u rank%s, %u ended",
			    np, str_plural(np), ended);
		for (uint32_t i = 0; i < np; i++)
			print_rank(s, i, waits);
	}
	if (s->on_answers)
		s->on_answers(s->ctx, waits);
	rank_waits_free(waits);
	free(waits);
	query_end(s);
}

static void status_on_late(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	status_finish(ctx);
}

static struct query *get_query(struct rank_status *s)
{
	if (!event_pending(s->timer, EV_TIMEOUT, NULL))
		loop_after_ms(s->timer, ANSWER_MS);
	return &s->query;
}

static void status_ask(struct rank_status *s, uint32_t host)
{
	struct host *h = &s->epoch.agents->host[host];

	if (!epoch_reaches(&s->epoch, host) || s->host[host].now ||
	    !s->uses.answers(s->uses.ctx, host))
		return;
	s->host[host].now = true;
	s->query.nasked++;
	AGENTS_SEND(h, query, &(struct wire_query){ s->epoch.number });
}

static void ask_all(struct rank_status *s)
{
	for (uint32_t i = 0; i < s->epoch.plan->nhosts; i++)
		status_ask(s, i);
	if (!s->query.nasked)
		status_finish(s);
}

const char *rank_status_done(struct rank_status *s, const struct host *h)
{
	bool *now = s ? &s->host[epoch_index(&s->epoch, h)].now : NULL;

	if (!now || !*now) /* too late */
		return NULL;
	*now = false;
	if (!--s->query.nasked && !s->query.nstalls) /* more may say the same */
		status_finish(s);
	return NULL;
}

/* The stall of TEXT that waits for MISSING; NULL: there are too many. */
static struct stall *get_stall(struct rank_status *s, const struct rank_set *missing,
			       const char *text)
{
	struct query *q = get_query(s);
	struct stall *st = q->stall;

	for (; st < q->stall + q->nstalls; st++)
		if (!strcmp(st->text, text) && rank_set_equal(&st->missing, missing))
			return st;
	if (q->nstalls == STALLS_MOST)
		return NULL;
	q->nstalls++;
	*st = (struct stall){ .text = xstrdup(text) };
	add_ranks(s, &st->missing, missing);
	return st;
}

const char *rank_status_stall(struct rank_status *s, const struct host *h,
			      const struct wire_stall *m)
{
	struct rank_set missing = { 0 };
	struct stall *st = NULL;
	uint64_t named_ms;
	uint32_t *stalls;
	char *text;

	if (!is_sound(s, h, m->rank))
		return not_its;
	stalls = &s->host[epoch_index(&s->epoch, h)].stalls;
	*stalls += *stalls <= STALLS_TAKEN;
	if (*stalls == STALLS_TAKEN)
		output_note(s->uses.output, "runner: %s: further stalls are not shown",
			    h->name);
	if (*stalls >= STALLS_TAKEN)
		return NULL;
	for (size_t i = 0; i < m->missing.n; i++)
		if (m->missing.v[i] >= s->epoch.plan->np)
			return NULL; /* a rank said that, not its agent */
	for (size_t i = 0; i < m->missing.n; i++)
		rank_set_add(&missing, m->missing.v[i]);
	text = str_plain(xstrndup(m->text, TEXT_MOST));
	/* TEXT begins with how many seconds the rank has waited by its own clock.
	 * Meanwhile a line may have named it. */
	named_ms = s->named_ms[m->rank];
	s->named_ms[m->rank] = 0;
	if (!named_ms || clock_ms() - named_ms >= 1000 * strtoull(m->text, NULL, 10))
		st = get_stall(s, &missing, text);
	if (st) {
		rank_set_add(&st->waiting, m->rank);
		rank_set_add(&s->query.reporters, m->rank);
		for (size_t i = 0; i < s->epoch.plan->nhosts; i++)
			status_ask(s, (uint32_t)i);
	}
	rank_set_free(&missing);
	free(text);
	return NULL;
}

const char *rank_status_missing_request(struct rank_status *s, const struct host *h,
					const struct wire_missing_request *m)
{
	const uint64_t now = clock_ms();
	uint64_t *missing_ms;

	if (!is_sound(s, h, m->rank))
		return not_its;
	rank_set_add(&get_query(s)->requests, m->rank);
	missing_ms = &s->host[epoch_index(&s->epoch, h)].missing_ms;
	/* A host has all others asked once in a second.  Requests in between get
	 * what is known then. */
	if (*missing_ms && now - *missing_ms < ANSWER_MS)
		return NULL;
	*missing_ms = now;
	ask_all(s);
	return NULL;
}

void rank_status_print(struct rank_status *s)
{
	if (!s)
		return;
	get_query(s)->print = true;
	ask_all(s);
}

void rank_status_watch(struct rank_status *s,
		       void (*fn)(void *ctx, struct rank_waits *waits), void *ctx)
{
	s->on_answers = fn;
	s->ctx = ctx;
}

void rank_status_look(struct rank_status *s)
{
	get_query(s);
	ask_all(s);
}
