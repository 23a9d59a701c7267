#include "launcher/job/rank_status.h"

#include <event2/event.h>

#include "launcher/job/report.h"

enum {
	LOOK_MS = 1000,
	STALLS_MOST = 16, /* that differ, at a time */
	SETS_MOST = 64,
	TEXT_MOST = 300,
	BEHIND_MOST = 64 /* ranks in an answer */
};

/* Ranks that wait in the same operation for the same others. */
struct stall {
	uint64_t *waiting, *missing; /* bits */
	char *text;
};

struct rank_status {
	struct job *job;
	struct event *timer;
	bool *asked; /* by host: and no answer yet */
	size_t nasked;
	bool roll_call;
	uint64_t *asking; /* bits: ranks that want to know for whom they wait */
	struct stall stall[STALLS_MOST];
	size_t nstalls;
};

static size_t words_of(const struct job *j)
{
	return j->plan.np / 64 + 1;
}

static void set_bit(uint64_t *bits, uint32_t i)
{
	bits[i / 64] |= 1ull << i % 64;
}

static bool has_bit(const uint64_t *bits, uint32_t i)
{
	return bits[i / 64] >> i % 64 & 1;
}

static size_t count_bits(const uint64_t *bits, size_t words)
{
	size_t n = 0;

	for (size_t i = 0; i < words; i++)
		n += (size_t)__builtin_popcountll(bits[i]);
	return n;
}

/* ---- one rank ---- */

void rank_op_free(struct rank_op *d)
{
	if (!d)
		return;
	free(d->text);
	free(d->set);
	free(d->turn);
	free(d->runs);
	free(d);
}

static uint32_t *copy_list(wire_u32v v, size_t n)
{
	uint32_t *list = xcalloc(n + 1, sizeof *list);

	memcpy(list, v.v, n * sizeof *list);
	return list;
}

static const char not_its[] = "message about a rank of another host";

const char *rank_status_op(struct job *j, struct host *h, const struct wire_rank_op *m)
{
	struct rank_op *d;

	if (!job_has_rank(j, h, m->rank))
		return not_its;
	if (m->sets.n > SETS_MOST || m->turns.n != m->sets.n || m->runs.n != m->sets.n)
		return "malformed 'rank_op' message";
	d = xcalloc(1, sizeof *d);
	*d = (struct rank_op){ .text = str_plain(xstrndup(m->text, TEXT_MOST)),
			       .set = copy_list(m->sets, m->sets.n),
			       .turn = copy_list(m->turns, m->sets.n),
			       .runs = copy_list(m->runs, m->sets.n),
			       .n = m->sets.n };
	rank_op_free(j->rank[m->rank].op);
	j->rank[m->rank].op = d;
	return NULL;
}

/* ---- who waits for whom ---- */

/* Of the number of a set: its asynchronous operations, which have turns of their own
 * (lib/boot.def). */
#define ASYNCHRONOUS 0x80000000u

/* How far RANK has come in SET: true, and which operation it has begun last (0: none);
 * false: it has nothing to do with it, as far as we know. */
static bool turn_in(const struct job *j, uint32_t rank, uint32_t set, uint32_t *turn)
{
	const struct rank_op *d = j->rank[rank].op;

	*turn = 0;
	for (size_t i = 0; d && i < d->n; i++)
		if (d->set[i] == set) {
			*turn = d->turn[i];
			return true;
		}
	return set == WIRE_JOININGS || !(set & ~ASYNCHRONOUS); /* of all ranks */
}

size_t rank_status_missing(const struct job *j, uint32_t rank, uint64_t *bits)
{
	const struct rank_op *d = j->rank[rank].op;
	uint32_t turn;
	size_t n = 0;

	for (size_t i = 0; d && i < d->n; i++) {
		if (!d->runs[i])
			continue;
		for (uint32_t k = 0; k < j->plan.np; k++) {
			if (k == rank || !turn_in(j, k, d->set[i], &turn) ||
			    (int32_t)(turn - d->turn[i]) >= 0 || has_bit(bits, k))
				continue;
			set_bit(bits, k);
			n++;
		}
	}
	return n;
}

/* ---- roll-call ---- */

/* What it does in the library, and for whom it waits there. */
static void add_op(const struct job *j, uint32_t i, struct str *out)
{
	const size_t nwords = j->plan.np / 64 + 1;
	uint64_t *bits;
	size_t n;

	if (!j->rank[i].op || !*j->rank[i].op->text)
		return;
	str_addf(out, "\n    %s", j->rank[i].op->text);
	if (j->rank[i].state != RANK_RUNNING)
		return;
	bits = xcalloc(nwords, sizeof *bits);
	n = rank_status_missing(j, i, bits);
	if (n) {
		str_addf(out, "; waits for rank%s ", n > 1 ? "s" : "");
		str_add_bits(out, bits, nwords);
	}
	free(bits);
}

