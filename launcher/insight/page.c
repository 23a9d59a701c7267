#include "launcher/insight/page.h"

#include <stdlib.h>

#include "common/str.h"
#include "launcher/insight/format.h"
#include "launcher/insight/html.h"
#include "launcher/insight/page_hosts.h"
#include "launcher/insight/page_large.h"
#include "launcher/insight/page_strip.h"
#include "launcher/insight/page_style.h"
#include "launcher/insight/page_table.h"

enum { LINKS_MOST = 16, MARKS_MOST = 100 };

/* ---- the head, the verdict ---- */

/* The command lines of the apps, as typed, without secrets. */
static void add_command(struct str *out, const struct facts *f)
{
	struct str line = { 0 };

	for (size_t i = 0; i < f->napp && line.len <= FORMAT_BYTES; i++) {
		const struct strv *argv = f->app[i].argv;

		if (i)
			str_add(&line, " : ");
		for (size_t k = 0; k < argv->n && line.len <= FORMAT_BYTES; k++) {
			str_add(&line, k ? " " : "");
			format_word(&line, argv, k);
		}
	}
	html_text(out, str_text(&line));
	str_free(&line);
}

static void page_head(struct str *out, const struct facts *f)
{
	str_add(out,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta "
		"charset=\"utf-8\">\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
		"'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" "
		"content=\"width=device-width, initial-scale=1\">\n<meta "
		"name=\"referrer\" content=\"no-referrer\">\n<title>berth: ");
	add_command(out, f);
	str_add(out, "</title>\n<style>\n");
	str_add(out, page_style);
	str_add(out, "</style>\n</head>\n<body>\n<h1><code>");
	add_command(out, f);
	str_addf(out, "</code></h1>\n<p><span class=\"pill %s\">%s status %d</span> ",
		 f->status ? "bad" : "good",
		 f->status ? "failed:" : "ended well:", f->status);
	str_addf(out, "<span class=\"soft\">%u rank%s, ", f->record->nranks,
		 str_plural(f->record->nranks));
	format_time(out, f->wall_s);
	str_add(out, ", ");
	format_date(out, f->begin);
	str_add(out, "</span></p>\n");
}

static void add_finding(struct str *out, const struct finding *f)
{
	uint32_t rank = 0, links = 0;

	str_addf(out, "<div class=\"card find\"><b>%s</b>", f->rule);
	if (f->gain > 0)
		str_addf(out,
			 " <span class=\"pill\">a step would take %.0f %% less</span>",
			 100 * f->gain);
	str_add(out, "<p>");
	html_text(out, f->text);
	str_add(out, "</p><p><b>Try:</b> ");
	html_text(out, f->advice);
	str_add(out, "</p>");
	while (links < LINKS_MOST && rank_set_first(&f->ranks, rank, &rank)) {
		str_addf(out, "%s<a href=\"#r%u\">rank %u</a>",
			 links++ ? ", " : "<p>See ", rank, rank);
		rank++;
	}
	str_add(out, links ? "</p></div>\n" : "</div>\n");
}

static void page_verdict(struct str *out, const struct facts *f)
{
	const struct verdict *v = f->verdict;

	str_add(out, "<h2>Verdict</h2>\n");
	if (f->cause) {
		str_add(out, "<div class=\"card\"><b>CAUSE</b><p class=\"m\">");
		html_text(out, f->cause);
		str_add(out, "</p></div>\n");
	}
	for (size_t i = 0; i < v->n; i++)
		add_finding(out, &v->v[i]);
	if (!v->looked)
		str_add(out, "<div class=\"card\">There was too little to look at: the "
			     "verdict needs samples of 2 s.</div>\n");
	else if (!v->n)
		str_add(out, "<div class=\"card\"><span class=\"good\">&#10004;</span> "
			     "Nothing to improve was found.</div>\n");
	if (v->missing) {
		str_add(out, "<p class=\"soft\">");
		html_text(out, v->missing);
		str_add(out, "</p>\n");
	}
}

/* ---- the job ---- */

static void page_job(struct str *out, const struct facts *f)
{
	const char **names = xcalloc(f->nhosts + 1, sizeof *names);
	struct str hosts = { 0 }, text = { 0 };

	for (size_t i = 0; i < f->nhosts; i++)
		names[i] = f->host[i].name;
	hosts_fold(&hosts, names, f->nhosts);
	str_add(out, "<h2>Job</h2>\n<div class=\"card\"><dl>\n");
	html_row(out, "hosts", str_text(&hosts));
	str_addf(&text, "%d", f->status);
	html_row(out, "exit status", text.s);
	text.len = 0;
	format_date(&text, f->begin + f->wall_s);
	html_row(out, "ended", text.s);
	if (f->restarts) {
		text.len = 0;
		str_addf(&text, "%u", f->restarts);
		html_row(out, "restarts", text.s);
	}
	html_row(out, "output files", f->logs);
	text.len = 0;
	if (f->record->period_ms)
		str_addf(&text, "each %.1f s", f->record->period_ms / 1000.0);
	else
		str_add(&text, "none: --monitor off");
	html_row(out, "samples", text.s);
	html_row(out, "job id", f->job);
	html_row(out, "runner", f->version);
	str_add(out, "</dl></div>\n");
	str_free(&hosts);
	str_free(&text);
	free(names);
}

/* ---- all ranks ---- */

static double page_steps(const struct point *p)
{
	return (double)p->steps;
}

/* The times of restarts and of the cause, for the picture of all ranks. */
static size_t find_marks(double *at_s, const struct facts *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->events->n && n < MARKS_MOST; i++) {
		const struct event_row *row = event_log_row(f->events, i);

		if (!strcmp(row->name, "restart") || !strcmp(row->name, "cause") ||
		    !strcmp(row->name, "stall") ||
		    !strcmp(row->name, "rank starts again"))
			at_s[n++] = row->begin - f->begin;
	}
	return n;
}

