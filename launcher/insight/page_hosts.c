#include "launcher/insight/page_hosts.h"

#include <stdlib.h>

#include "common/str.h"
#include "launcher/insight/format.h"
#include "launcher/insight/html.h"
#include "launcher/insight/page_boxes.h"
#include "launcher/insight/page_strip.h"

enum { PUT_BYTES = 1 << 16 };

/* The ranks of one host. */
struct on_host {
	uint32_t *rank;
	size_t n;
	bool odd, open;
};

double page_cpus(const struct point *p)
{
	return (double)p->cpu + (double)p->children;
}

/* ---- a rank ---- */

static void rank_numbers(struct str *out, const struct facts *f, uint32_t rank)
{
	const struct rank_record *r = &f->record->rank[rank];
	const struct sums *s = &r->sums;

	str_add(out, "<small>");
	if (s->use_s > 0)
		str_addf(out, "computes %.0f %%, no CPU %.0f %%, ",
			 100 * s->main_s / s->use_s, 100 * s->delay_s / s->use_s);
	if (s->ops_s > 0)
		str_addf(out, "waits for others %.0f %%, %.1f steps/s, ",
			 100 * s->blocked_s / s->ops_s, s->steps / s->ops_s);
	if (s->use_s > 0)
		str_addf(out, "%.1f CPUs, %.2f GiB at most",
			 (s->cpu_s + s->children_s) / s->use_s,
			 (double)r->peak_bytes / (1 << 30));
	else
		str_add(out, "no samples");
	str_add(out, "</small>\n");
}

static void rank_berth(struct str *out, const struct facts_rank *r,
		       const struct rank_record *record)
{
	str_addf(out, "<small>pid %u", r->pid);
	if (*r->gpu) {
		str_addf(out, "; GPU %u ", r->gpu_index);
		html_text(out, r->gpu);
		str_add(out, " ");
		html_text(out, r->gpu_name);
	}
	str_add(out, "; CPUs ");
	html_text(out, *r->cpus ? r->cpus : "unknown");
	if (*r->numa) {
		str_add(out, "; NUMA node ");
		html_text(out, r->numa);
	}
	if (record->moved) {
		str_add(out, "; <b>moved to ");
		html_text(out, record->moved);
		str_add(out, "</b>");
	}
	str_add(out, "</small><small>");
	html_text(out, r->why);
	str_add(out, "</small>\n");
}

static void add_rank(struct str *out, const struct facts *f, uint32_t rank,
		     const struct columns *c, const struct point *v, double most_cpus)
{
	const struct facts_rank *r = &f->rank[rank];
	const bool odd = facts_odd(f, rank);
	struct str rules = { 0 };

	str_addf(out, "<div class=\"rank%s\" id=\"r%u\"><div><b>rank %u</b> ",
		 odd ? " odd" : "", rank, rank);
	facts_findings(&rules, f, rank);
	if (rules.len)
		str_addf(out, "<span class=\"pill bad\">%s</span> ", rules.s);
	str_free(&rules);
	if (*r->ended)
		str_addf(out, "<span class=\"%s\">%s</span>",
			 r->failed ? "bad" : "soft", r->ended);
	if (r->end_s >= 0) {
		str_add(out, " <span class=\"soft\">after ");
		format_time(out, r->end_s);
		str_add(out, "</span>");
	}
	if (r->lives > 1)
		str_addf(out, " <span class=\"soft\">in life %u</span>", r->lives);
	rank_numbers(out, f, rank);
	rank_berth(out, r, &f->record->rank[rank]);
	str_add(out, "</div><div>");
	page_strip(out, v, c, "strip", "time of the main thread");
	page_lane(out, v, c, "lane", "CPUs used", most_cpus, page_cpus);
	str_add(out, "</div></div>\n");
}

/* ---- a host ---- */

