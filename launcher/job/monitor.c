#include "launcher/job/monitor.h"

#include <stdlib.h>

#include "launcher/insight/live.h"
#include "launcher/job/timeline.h"
#include "launcher/output/keys.h"

static const char no_rank[] = "message of a rank that is not its";

/* ---- from samples to the record ---- */

/* The record has room for all ranks and hosts. */
static struct record *monitor_record(struct job *j)
{
	record_grow(&j->account.record, j->plan.np, j->agents.n);
	return &j->account.record;
}

const char *monitor_use(struct job *j, struct host *h, const struct wire_rank_use *m)
{
	struct point p;
	int64_t now_ns;

	if (!job_has_rank(j, h, m->rank))
		return no_rank;
	now_ns = agents_time(h, m->clock_ns);
	p = record_use(monitor_record(j), m, j->rank[m->rank].bound, now_ns);
	timeline_sample(j->account.timeline, m->rank, now_ns, &p);
	return NULL;
}

const char *monitor_ops(struct job *j, struct host *h, const struct wire_rank_ops *m)
{
	if (!job_has_rank(j, h, m->rank))
		return no_rank;
	record_ops(monitor_record(j), m);
	return NULL;
}

const char *monitor_large(struct job *j, struct host *h, const struct wire_large_ops *m)
{
	if (!job_has_rank(j, h, m->rank))
		return no_rank;
	return large_add(&monitor_record(j)->rank[m->rank].large, m);
}

const char *monitor_gpu(struct job *j, struct host *h, const struct wire_gpu_use *m)
{
	if (!job_has_rank(j, h, m->rank))
		return no_rank;
	record_gpu(monitor_record(j), m);
	return NULL;
}

const char *monitor_host(struct job *j, struct host *h, const struct wire_host_use *m)
{
	enum { DRAW_MS = 400 };

	record_host(monitor_record(j), job_index(j, h), m);
	if (clock_ms() - j->account.view.drawn_ms >= DRAW_MS)
		monitor_draw(j);
	return NULL;
}

/* ---- from the record to verdicts ---- */

/* The job as verdicts see it; monitor_unlook() frees it. */
static struct look monitor_look(const struct job *j)
{
	struct ranked *rank = xcalloc(j->account.record.nranks + 1, sizeof *rank);
	const char **name = xcalloc(j->agents.n + 1, sizeof *name);
	struct look l = { .record = &j->account.record,
			  .rank = rank,
			  .host = name,
			  .fewest = j->account.fewest };

	for (size_t i = 0; i < j->agents.n; i++)
		name[i] = j->agents.host[i].name;
	for (uint32_t i = 0; i < l.record->nranks; i++) {
		const uint32_t host = i < j->plan.np ? j->plan.rank[i].host : 0;

		rank[i].host = j->agents.host[host].name;
		rank[i].at = host;
		if (i >= j->plan.np)
			continue;
		if (j->rank) {
			rank[i].bound = j->rank[i].bound;
			rank[i].gpu = j->rank[i].gpu && *j->rank[i].gpu;
		}
		l.crowded |= j->plan.local_size[host] > j->agents.host[host].cpus;
	}
	return l;
}

static void monitor_unlook(struct look *l)
{
	free((void *)l->rank);
	free((void *)l->host);
}

void monitor_verdict(struct verdict *v, const struct job *j)
{
	struct look l = monitor_look(j);

	verdict_make(v, &l);
	monitor_unlook(&l);
}

/* ---- on the terminal ---- */

/* The table of all ranks in so many ROWS, or the line if that is 0. */
static void monitor_text(struct str *out, const struct job *j, size_t width,
			 size_t rows)
{
	struct look l = monitor_look(j);
	struct verdict verdict;
	struct live now = { .np = j->plan.np, .verdict = &verdict };

	for (uint32_t i = 0; j->rank && i < j->plan.np; i++)
		now.up += j->rank[i].state == RANK_RUNNING;
	verdict_make(&verdict, &l);
	if (rows)
		live_table(out, &l, &now, width, rows);
	else
		live_line(out, &l, &now);
	verdict_free(&verdict);
	monitor_unlook(&l);
}

void monitor_draw(struct job *j)
{
	struct live_view *v = &j->account.view;
	struct str text = { 0 };
	size_t width, rows;

	v->drawn_ms = clock_ms();
	if (v->closed || !j->output || !output_shows_status(j->output, &width, &rows))
		return;
	monitor_text(&text, j, width - 1, v->table ? rows / 2 : 0);
	output_status(j->output, str_text(&text));
	str_free(&text);
}

void monitor_print(struct job *j)
{
	enum { WIDTH = 100, ROWS = 1000 };
	struct str text = { 0 };

	if (!insight_period_ms(&j->request->insight) || !j->account.record.nranks)
		return;
	monitor_text(&text, j, WIDTH, ROWS);
	output_note(j->output, "runner: %s", str_text(&text));
	str_free(&text);
}

static void monitor_on_key(void *ctx, char key)
{
	struct job *j = ctx;

	if (key != 'q' && key != 't')
		return;
	j->account.view.table = key == 't';
	monitor_draw(j);
}

void monitor_begin(struct job *j)
{
	struct live_view *v = &j->account.view;

	if (!j->request->insight.top || v->keys)
		return;
	v->table = true;
	v->keys = keys_open(j->base, monitor_on_key, j);
}

void monitor_close(struct job *j)
{
	struct live_view *v = &j->account.view;

	keys_close(v->keys);
	*v = (struct live_view){ .closed = true };
	if (j->output)
		output_status(j->output, NULL);
}
