#include "launcher/insight/report_json.h"

#include <math.h>
#include <stdlib.h>

#include "common/str.h"
#include "launcher/insight/format.h"
#include "launcher/insight/large_rows.h"
#include "launcher/output/events.h"

/* TEXT, cut, as a JSON string. */
static void add_cut_string(struct str *out, const char *text)
{
	struct str cut = { 0 };

	format_cut(&cut, text);
	json_string(out, str_text(&cut));
	str_free(&cut);
}

/* A member that is not the first one. */
static void add_cut_member(struct str *out, const char *key, const char *text)
{
	str_addf(out, ", \"%s\": ", key);
	if (text)
		add_cut_string(out, text);
	else
		str_add(out, "null");
}

static void json_variables(struct str *out, const struct strv *env)
{
	str_add(out, "[");
	for (size_t i = 0; env && i < env->n; i++) {
		struct str name = { 0 }, value = { 0 };

		format_variable(&name, &value, env->v[i]);
		str_add(out, i ? ", [" : "[");
		json_string(out, str_text(&name));
		str_add(out, ", ");
		json_string(out, str_text(&value));
		str_add(out, "]");
		str_free(&name);
		str_free(&value);
	}
	str_add(out, "]");
}

static void json_apps(struct str *out, const struct facts *f)
{
	str_add(out, ",\n\"apps\": [");
	for (size_t i = 0; i < f->napp; i++) {
		const struct facts_app *a = &f->app[i];

		str_addf(out, "%s{\"np\": %u, \"command\": [", i ? ",\n" : "", a->np);
		for (size_t k = 0; k < a->argv->n; k++) {
			struct str word = { 0 };

			format_word(&word, a->argv, k);
			str_add(out, k ? ", " : "");
			add_cut_string(out, str_text(&word));
			str_free(&word);
		}
		str_add(out, "], \"environment\": ");
		json_variables(out, a->env);
		str_add(out, "}");
	}
	str_add(out, "],\n\"environment\": ");
	json_variables(out, f->env);
}

static void json_host(struct str *out, const struct facts *f, size_t i)
{
	const struct facts_host *h = &f->host[i];
	const struct host_record *r =
		i < f->record->nhosts ? &f->record->host[i] : NULL;

	str_addf(out, "%s{\"cpus\": %u, \"gpus\": %u", i ? ",\n" : "", h->cpus,
		 h->gpus);
	add_cut_member(out, "host", h->name);
	str_addf(out, ", \"lost\": %s", h->lost ? "true" : "false");
	add_cut_member(out, "idle", h->idle);
	add_cut_member(out, "certificate", h->certificate);
	str_addf(out, ", \"cpu_s\": %.3f, \"peak_bytes\": %ju", h->cpu_s,
		 (uintmax_t)h->peak_bytes);
	if (r && r->known)
		str_addf(out, ", \"memory_stall_s\": %.3f, \"samples_dropped\": %ju",
			 (double)(r->last.memory_us - r->first.memory_us) / 1e6,
			 (uintmax_t)r->dropped);
	str_add(out, "}");
}

/* The member KEY: the rate AT bytes from the begin of each of V[0..n), as a list; null
 * where nothing is known. */
static void json_rate(struct str *out, const char *key, const struct point *v,
		      uint32_t n, size_t at)
{
	str_addf(out, "\"%s\": [", key);
	for (uint32_t i = 0; i < n; i++) {
		float x;

		memcpy(&x, (const char *)&v[i] + at, sizeof x);
		str_add(out, i ? "," : "");
		if (v[i].span_s <= 0 || !isfinite(x))
			str_add(out, "null");
		else if (x < 0.0005f && x > -0.0005f)
			str_add(out, "0");
		else
			str_addf(out, x < 100 ? "%.3g" : "%.0f", (double)x);
	}
	str_add(out, "]");
}

static void json_strip(struct str *out, const struct point *v, uint32_t n)
{
	static const struct {
		const char *key;
		size_t at;
	} rates[] = {
		{ "main", offsetof(struct point, main) },
		{ "no_cpu", offsetof(struct point, delay) },
		{ "waits", offsetof(struct point, blocked) },
		{ "cpus_used", offsetof(struct point, cpu) },
		{ "children_cpus", offsetof(struct point, children) },
		{ "resident_gib", offsetof(struct point, resident_gib) },
		{ "read_mb_per_s", offsetof(struct point, read_mb) },
		{ "steps_per_s", offsetof(struct point, steps) },
		{ "operations_per_s", offsetof(struct point, ops) },
		{ "mb_per_s", offsetof(struct point, reduced_mb) },
	};

	str_add(out, ",\n \"strip\": {");
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
		str_add(out, i ? ", " : "");
		json_rate(out, rates[i].key, v, n, rates[i].at);
	}
	str_add(out, "}");
}

static void json_berth(struct str *out, const struct facts *f,
		       const struct facts_rank *r)
{
	add_cut_member(out, "host",
		       r->host == FACTS_NO_HOST ? NULL : f->host[r->host].name);
	str_addf(out, ", \"local_rank\": %u, \"pid\": %u, \"lives\": %u", r->local,
		 r->pid, r->lives);
	if (*r->gpu) {
		add_cut_member(out, "gpu", r->gpu);
		add_cut_member(out, "gpu_name", r->gpu_name);
		str_addf(out, ", \"gpu_index\": %u", r->gpu_index);
	} else {
		str_add(out,
			", \"gpu\": null, \"gpu_name\": null, \"gpu_index\": null");
	}
	add_cut_member(out, "cpus", r->cpus);
	add_cut_member(out, "numa", r->numa);
	add_cut_member(out, "visible", r->visible);
	add_cut_member(out, "why", r->why);
	json_text(out, "ended", *r->ended ? r->ended : NULL);
	str_addf(out, ", \"failed\": %s, \"end_s\": ", r->failed ? "true" : "false");
	if (r->end_s >= 0)
		str_addf(out, "%.3f", r->end_s);
	else
		str_add(out, "null");
}

