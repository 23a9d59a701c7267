#include "launcher/job/dump.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/loop.h"
#include "launcher/job/dump_text.h"
#include "launcher/job/job.h"
#include "launcher/job/rank_status.h"

enum { ASKERS_MOST = 16 };

/* The answer about one rank, and its operations at the dump before. */
struct dumped {
	bool known;
	char state;
	char *wchan, *stack, *why;
	uint64_t ops; /* a hash; 0: there was none */
};

struct asker {
	void (*fn)(void *ctx, const char *text);
	void *ctx;
};

struct dump {
	struct job *j;
	struct event *timer; /* pending while answers may come */
	struct dumped
		*rank; /* of each rank of the epoch; NULL: nothing was asked yet */
	uint32_t most, awaited;
	uint64_t last_ms; /* clock_ms() of the last dump of this epoch, or 0 */
	struct asker asker[ASKERS_MOST];
	size_t naskers;
};

static void forget_answers(struct dump *d)
{
	for (uint32_t i = 0; i < d->most; i++) {
		free(d->rank[i].wchan);
		free(d->rank[i].stack);
		free(d->rank[i].why);
		d->rank[i] = (struct dumped){ .ops = d->rank[i].ops };
	}
}

static void give_text(struct dump *d, const char *text)
{
	const size_t n = d->naskers;

	event_del(d->timer);
	d->naskers = 0;
	for (size_t i = 0; i < n; i++)
		if (d->asker[i].fn)
			d->asker[i].fn(d->asker[i].ctx, text);
}

/* ---- facts ---- */

/* The operation in which it is; else the last one of the set with the most.  Returns a
 * hash of all. */
static uint64_t take_record(struct dump_rank *r, const struct rank_op *op)
{
	uint64_t hash = 0xcbf29ce484222325u;

	r->op = op ? op->text : "";
	for (size_t i = 0; op && i < op->n; i++) {
		const uint32_t v[] = { op->set[i], op->seq[i], op->runs[i] };
		const bool is_init = op->set[i] == WIRE_INIT_ROUNDS;

		for (size_t k = 0; k < sizeof v / sizeof *v; k++)
			hash = (hash ^ v[k]) * 0x100000001b3u;
		if (op->runs[i] || (!r->runs && !is_init && op->seq[i] >= r->seq)) {
			r->set = op->set[i];
			r->seq = is_init ? 0 : op->seq[i];
		}
		r->runs |= op->runs[i] != 0;
	}
	r->ordered = op && !rank_op_is_asynchronous(op) && r->seq;
	return hash | 1;
}

static void take_rank(struct dump *d, struct dump_rank *r, uint32_t rank,
		      const struct rank_op *op)
{
	struct job *j = d->j;
	struct dumped *is = &d->rank[rank];
	const char *last = output_tail(j->output, rank);
	size_t n = strlen(last);
	uint64_t ops;

	n -= n && last[n - 1] == '\n';
	while (n && last[n - 1] != '\n')
		n--;
	*r = (struct dump_rank){
		.host = j->agents.host[j->plan.rank[rank].host].name,
		.lives = j->rank[rank].state == RANK_RUNNING,
		.known = is->known,
		.state = is->state,
		.wchan = is->wchan,
		.stack = is->stack,
		.why = is->why,
		.last = last + n,
		.quiet_ms = output_quiet_ms(j->output, rank),
	};
	ops = take_record(r, op);
	r->was = is->ops && op && op->n;
	r->moved = is->ops != ops;
	is->ops = op && op->n ? ops : 0;
}

static void dump_finish(struct dump *d)
{
	const uint32_t np = d->j->plan.np;
	const uint64_t now = clock_ms();
	struct dump_rank *v = xcalloc(np + 1, sizeof *v);
	struct rank_waits *waits = xcalloc(1, sizeof *waits);
	struct dump_facts f = { .job = d->j->spec.job_id, .v = v, .np = np };
	struct str text = { 0 };

	rank_status_waits(d->j->serves.status, waits);
	for (uint32_t i = 0; i < np; i++)
		take_rank(d, &v[i], i, waits->op[i]);
	for (uint32_t i = 0; i < np; i++) {
		const struct rank_set *missing;

		if (!v[i].lives || !v[i].runs || !v[i].ordered)
			continue;
		missing = &rank_waits_get(waits, i)->missing;
		for (uint32_t k = 0; rank_set_first(missing, k, &k); k++)
			v[k].behind++;
	}
	f.before_ms = d->last_ms ? now - d->last_ms : 0;
	d->last_ms = now;
	dump_text(&text, &f);
	give_text(d, str_text(&text));
	str_free(&text);
	rank_waits_free(waits);
	free(waits);
	free(v);
	forget_answers(d);
}

