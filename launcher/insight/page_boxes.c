#include "launcher/insight/page_boxes.h"

#include <stdlib.h>

#include "common/str.h"
#include "launcher/insight/html.h"
#include "launcher/insight/page_style.h"

enum { THINGS_MOST = 4096 }; /* CPUs, or GPUs, of a host that are shown */

/* CPUs or GPUs of a host: the ranks that have each. */
struct things {
	struct rank_set *who;
	uint32_t n;
};

/* RANK has thing AT. */
static void thing_has(struct things *t, uint32_t at, uint32_t rank)
{
	if (at >= t->n && at < THINGS_MOST) {
		t->who = xreallocarray(t->who, at + 1, sizeof *t->who);
		memset(t->who + t->n, 0, (at + 1 - t->n) * sizeof *t->who);
		t->n = at + 1;
	}
	if (at < t->n)
		rank_set_add(&t->who[at], rank);
}

/* RANK has what LIST, as "0-3,8", names; what is no list ends it. */
static void things_of_list(struct things *t, const char *list, uint32_t rank)
{
	while (*list >= '0' && *list <= '9') {
		char *end;
		unsigned long from = strtoul(list, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (; from <= to && from < THINGS_MOST; from++)
			thing_has(t, (uint32_t)from, rank);
		list = end + (*end == ',');
	}
}

/* A box for the things FROM to TO of T, which the same ranks have.  LOCAL: the local
 * rank of the first of them. */
static void add_box(struct str *out, const struct things *t, uint32_t from, uint32_t to,
		    const struct facts *f)
{
	const struct rank_set *who = &t->who[from];
	const size_t n = rank_set_count(who);
	uint32_t first = 0;

	str_addf(out, "<span style=\"flex-grow:%u\" class=\"box", to - from + 1);
	if (n == 1 && rank_set_first(who, 0, &first))
		str_addf(out, " k k%u", f->rank[first].local % PAGE_COLOURS);
	str_addf(out, "\">%u", from);
	if (to > from)
		str_addf(out, "-%u", to);
	str_add(out, n ? n > 1 ? "<i>ranks " : "<i>rank " : "<i>free");
	rank_set_print(out, who);
	str_add(out, "</i></span>");
}

/* The boxes of T, each of as many equal things as MOST. */
static void add_boxes(struct str *out, struct things *t, uint32_t most,
		      const struct facts *f, const char *title)
{
	if (t->n)
		str_addf(out, "<small>%s</small><div class=\"boxes\">", title);
	for (uint32_t i = 0, to; i < t->n; i = to + 1) {
		for (to = i; to + 1 < t->n && to + 1 - i < most &&
			     rank_set_equal(&t->who[i], &t->who[to + 1]);)
			to++;
		add_box(out, t, i, to, f);
	}
	if (t->n)
		str_add(out, "</div>\n");
	for (uint32_t i = 0; i < t->n; i++)
		rank_set_free(&t->who[i]);
	free(t->who);
}

void page_boxes(struct str *out, const struct facts *f, uint32_t host,
		const uint32_t *rank, size_t n)
{
	const struct facts_host *h = &f->host[host];
	struct things cpus = { 0 }, gpus = { 0 };

	cpus.n = h->cpus < THINGS_MOST ? h->cpus : THINGS_MOST;
	cpus.who = xcalloc(cpus.n + 1, sizeof *cpus.who);
	gpus.n = h->gpus < THINGS_MOST ? h->gpus : THINGS_MOST;
	gpus.who = xcalloc(gpus.n + 1, sizeof *gpus.who);
	for (size_t i = 0; i < n; i++) {
		const struct facts_rank *r = &f->rank[rank[i]];

		things_of_list(&cpus, r->cpus, rank[i]);
		if (*r->gpu)
			thing_has(&gpus, r->gpu_index, rank[i]);
	}
	add_boxes(out, &cpus, THINGS_MOST, f, "CPUs");
	add_boxes(out, &gpus, 1, f, "GPUs");
	if (*h->certificate) {
		str_add(out, "<small>");
		html_text(out, h->certificate);
		str_add(out, "</small>\n");
	}
	if (*h->idle) {
		str_add(out, "<small>CPUs that no rank got: ");
		html_text(out, h->idle);
		str_add(out, "</small>\n");
	}
}
