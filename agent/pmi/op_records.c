/* The operations of a rank in the library, as the memory of its host says.  The ranks
 * may write anything there, at any time: each entry is copied first, then read. */
#include "agent/pmi/server_internal.h"

#include <unistd.h>

enum {
	RECORDS_MOST = 64,
	SETS_MOST = 16,
	STALL_MS = 1000 /* between two reports of one rank that are passed on */
};

/* A rank's flight recorder: its last operations, the newest first. */
struct recorder {
	struct boot_record op[RECORDS_MOST];
	size_t n;
};

/* ---- reading the memory ---- */

/* Whether N items of SIZE from AT on lie in BYTES. */
static bool records_fits(uint64_t bytes, uint64_t at, uint64_t n, uint64_t size)
{
	return at <= bytes && (bytes - at) / size >= n;
}

static bool records_copy(const struct init_round *round, uint64_t at, void *to,
			 size_t n)
{
	return records_fits(round->bytes, at, n, 1) &&
	       pread(round->memory, to, n, (off_t)at) == (ssize_t)n;
}

static bool read_rank(const struct server *s, uint32_t local, struct boot_memory *head,
		      struct boot_rank *rank)
{
	const struct init_round *round = s->member[local].round;

	return round && round->memory >= 0 &&
	       records_copy(round, 0, head, sizeof *head) &&
	       head->magic == BOOT_MAGIC && head->version == BOOT_VERSION &&
	       records_fits(round->bytes, head->rank_at, round->local_size,
			    sizeof *rank) &&
	       records_copy(round,
			    head->rank_at + s->member[local].place * sizeof *rank, rank,
			    sizeof *rank);
}

bool op_records_secondary(const struct server *s, uint32_t local)
{
	struct boot_memory head;
	struct boot_rank rank;

	return read_rank(s, local, &head, &rank) && atomic_load(&rank.failed_peer);
}

static void read_recorder(const struct server *s, uint32_t local, struct recorder *r)
{
	const size_t bytes = BOOT_RECORDS * sizeof(struct boot_record);
	const struct init_round *round = s->member[local].round;
	struct boot_memory head;
	struct boot_rank rank;
	uint64_t number, at;

	r->n = 0;
	if (!read_rank(s, local, &head, &rank) ||
	    !records_fits(round->bytes, head.record_at, round->local_size, bytes))
		return;
	number = atomic_load(&rank.number);
	at = head.record_at + s->member[local].place * bytes;
	for (; r->n < RECORDS_MOST && number; r->n++, number--) {
		struct boot_record *op = &r->op[r->n];
		const uint64_t place = (number - 1) % BOOT_RECORDS * sizeof *op;

		if (!records_copy(round, at + place, op, sizeof *op) ||
		    (atomic_load(&op->number) != number && r->n))
			return;
		if (atomic_load(&op->number) != number) { /* the rank writes it now */
			*op = (struct boot_record){ .begun = clock_ns() };
			atomic_store(&op->state, BOOT_RECORD_QUEUED);
		}
	}
}

/* ---- rank_op ---- */

static const char *records_word(const char *const *words, size_t n, unsigned i)
{
	return i < n ? words[i] : "?";
}

static void add_op(struct str *out, const struct boot_record *op)
{
	static const char *const
		kinds[] = { KIND_NAMES },
		*const types[] = { TYPE_NAMES }, *const ops[] = { OP_NAMES },
		*const states[] = { "begun", "queued", "begun", "done", "failed" };
	enum { KINDS = sizeof kinds / sizeof *kinds };
	const unsigned state = op->state <= BOOT_RECORD_FAILED ? op->state : 0;
	const bool ended = state >= BOOT_RECORD_DONE && op->ended;
	const uint64_t then = ended ? op->ended : op->begun, now = clock_ns();
	const uint64_t ms = now > then ? (now - then) / 1000000 : 0;

	str_add(out, records_word(kinds, KINDS, op->kind));
	if (*op->name)
		str_addf(out, " \"%.*s\"", (int)sizeof op->name, op->name);
	if (op->kind && op->kind != KIND_BARRIER)
		str_addf(out, " of %llu %s", (unsigned long long)op->count,
			 records_word(types, sizeof types / sizeof *types, op->type));
	if (op->kind && op->kind <= KIND_LAST_REDUCTION)
		str_addf(out, ", %s",
			 records_word(ops, sizeof ops / sizeof *ops, op->op));
	str_addf(out, ", %s %llu", states[state], (unsigned long long)ms / 1000);
	if (ms < 10000)
		str_addf(out, ".%u", (unsigned)ms / 100 % 10);
	str_add(out, " s ago");
}

