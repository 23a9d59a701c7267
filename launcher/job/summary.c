#include "launcher/job/summary.h"

#include <stdlib.h>

#include "common/str.h"
#include "launcher/output/events.h"
#include "launcher/output/nccl_report.h"

void account_cause(struct account *a, const char *cause)
{
	free(a->cause);
	a->cause = cause ? xstrdup(cause) : NULL;
}

/* The place of loss I of all. */
static size_t loss_place(size_t i)
{
	return i < LOSSES_FIRST ? i : LOSSES_FIRST + (i - LOSSES_FIRST) % LOSSES_LAST;
}

/* Loss I of those that are kept, in the order of time; NULL: there are no more. */
static const struct loss *loss_kept(const struct losses *l, size_t i)
{
	if (i >= LOSSES_FIRST && l->n > LOSSES_KEPT)
		i += l->n - LOSSES_KEPT;
	return i < l->n ? &l->v[loss_place(i)] : NULL;
}

void account_loss(struct account *a, uint64_t at_ns, const char *text)
{
	struct losses *l = &a->losses;
	struct loss *to = &l->v[loss_place(l->n++)];

	free(to->text);
	*to = (struct loss){ at_ns, xstrdup(text) };
}

const char *account_last_loss(const struct account *a)
{
	const size_t n = a->losses.n;

	return n ? a->losses.v[loss_place(n - 1)].text : NULL;
}

void account_free(struct account *a)
{
	for (size_t i = 0; i < LOSSES_KEPT; i++)
		free(a->losses.v[i].text);
	free(a->usage);
	record_free(&a->record);
	free(a->cause);
	free(a->restarts.at_ms);
}

void usage_rank(struct usage *u, uint64_t end_ns, uint64_t cpu_us, uint64_t peak_bytes)
{
	u->ranks_us += cpu_us;
	if (!u->peak_cgroup && peak_bytes > u->peak_bytes)
		u->peak_bytes = peak_bytes;
	if (!u->first_end_ns || end_ns < u->first_end_ns)
		u->first_end_ns = end_ns;
	if (end_ns > u->last_end_ns)
		u->last_end_ns = end_ns;
}

void usage_epoch(struct usage *u, uint64_t cpu_us, uint64_t peak_bytes)
{
	if (peak_bytes && (!u->peak_cgroup || peak_bytes > u->peak_bytes))
		u->peak_bytes = peak_bytes;
	u->peak_cgroup |= peak_bytes > 0;
	u->cpu_cgroup |= cpu_us > 0;
	u->cpu_us += cpu_us ? cpu_us : u->ranks_us;
	u->ranks_us = 0;
}

static double summary_seconds(const struct summary *s, uint64_t at_ns)
{
	/* a host's clock is known to 10 us or so: nothing ends after the job */
	if (at_ns > s->end_ns)
		at_ns = s->end_ns;
	return at_ns > s->begin_ns ? (double)(at_ns - s->begin_ns) / 1e9 : 0;
}

static double cpu_seconds(const struct usage *u)
{
	return (double)(u->cpu_us + u->ranks_us) / 1e6;
}

static const char *summary_source(bool cgroup)
{
	return cgroup ? "cgroup" : "wait4";
}

/* ---- for people ---- */

static void text_host(struct str *out, const struct summary *s, size_t i, int width)
{
	const struct usage *u = &s->usage[i];
	char end[2][32] = { "-", "-" }, peak[64] = "-";

	if (u->first_end_ns) {
		snprintf(end[0], sizeof *end, "%.1f s",
			 summary_seconds(s, u->first_end_ns));
		snprintf(end[1], sizeof *end, "%.1f s",
			 summary_seconds(s, u->last_end_ns));
	}
	if (u->peak_bytes)
		snprintf(peak, sizeof peak, "%.1f MiB %s",
			 (double)u->peak_bytes / (1 << 20),
			 summary_source(u->peak_cgroup));
	str_addf(out, "\n  %-*s %6u %10.2f s %-6s %18s %11s %11s", width, s->host[i],
		 u->ranks, cpu_seconds(u), summary_source(u->cpu_cgroup), peak, end[0],
		 end[1]);
}