/* The mean of all ranks; returns the most CPUs that one of them used in a column. */
static double mean_of_all(struct point *mean, const struct facts *f,
			  const struct columns *c)
{
	struct point *v = xcalloc(c->n, sizeof *v);
	double most_cpus = 1;

	for (uint32_t i = 0; i < f->record->nranks; i++) {
		columns_rank(v, c, &f->record->rank[i].strip, f->rank[i].strip_end_s);
		columns_add(mean, v, c);
		for (uint32_t k = 0; k < c->n; k++)
			if (page_cpus(&v[k]) > most_cpus)
				most_cpus = page_cpus(&v[k]);
	}
	columns_mean(mean, c);
	free(v);
	return most_cpus;
}

static double page_ranks(struct str *out, const struct facts *f)
{
	const struct columns c = facts_columns(f);
	struct point *mean = xcalloc(c.n, sizeof *mean);
	const double most_cpus = mean_of_all(mean, f, &c);
	double at_s[MARKS_MOST], most_steps = 0;
	const size_t marks = find_marks(at_s, f);

	for (uint32_t i = 0; i < c.n; i++)
		if (page_steps(&mean[i]) > most_steps)
			most_steps = page_steps(&mean[i]);
	str_add(out, "<h2>All ranks</h2>\n<div class=\"card\">");
	if (most_steps > 0 || marks) {
		str_addf(out, "<small>steps a second, from 0 to %.1f%s</small>\n",
			 most_steps,
			 marks ? "; dashed lines: failures, stalls, restarts" : "");
		page_lane(out, mean, &c, "steps", "", most_steps, page_steps);
		page_marks(out, &c, at_s, marks);
	}
	str_add(out, "<small>time of their main threads, mean</small>\n");
	page_strip(out, mean, &c, "strip", "time of the main threads, mean");
	page_axis(out, &c);
	page_table(out, f->record);
	str_add(out, "</div>\n");
	page_large(out, f->record);
	str_add(out, "<h2>Hosts and ranks</h2>\n");
	page_legend(out);
	str_addf(out, "<p class=\"soft\">Lines go from 0 to %.1f CPUs.</p>\n",
		 most_cpus);
	free(mean);
	return most_cpus;
}

/* ---- events, environment ---- */

static void page_event(struct str *out, const struct facts *f,
		       const struct event_row *row)
{
	struct str hosts = { 0 }, ranks = { 0 };

	str_add(out, "<tr><td class=\"r\">");
	format_time(out, row->begin - f->begin);
	str_add(out, "</td><td class=\"t\">");
	html_text(out, row->name);
	str_add(out, "</td><td>");
	rank_set_print(&ranks, &row->ranks);
	if (ranks.len)
		str_addf(out, "rank%s ", str_plural(rank_set_count(&row->ranks)));
	html_text(out, str_text(&ranks));
	if (row->hosts.n)
		hosts_fold(&hosts, (const char *const *)row->hosts.v, row->hosts.n);
	if (hosts.len)
		str_add(out, ranks.len ? " on " : "");
	html_text(out, str_text(&hosts));
	str_add(out, *row->text && (ranks.len || hosts.len) ? ": " : "");
	html_text(out, row->text);
	if (row->count > 1) {
		str_addf(out, " <span class=\"soft\">(%zu, within ", row->count);
		format_time(out, row->end - row->begin);
		str_add(out, ")</span>");
	}
	str_add(out, "</td></tr>\n");
	str_free(&hosts);
	str_free(&ranks);
}

static void page_events(struct str *out, const struct facts *f)
{
	str_addf(
		out,
		"<h2>Events</h2>\n<details%s><summary>%zu rows</summary><div>"
		"<table><tr><th class=\"r\">after</th><th>event</th><th>of</th></tr>\n",
		f->events->n <= 30 ? " open" : "", f->events->n);
	for (size_t i = 0; i < f->events->n; i++) {
		if (i == EVENT_ROWS_FIRST && f->events->left_out)
			str_addf(out,
				 "<tr><td></td><td></td><td>%zu rows are left out"
				 "</td></tr>\n",
				 f->events->left_out);
		page_event(out, f, event_log_row(f->events, i));
	}
	str_add(out, "</table></div></details>\n");
}

static void page_variables(struct str *out, const struct strv *env, const char *title)
{
	if (!env || !env->n)
		return;
	str_addf(out, "<details><summary>%s: %zu</summary><div><dl class=\"vars\">\n",
		 title, env->n);
	for (size_t i = 0; i < env->n; i++) {
		struct str name = { 0 }, value = { 0 };

		format_variable(&name, &value, env->v[i]);
		str_add(out, "<dt><code>");
		html_text(out, str_text(&name));
		str_add(out, "</code></dt><dd><code>");
		html_text(out, str_text(&value));
		str_add(out, "</code></dd>\n");
		str_free(&name);
		str_free(&value);
	}
	str_add(out, "</dl></div></details>\n");
}

void page_html(const struct facts *f, facts_put *put, void *ctx)
{
	struct str out = { 0 };
	double most_cpus;

	page_head(&out, f);
	page_verdict(&out, f);
	page_job(&out, f);
	most_cpus = page_ranks(&out, f);
	page_hosts(&out, f, most_cpus, put, ctx);
	page_events(&out, f);
	str_add(&out, "<h2>Variables</h2>\n");
	page_variables(&out, f->env, "that travel from runner");
	for (size_t i = 0; i < f->napp; i++)
		page_variables(&out, f->app[i].env, "that -x and files set");
	str_add(&out, "</body>\n</html>\n");
	put(ctx, out.s, out.len);
	str_free(&out);
}