/* The number of its init round, then of each set the newest operation that has begun.
 * Returns how many. */
static size_t collect_seqs(const struct member *m, const struct recorder *r,
			   bool waits_to_join, uint32_t *set, uint32_t *seq,
			   uint32_t *runs)
{
	size_t n = 1;

	set[0] = WIRE_INIT_ROUNDS;
	seq[0] = m->init_round + (m->state == MEMBER_WAITING);
	runs[0] = m->state == MEMBER_WAITING ? 2 : waits_to_join;
	for (size_t i = 0; i < r->n; i++) {
		const struct boot_record *op = &r->op[i];
		size_t k = 0;

		if (op->state < BOOT_RECORD_RUNS)
			continue;
		while (k < n && set[k] != op->set)
			k++;
		if (k < n || k > SETS_MOST)
			continue;
		set[k] = op->set;
		seq[k] = op->seq;
		runs[k] = op->state == BOOT_RECORD_RUNS;
		n++;
	}
	return n;
}

void op_records_send(const struct server *s, uint32_t local)
{
	const struct member *m = &s->member[local];
	const bool waits = m->state == MEMBER_WAITING || m->state == MEMBER_JOINING ||
			   m->state == MEMBER_IN_FENCE;
	uint32_t set[1 + SETS_MOST], seq[1 + SETS_MOST], runs[1 + SETS_MOST];
	struct wire_rank_op w = { .epoch = s->job->epoch,
				  .rank = s->job->ranks.v[local] };
	const struct boot_record *op;
	struct str text = { 0 };
	struct recorder r;
	size_t n;

	if (!m->init_round)
		return;
	read_recorder(s, local, &r);
	op = r.op;
	for (size_t i = 0; i < r.n; i++) /* the oldest that runs, else the newest */
		if (r.op[i].state == BOOT_RECORD_RUNS)
			op = &r.op[i];
	if (r.n)
		add_op(&text, op);
	else if (m->state != MEMBER_NOT_JOINED)
		str_add(&text, "no operation yet");
	if (waits)
		str_add(&text, ", it waits for all ranks to join");
	else if (r.n && m->state == MEMBER_NOT_JOINED)
		str_add(&text, ", then it left");
	n = collect_seqs(m, &r, waits, set, seq, runs);
	w.sets = (wire_u32v){ set, n };
	w.seqs = (wire_u32v){ seq, n };
	w.runs = (wire_u32v){ runs, n };
	w.text = str_text(&text);
	wire_pack_rank_op(s->out, &w);
	str_free(&text);
}

void server_progress(const struct server *s, size_t local, uint32_t *number,
		     uint32_t *pending)
{
	struct boot_memory head;
	struct boot_rank rank;
	struct recorder r;

	*number = *pending = 0;
	if (!s || !read_rank(s, (uint32_t)local, &head, &rank))
		return;
	*number = (uint32_t)atomic_load(&rank.number);
	read_recorder(s, (uint32_t)local, &r);
	for (size_t i = 0; i < r.n; i++)
		*pending += r.op[i].state < BOOT_RECORD_DONE;
}

void op_records_query(const struct server *s)
{
	const struct wire_query_done m = { s->job->epoch };

	for (uint32_t i = 0; i < s->job->ranks.n; i++)
		op_records_send(s, i);
	wire_pack_query_done(s->out, &m);
}

/* ---- for --monitor ---- */

/* When its last operation began or ended. */
static uint64_t records_last_ns(const struct server *s, uint32_t local,
				const struct boot_memory *head, uint64_t number)
{
	const struct init_round *round = s->member[local].round;
	const uint64_t bytes = BOOT_RECORDS * sizeof(struct boot_record);
	const uint64_t at = s->member[local].place * bytes +
			    (number - 1) % BOOT_RECORDS * sizeof(struct boot_record);
	struct boot_record op;

	if (!records_fits(round->bytes, head->record_at, round->local_size, bytes) ||
	    !records_copy(round, head->record_at + at, &op, sizeof op))
		return 0;
	return op.ended > op.begun ? op.ended : op.begun;
}

static void tell_large(const struct server *s, const struct wire_rank_ops *ops,
		       unsigned kind, unsigned size, const struct boot_large *large)
{
	static const char *const kinds[] = { KIND_NAMES };
	const struct wire_large_ops w = {
		.epoch = ops->epoch,
		.rank = ops->rank,
		.init_round = ops->init_round,
		.kind = kinds[kind],
		.size = size,
		.ops = atomic_load(&large->ops),
		.bytes = atomic_load(&large->bytes),
		.bus_bytes = atomic_load(&large->bus_bytes),
		.us = atomic_load(&large->ns) / 1000,
	};

	if (w.ops)
		wire_pack_large_ops(s->out, &w);
}