void summary_text(struct str *out, const struct summary *s)
{
	const struct losses *l = s->losses;
	const struct loss *loss;
	int width = 4; /* of the longest name */
	bool head = false;

	str_addf(out, "summary: status %d after %.1f s, %u restart%s", s->status,
		 summary_seconds(s, s->end_ns), s->restarts,
		 s->restarts == 1 ? "" : "s");
	for (size_t i = 0; (loss = loss_kept(l, i)); i++) {
		if (i == LOSSES_FIRST && l->n > LOSSES_KEPT)
			str_addf(out, "\n  ... and %zu more", l->n - LOSSES_KEPT);
		str_addf(out, "\n  lost after %.1f s: %s",
			 summary_seconds(s, loss->at_ns), loss->text);
	}
	if (s->cause)
		str_addf(out, "\n  cause: %s", s->cause);
	if (s->logs)
		str_addf(out, "\n  logs: %s", s->logs);
	for (size_t i = 0; i < s->n; i++)
		if (s->usage[i].ranks && (int)strlen(s->host[i]) > width)
			width = (int)strlen(s->host[i]);
	for (size_t i = 0; i < s->n; i++) {
		if (!s->usage[i].ranks)
			continue;
		if (!head)
			str_addf(out, "\n  %-*s %6s %12s %-6s %18s %11s %11s", width,
				 "host", "ranks", "CPU time", "by", "peak memory by",
				 "first end", "last end");
		head = true;
		text_host(out, s, i, width);
	}
	verdict_text(out, s->verdict);
}

/* ---- for programs ---- */

static void json_end(struct str *out, const struct summary *s, const char *key,
		     uint64_t at_ns)
{
	if (at_ns)
		str_addf(out, ", \"%s\": %.6f", key, summary_seconds(s, at_ns));
	else
		str_addf(out, ", \"%s\": null", key);
}

static void json_losses(struct str *out, const struct summary *s)
{
	const struct losses *l = s->losses;
	const struct loss *loss;

	str_add(out, ", \"losses\": [");
	for (size_t i = 0; (loss = loss_kept(l, i)); i++) {
		str_addf(out, "%s{\"at_s\": %.6f", i ? ", " : "",
			 summary_seconds(s, loss->at_ns));
		json_text(out, "cause", loss->text);
		str_add(out, "}");
	}
	str_addf(out, "], \"losses_left_out\": %zu",
		 l->n > LOSSES_KEPT ? l->n - LOSSES_KEPT : 0);
}

void summary_json(struct str *out, const struct summary *s)
{
	const char *comma = "";

	str_add(out, "{\"job\": ");
	json_string(out, s->job);
	str_addf(out, ", \"status\": %d", s->status);
	json_text(out, "cause", s->cause);
	str_addf(out, ", \"wall_s\": %.6f, \"restarts\": %u",
		 summary_seconds(s, s->end_ns), s->restarts);
	json_losses(out, s);
	json_text(out, "logs", s->logs);
	str_add(out, ", \"hosts\": [");
	for (size_t i = 0; i < s->n; i++) {
		const struct usage *u = &s->usage[i];

		if (!u->ranks)
			continue;
		str_addf(out, "%s{\"ranks\": %u", comma, u->ranks);
		json_text(out, "host", s->host[i]);
		str_addf(out, ", \"cpu_s\": %.6f", cpu_seconds(u));
		json_text(out, "cpu_by", summary_source(u->cpu_cgroup));
		str_add(out, ", \"peak_bytes\": ");
		if (u->peak_bytes)
			str_addf(out, "%ju", (uintmax_t)u->peak_bytes);
		else
			str_add(out, "null");
		json_text(out, "peak_by", summary_source(u->peak_cgroup));
		json_end(out, s, "first_end_s", u->first_end_ns);
		json_end(out, s, "last_end_s", u->last_end_ns);
		str_add(out, "}");
		comma = ", ";
	}
	str_add(out, "], \"verdict\": ");
	verdict_json(out, s->verdict);
	if (s->verdict->missing)
		json_text(out, "missing", s->verdict->missing);
	if (s->nccl) {
		str_add(out, ", \"nccl\": ");
		nccl_report_json(out, s->nccl);
	}
	str_add(out, "}");
}