static void json_sums(struct str *out, const struct rank_record *r)
{
	const struct sums *s = &r->sums;

	str_addf(out,
		 ",\n \"sampled_s\": %.3f, \"main_s\": %.3f, \"no_cpu_s\": %.3f, "
		 "\"cpu_s\": %.3f, \"children_s\": %.3f, \"read_bytes\": %.0f, "
		 "\"disk_bytes\": %.0f, \"peak_bytes\": %ju",
		 s->use_s, s->main_s, s->delay_s, s->cpu_s, s->children_s,
		 s->read_bytes, s->disk_bytes, (uintmax_t)r->peak_bytes);
	str_addf(out,
		 ", \"library_s\": %.3f, \"waits_s\": %.3f, \"operations\": %.0f, "
		 "\"steps\": %.0f, \"bytes\": %.0f, \"threads\": %u",
		 s->ops_s, s->blocked_s, s->ops, s->steps, s->bytes, r->threads);
	add_cut_member(out, "moved_to", r->moved);
}

static void json_large(struct str *out, const struct record *r)
{
	struct large_row row[LARGE_MOST];
	const size_t n = large_rows(r, row);

	str_add(out, ",\n\"collectives\": [");
	for (size_t i = 0; i < n; i++)
		str_addf(out,
			 "%s\n{\"operation\": \"%s\", \"least_bytes\": %ju, "
			 "\"times\": %.0f, \"bytes\": %.0f, \"least_s\": %.9f, "
			 "\"mean_s\": %.9f, \"rank\": %u, \"bus_bytes_per_s\": %.0f}",
			 i ? "," : "", row[i].kind, (uintmax_t)1 << row[i].size,
			 row[i].ops, row[i].bytes, row[i].least_s, row[i].mean_s,
			 row[i].fastest, row[i].bandwidth);
	str_add(out, "]");
}

static void json_events(struct str *out, const struct event_log *l)
{
	str_addf(out, ",\n\"events_left_out\": %zu, \"events\": [", l->left_out);
	for (size_t i = 0; i < l->n; i++) {
		const struct event_row *row = event_log_row(l, i);
		struct str hosts = { 0 }, ranks = { 0 };

		str_addf(out, "%s\n{\"t\": %.6f, \"until\": %.6f, \"count\": %zu",
			 i ? "," : "", row->begin, row->end, row->count);
		json_text(out, "event", row->name);
		rank_set_print(&ranks, &row->ranks);
		json_text(out, "ranks", str_text(&ranks));
		if (row->hosts.n)
			hosts_fold(&hosts, (const char *const *)row->hosts.v,
				   row->hosts.n);
		add_cut_member(out, "hosts", str_text(&hosts));
		add_cut_member(out, "text", row->text);
		str_add(out, "}");
		str_free(&hosts);
		str_free(&ranks);
	}
	str_add(out, "]");
}

static void json_head(struct str *out, const struct facts *f, const struct columns *c)
{
	str_add(out, "{\"format\": \"berth-report-1\", \"job\": ");
	json_string(out, f->job);
	json_text(out, "berth", f->version);
	str_addf(out, ", \"status\": %d", f->status);
	add_cut_member(out, "cause", f->cause);
	str_addf(out,
		 ", \"begin\": %.3f, \"wall_s\": %.3f, \"restarts\": %u, \"np\": %u",
		 f->begin, f->wall_s, f->restarts, f->record->nranks);
	add_cut_member(out, "logs", f->logs);
	str_addf(out,
		 ", \"period_s\": %.3f, \"columns\": %u, \"column_s\": %.3f,\n"
		 "\"verdict\": ",
		 f->record->period_ms / 1000.0, c->n, c->width_s);
	if (f->verdict->looked)
		verdict_json(out, f->verdict);
	else
		str_add(out, "null");
	add_cut_member(out, "missing", f->verdict->missing);
}

void report_json(const struct facts *f, facts_put *put, void *ctx)
{
	const struct columns c = facts_columns(f);
	struct point *v = xcalloc(c.n, sizeof *v);
	struct str out = { 0 };

	json_head(&out, f, &c);
	json_apps(&out, f);
	str_add(&out, ",\n\"hosts\": [");
	for (size_t i = 0; i < f->nhosts; i++)
		json_host(&out, f, i);
	str_add(&out, "]");
	json_events(&out, f->events);
	json_large(&out, f->record);
	str_add(&out, ",\n\"ranks\": [");
	for (uint32_t i = 0; i < f->record->nranks; i++) {
		const struct rank_record *r = &f->record->rank[i];

		str_addf(&out, "%s\n{\"rank\": %u", i ? "," : "", i);
		json_berth(&out, f, &f->rank[i]);
		json_sums(&out, r);
		columns_rank(v, &c, &r->strip, f->rank[i].strip_end_s);
		json_strip(&out, v, c.n);
		str_add(&out, "}");
		put(ctx, str_text(&out), out.len);
		out.len = 0;
	}
	str_add(&out, "]}\n");
	put(ctx, str_text(&out), out.len);
	str_free(&out);
	free(v);
}