void op_records_tell(struct server *s, uint32_t local)
{
	struct member *m = &s->member[local];
	struct boot_memory head;
	struct boot_rank rank;
	struct wire_rank_ops w;

	if (!m->init_round || !read_rank(s, local, &head, &rank) ||
	    !atomic_load(&rank.number) || !atomic_load(&rank.first_ns))
		return;
	m->has_worked = true;
	w = (struct wire_rank_ops){
		.epoch = s->job->epoch,
		.rank = s->job->ranks.v[local],
		.init_round = m->init_round,
		.clock_ns = clock_ns(),
		.first_ns = atomic_load(&rank.first_ns),
		.last_ns = records_last_ns(s, local, &head, atomic_load(&rank.number)),
		.ops = atomic_load(&rank.number),
		.bytes = atomic_load(&rank.bytes),
		.steps = atomic_load(&rank.steps),
		.blocked_us = atomic_load(&rank.blocked_ns) / 1000,
	};
	wire_pack_rank_ops(s->out, &w);
	for (unsigned kind = 0; kind < BOOT_LARGE_KINDS; kind++)
		for (unsigned i = 0; i < BOOT_LARGE_SIZES; i++)
			tell_large(s, &w, kind + 1, BOOT_LARGE_FIRST + i,
				   &rank.large[kind][i]);
}

pid_t op_records_pid(const struct server *s, uint32_t local)
{
	const struct member *m = &s->member[local];
	struct boot_memory head;
	struct boot_rank rank;

	if (m->state != MEMBER_JOINED || !read_rank(s, local, &head, &rank))
		return 0;
	return rank.pid < INT32_MAX ? (pid_t)rank.pid : 0;
}

/* ---- a rank that waits ---- */

int op_records_missing_request(struct client *c)
{
	struct member *m = &c->s->member[c->local];
	const struct wire_missing_request w = { c->s->job->epoch,
						c->s->job->ranks.v[c->local] };

	if (m->asks_missing ||
	    (m->state != MEMBER_JOINED && m->state != MEMBER_IN_FENCE &&
	     m->state != MEMBER_WAITING))
		return -1;
	m->asks_missing = true;
	wire_pack_missing_request(c->s->out, &w);
	return 0;
}

/* In the numbers of C's world, if it has one. */
static void send_missing(struct client *c, const wire_u32v *ranks)
{
	uint32_t *list = xcalloc(ranks->n + 1, sizeof *list);
	size_t n = 0;

	for (size_t i = 0; i < ranks->n; i++) {
		list[n] = c->round ? init_round_place(c->round, ranks->v[i])
				   : ranks->v[i];
		n += !c->round || list[n] < c->round->size;
	}
	client_send(c, BOOT_MISSING, list, n * sizeof *list);
	free(list);
}

void op_records_missing(struct server *s, const struct wire_missing *w)
{
	for (uint32_t i = 0; i < s->job->ranks.n; i++) {
		struct member *m = &s->member[i];

		if (s->job->ranks.v[i] != w->rank || !m->asks_missing || !m->client)
			continue;
		m->asks_missing = false;
		send_missing(m->client, &w->ranks);
	}
}

int op_records_stall(struct client *c, const unsigned char *p, size_t n)
{
	struct member *m = &c->s->member[c->local];
	const uint64_t now = clock_ms();
	struct wire_stall w = { .epoch = c->s->job->epoch,
				.rank = c->s->job->ranks.v[c->local] };
	uint32_t count, *list;
	size_t bytes;

	memcpy(&count, p, sizeof count);
	bytes = (size_t)count * sizeof count;
	if (n - sizeof count <= bytes ||
	    memchr(p + sizeof count + bytes, 0, n - sizeof count - bytes) != p + n - 1)
		return -1;
	if (m->stalled_ms && now - m->stalled_ms < STALL_MS)
		return 0;
	m->stalled_ms = now;
	list = xcalloc(count + 1, sizeof *list);
	memcpy(list, p + sizeof count, bytes);
	for (uint32_t i = 0; i < count; i++)
		if (list[i] < c->round->size)
			list[i] = init_round_rank(c->round, list[i]);
	w.missing = (wire_u32v){ list, count };
	w.text = (const char *)p + sizeof count + bytes;
	wire_pack_stall(c->s->out, &w);
	free(list);
	return 0;
}