static void roll_call_line(struct job *j, uint32_t i)
{
	static const char *const states[] = { "waiting", "waiting", "running",
					      "ended" };
	const struct rank *r = &j->rank[i];
	long quiet = output_quiet_ms(j->output, i);
	char last[64] = "no output yet";
	struct str op = { 0 };

	add_op(j, i, &op);
	if (quiet >= 0)
		snprintf(last, sizeof last, "last output %ld.%ld s ago", quiet / 1000,
			 quiet % 1000 / 100);
	report_note(j, "  rank %u  %s  pid %u  %s  %s%s", i,
		    j->agents.host[j->plan.rank[i].host].name, r->pid, states[r->state],
		    last, str_text(&op));
	str_free(&op);
}

static void roll_call(struct job *j)
{
	report_note(j, "runner: roll-call: %u ranks, %u ended", j->plan.np, j->ended);
	for (uint32_t i = 0; i < j->plan.np; i++)
		roll_call_line(j, i);
}

/* ---- asking ---- */

static void free_look(struct rank_status *l)
{
	for (size_t i = 0; i < l->nstalls; i++) {
		free(l->stall[i].waiting);
		free(l->stall[i].missing);
		free(l->stall[i].text);
	}
	event_free(l->timer);
	free(l->asking);
	free(l->asked);
	free(l);
}

void rank_status_free(struct job *j)
{
	if (j->rank_status)
		free_look(j->rank_status);
	j->rank_status = NULL;
}

/* `ranks 3-5`, and of the first its host and what it did last. */
static void add_missing(const struct job *j, const struct stall *st, struct str *out)
{
	const size_t words = words_of(j);
	const size_t n = count_bits(st->missing, words);
	uint32_t first = 0;

	if (!n) {
		str_add(out, "others");
		return;
	}
	while (!has_bit(st->missing, first))
		first++;
	str_add(out, n > 1 ? "ranks " : "rank ");
	str_add_bits(out, st->missing, words);
	if (n > 1)
		str_addf(out, ", rank %u", first);
	str_addf(out, " on '%s'", j->agents.host[j->plan.rank[first].host].name);
	if (j->rank[first].state == RANK_ENDED)
		str_add(out, ", which has ended");
	else if (j->rank[first].op && *j->rank[first].op->text)
		str_addf(out, " (its last operation: %s)", j->rank[first].op->text);
}

static void print_stall(struct job *j, const struct stall *st)
{
	const size_t words = words_of(j), n = count_bits(st->waiting, words);
	struct str who = { 0 }, whom = { 0 };
	uint32_t first = 0;
	struct err e = { 0 };

	while (!has_bit(st->waiting, first))
		first++;
	str_add(&who, n > 1 ? "ranks " : "rank ");
	str_add_bits(&who, st->waiting, words);
	if (n == 1)
		str_addf(&who, " on '%s'",
			 j->agents.host[j->plan.rank[first].host].name);
	add_missing(j, st, &whom);
	err_set(&e, E_STALL, str_text(&who), n > 1 ? "" : "s", st->text,
		str_text(&whom));
	if (j->request->verbosity >= 0)
		report_note(j, "runner: warning: %s\nhint: %s", e.text, e.hint);
	events_begin(j->events, "stall");
	events_number(j->events, "rank", first);
	events_text(j->events, "text", e.text);
	events_end(j->events);
	str_free(&who);
	str_free(&whom);
}

static bool wait_alike(const struct rank_op *a, const struct rank_op *b)
{
	const size_t bytes = a && b ? a->n * sizeof *a->set : 0;

	return a && b && a->n == b->n && !memcmp(a->set, b->set, bytes) &&
	       !memcmp(a->turn, b->turn, bytes) && !memcmp(a->runs, b->runs, bytes);
}

static bool waits_to_join(const struct job *j, uint32_t rank)
{
	const struct rank_op *d = j->rank[rank].op;

	for (size_t i = 0; d && i < d->n; i++)
		if (d->set[i] == WIRE_JOININGS && d->runs[i])
			return true;
	return false;
}

/* With all that it has done: it may have been in the operation, and its time over. */
static bool has_left(const struct job *j, uint32_t rank)
{
	const struct rank_op *d = j->rank[rank].op;

	return j->rank[rank].state == RANK_ENDED || (d && !*d->text);
}