/* ---- the question ---- */

static void dump_on_late(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	dump_finish(ctx);
}

struct dump *dump_open(struct job *j)
{
	struct dump *d = xcalloc(1, sizeof *d);

	d->j = j;
	d->timer = event_new(j->base, -1, 0, dump_on_late, d);
	return d;
}

void dump_epoch_ends(struct dump *d)
{
	if (!d)
		return;
	if (d->naskers)
		give_text(d, "runner: dump: the ranks have ended meanwhile\n");
	forget_answers(d);
	free(d->rank);
	d->rank = NULL;
	d->most = 0;
	d->last_ms = 0;
}

void dump_free(struct dump *d)
{
	if (!d)
		return;
	dump_epoch_ends(d);
	event_free(d->timer);
	free(d);
}

static void ask_agents(struct dump *d)
{
	struct job *j = d->j;

	if (!d->rank) {
		d->most = job_epoch(j).ranks_most;
		d->rank = xcalloc(d->most + 1, sizeof *d->rank);
	}
	d->awaited = 0;
	rank_status_look(j->serves.status);
	for (uint32_t i = 0; i < j->plan.nhosts; i++)
		if (job_reaches(j, i))
			AGENTS_SEND(&j->agents.host[i], dump,
				    &(struct wire_dump){ j->epoch });
	for (uint32_t i = 0; i < j->plan.np; i++)
		d->awaited += j->rank[i].state == RANK_RUNNING;
	loop_after_ms(d->timer, d->awaited ? DUMP_MS : 0);
}

void dump_ask(struct dump *d, void (*fn)(void *ctx, const char *text), void *ctx)
{
	if (d->j->phase != JOB_RUN || !d->j->serves.status) {
		fn(ctx, "runner: dump: no rank runs now\n");
		return;
	}
	if (d->naskers == ASKERS_MOST) {
		fn(ctx, "runner: dump: many others ask just now\n");
		return;
	}
	d->asker[d->naskers++] = (struct asker){ fn, ctx };
	if (d->naskers == 1)
		ask_agents(d);
}

void dump_print(void *job, const char *text)
{
	struct job *j = job;

	if (j->output)
		output_note(j->output, "%.*s", (int)strlen(text) - 1, text);
}

void dump_forget(struct dump *d, const void *ctx)
{
	for (size_t i = 0; i < d->naskers; i++)
		if (d->asker[i].ctx == ctx)
			d->asker[i].fn = NULL;
}

static char *plain_lines(const char *text)
{
	char *copy = xstrdup(text);

	for (char *p = copy; *p;) {
		const size_t n = strcspn(p, "\n");
		const char end = p[n];

		p[n] = '\0';
		str_plain(p);
		p[n] = end;
		p += n + (end == '\n');
	}
	return copy;
}

const char *dump_dumped(struct dump *d, const struct host *h,
			const struct wire_dumped *m)
{
	struct dumped *is;

	if (!d)
		return NULL;
	if (!job_has_rank(d->j, h, m->rank))
		return "message about a rank of another host";
	if (!d->naskers || m->rank >= d->most || d->rank[m->rank].known)
		return NULL; /* too late */
	is = &d->rank[m->rank];
	is->known = true;
	is->state = m->state > ' ' && m->state < 127 ? (char)m->state : '?';
	is->wchan = str_plain(xstrdup(m->wchan));
	is->stack = plain_lines(m->stack);
	is->why = str_plain(xstrdup(m->why));
	if (d->awaited && !--d->awaited)
		dump_finish(d);
	return NULL;
}