static void host_head(struct str *out, const struct facts *f, uint32_t host,
		      const struct on_host *on, const struct columns *c,
		      const struct point *mean)
{
	struct rank_set ranks = { 0 };

	str_addf(out, "<details%s><summary><span class=\"row\"><span><b>",
		 on->open ? " open" : "");
	html_text(out, host < f->nhosts ? f->host[host].name : "no host any more");
	str_addf(out, "</b> <span class=\"soft\">%zu rank%s: ", on->n,
		 str_plural(on->n));
	for (size_t i = 0; i < on->n; i++)
		rank_set_add(&ranks, on->rank[i]);
	rank_set_print(out, &ranks);
	rank_set_free(&ranks);
	str_add(out, "</span>");
	if (host < f->nhosts && f->host[host].lost)
		str_add(out, " <span class=\"pill bad\">lost</span>");
	if (on->odd)
		str_add(out, " <span class=\"pill bad\">look here</span>");
	str_add(out, "</span>");
	page_strip(out, mean, c, "fold", "mean of its ranks");
	str_add(out, "</span></summary>\n<div>");
}

static void add_host(struct str *out, const struct facts *f, uint32_t host,
		     const struct on_host *on, double most_cpus)
{
	const struct columns c = facts_columns(f);
	const bool all = f->record->nranks <= PAGE_RANKS_MOST;
	struct point *mean = xcalloc(c.n, sizeof *mean);
	struct point *v = xcalloc(c.n, sizeof *v);

	for (size_t i = 0; i < on->n; i++) {
		const uint32_t rank = on->rank[i];

		columns_rank(v, &c, &f->record->rank[rank].strip,
			     f->rank[rank].strip_end_s);
		columns_add(mean, v, &c);
	}
	columns_mean(mean, &c);
	host_head(out, f, host, on, &c, mean);
	if (host < f->nhosts && all)
		page_boxes(out, f, host, on->rank, on->n);
	for (size_t i = 0; i < on->n; i++) {
		const uint32_t rank = on->rank[i];

		if (!all && !facts_odd(f, rank))
			continue;
		columns_rank(v, &c, &f->record->rank[rank].strip,
			     f->rank[rank].strip_end_s);
		add_rank(out, f, rank, &c, v, most_cpus);
	}
	str_add(out, "<div class=\"rank\"><div></div><div>");
	page_axis(out, &c);
	str_add(out, "</div></div></div></details>\n");
	free(mean);
	free(v);
}

/* ---- all ---- */

/* The ranks of each host; ON[f->nhosts]: those without one. */
static struct on_host *ranks_on_hosts(const struct facts *f)
{
	struct on_host *on = xcalloc(f->nhosts + 1, sizeof *on);
	size_t open = 0;

	for (uint32_t i = 0; i < f->record->nranks; i++) {
		const uint32_t host = f->rank[i].host;
		struct on_host *o = &on[host < f->nhosts ? host : f->nhosts];

		if (!(o->n & (o->n - 1))) /* a power of 2: there is no more room */
			o->rank = xreallocarray(o->rank, o->n ? 2 * o->n : 1,
						sizeof *o->rank);
		o->rank[o->n++] = i;
		o->odd |= facts_odd(f, i);
	}
	for (size_t i = 0; i <= f->nhosts; i++) {
		on[i].open = f->record->nranks <= PAGE_OPEN_RANKS ||
			     (on[i].odd && open < PAGE_OPEN_HOSTS);
		open += on[i].open && on[i].odd;
	}
	return on;
}

void page_hosts(struct str *out, const struct facts *f, double most_cpus,
		facts_put *put, void *ctx)
{
	struct on_host *on = ranks_on_hosts(f);
	size_t shown = 0, hidden = 0;

	for (size_t i = 0; i <= f->nhosts; i++) {
		if (on[i].n && (on[i].open || shown < PAGE_HOSTS_MOST)) {
			add_host(out, f, (uint32_t)i, &on[i], most_cpus);
			shown++;
		} else if (on[i].n) {
			hidden++;
		}
		if (out->len > PUT_BYTES) {
			put(ctx, out->s, out->len);
			out->len = 0;
		}
		free(on[i].rank);
	}
	if (hidden)
		str_addf(out,
			 "<p>%zu more hosts are not shown; --report FILE.json has "
			 "them.</p>\n",
			 hidden);
	if (f->record->nranks > PAGE_RANKS_MOST)
		str_add(out,
			"<p>Only ranks that failed, or that the verdict names, are "
			"shown; --report FILE.json has all.</p>\n");
	free(on);
}