/* Ranks that wait in the same operation wait for the same, so few are looked up. */
static void answer(struct job *j)
{
	const size_t words = words_of(j);
	uint64_t *bits = xcalloc(words, sizeof *bits);
	const struct rank_op *before = NULL;
	uint32_t list[BEHIND_MOST];
	uint32_t n = 0;

	for (uint32_t r = 0; r < j->plan.np; r++) {
		struct wire_missing m = { .epoch = j->epoch, .rank = r };
		struct host *h = &j->agents.host[j->plan.rank[r].host];

		if (!has_bit(j->rank_status->asking, r) || h->state != HOST_UP)
			continue;
		if (!wait_alike(before, j->rank[r].op)) {
			memset(bits, 0, words * sizeof *bits);
			rank_status_missing(j, r, bits);
			n = 0;
			for (uint32_t k = 0; k < j->plan.np && n < BEHIND_MOST; k++)
				if (has_bit(bits, k) &&
				    (waits_to_join(j, r) || !has_left(j, k)))
					list[n++] = k;
			before = j->rank[r].op;
		}
		m.ranks = (wire_u32v){ list, n };
		wire_pack_missing(&h->out, &m);
		agents_flush(h);
	}
	free(bits);
}

static void finish(struct job *j)
{
	struct rank_status *l = j->rank_status;

	answer(j);
	j->rank_status = NULL;
	for (size_t i = 0; i < l->nstalls; i++)
		print_stall(j, &l->stall[i]);
	if (l->roll_call)
		roll_call(j);
	free_look(l);
}

static void on_late(evutil_socket_t fd, short what, void *ctx)
{
	const struct rank_status *l = ctx;

	(void)fd;
	(void)what;
	finish(l->job);
}

static struct rank_status *get_look(struct job *j)
{
	struct rank_status *l = j->rank_status;

	if (l)
		return l;
	l = j->rank_status = xcalloc(1, sizeof *l);
	l->job = j;
	l->asked = xcalloc(j->agents.n, sizeof *l->asked);
	l->asking = xcalloc(words_of(j), sizeof *l->asking);
	l->timer = event_new(j->base, -1, 0, on_late, l);
	event_add(l->timer, &(struct timeval){ .tv_sec = LOOK_MS / 1000 });
	return l;
}

static void ask(struct job *j, uint32_t host)
{
	const struct wire_query m = { j->epoch };
	struct host *h = &j->agents.host[host];

	if (h->state != HOST_UP || j->run[host].cleared ||
	    j->rank_status->asked[host] || j->plan.node[host] == PLAN_UNUSED)
		return;
	j->rank_status->asked[host] = true;
	j->rank_status->nasked++;
	wire_pack_query(&h->out, &m);
	agents_flush(h);
}

const char *rank_status_done(struct job *j, struct host *h)
{
	const uint32_t host = job_index(j, h);

	if (!j->rank_status || !j->rank_status->asked[host]) /* too late */
		return NULL;
	j->rank_status->asked[host] = false;
	if (!--j->rank_status->nasked &&
	    !j->rank_status->nstalls) /* more ranks may say the same */
		finish(j);
	return NULL;
}

static struct stall *get_stall(struct job *j, const uint64_t *missing, const char *text)
{
	const size_t words = words_of(j);
	struct rank_status *l = get_look(j);

	for (size_t i = 0; i < l->nstalls; i++)
		if (!strcmp(l->stall[i].text, text) &&
		    !memcmp(l->stall[i].missing, missing, words * sizeof *missing))
			return &l->stall[i];
	if (l->nstalls == STALLS_MOST)
		return NULL;
	l->stall[l->nstalls] =
		(struct stall){ xcalloc(words, sizeof(uint64_t)),
				xcalloc(words, sizeof(uint64_t)), xstrdup(text) };
	memcpy(l->stall[l->nstalls].missing, missing, words * sizeof *missing);
	return &l->stall[l->nstalls++];
}

const char *rank_status_stall(struct job *j, struct host *h, const struct wire_stall *m)
{
	uint64_t *missing;
	struct stall *st;
	char *text;

	if (!job_has_rank(j, h, m->rank))
		return not_its;
	for (size_t i = 0; i < m->missing.n; i++)
		if (m->missing.v[i] >= j->plan.np)
			return NULL; /* a rank's word, not its agent's */
	missing = xcalloc(words_of(j), sizeof *missing);
	for (size_t i = 0; i < m->missing.n; i++)
		set_bit(missing, m->missing.v[i]);
	text = str_plain(xstrndup(m->text, TEXT_MOST));
	st = get_stall(j, missing, text);
	if (st)
		set_bit(st->waiting, m->rank);
	for (size_t i = 0; i < m->missing.n; i++)
		ask(j, j->plan.rank[m->missing.v[i]].host);
	free(missing);
	free(text);
	return NULL;
}

static void ask_all(struct job *j)
{
	for (uint32_t i = 0; i < j->agents.n; i++)
		ask(j, i);
	if (!j->rank_status->nasked)
		finish(j);
}

const char *rank_status_missing_request(struct job *j, struct host *h,
					const struct wire_missing_request *m)
{
	if (!job_has_rank(j, h, m->rank))
		return not_its;
	set_bit(get_look(j)->asking, m->rank);
	ask_all(j);
	return NULL;
}

void rank_status_roll_call(struct job *j)
{
	if (!j->rank || !j->output)
		return;
	get_look(j)->roll_call = true;
	ask_all(j);
}
