/* --plan: the berth of each rank and why, for people and for programs. */
#include "launcher/job/report.h"

static const char *visible_name(enum gpu_visible v)
{
	static const char *const names[] = { GPU_VISIBLE_NAMES };

	return names[v];
}

static void text_field(struct str *out, const char *key, const char *value)
{
	str_addf(out, ", \"%s\": ", key);
	json_string(out, value);
}

static void json_rank(struct str *out, const struct job *j, uint32_t i)
{
	const struct rank *r = &j->rank[i];
	bool gpu = *r->gpu;

	str_addf(out, "    {\"rank\": %u, \"local_rank\": %u", i,
		 j->plan.rank[i].local);
	text_field(out, "host", j->agents.host[j->plan.rank[i].host].name);
	if (gpu) {
		text_field(out, "gpu", r->gpu);
		str_addf(out, ", \"gpu_index\": %u", r->gpu_index);
	} else {
		str_add(out, ", \"gpu\": null, \"gpu_index\": null");
	}
	text_field(out, "cpus", r->cpus);
	text_field(out, "numa", r->numa);
	str_add(out, ", \"shared_with\": [");
	for (size_t k = 0; k < r->nshared; k++)
		str_addf(out, "%s%u", k ? ", " : "", r->shared[k]);
	str_add(out, "]");
	text_field(out, "why", r->why);
	text_field(out, "visible", r->visible);
	str_add(out, "}");
}

static void json_plan(struct str *out, const struct job *j)
{
	str_addf(out, "{\n  \"np\": %u,\n  \"hosts\": [", j->plan.np);
	for (size_t i = 0, n = 0; i < j->agents.n; i++) {
		const struct host *h = &j->agents.host[i];

		if (!job_needs(j, i))
			continue;
		str_addf(out, "%s\n    {\"ranks\": %u, \"cpus\": %u, \"gpus\": %u",
			 n++ ? "," : "", j->plan.local_size[i], h->cpus, h->gpus);
		text_field(out, "host", h->name);
		text_field(out, "idle", j->run[i].idle);
		text_field(out, "certificate", j->run[i].certificate);
		str_add(out, "}");
	}
	str_add(out, "\n  ],\n  \"gpu_visible\": ");
	json_string(out, visible_name(j->spec.visible));
	text_field(out, "gpu_visible_why",
		   j->spec.visible_why ? j->spec.visible_why : "");
	str_add(out, ",\n  \"ranks\": [\n");
	for (uint32_t i = 0; i < j->plan.np; i++) {
		json_rank(out, j, i);
		str_add(out, i + 1 < j->plan.np ? ",\n" : "\n");
	}
	str_add(out, "  ]\n}\n");
}

/* The width of a column that now has the width NOW and gets TEXT. */
static int widest(int now, const char *text)
{
	int n = (int)strlen(text);

	return n > now ? n : now;
}

static void gpu_cell(const struct rank *r, char *cell, size_t size)
{
	if (*r->gpu)
		snprintf(cell, size, "%u %s", r->gpu_index, r->gpu);
	else
		snprintf(cell, size, "-");
}

static void table(struct str *out, const struct job *j)
{
	int host = 4, gpu = 3, cpus = 4, numa = 4;
	char cell[64];

	for (uint32_t i = 0; i < j->plan.np; i++) {
		gpu_cell(&j->rank[i], cell, sizeof cell);
		host = widest(host, j->agents.host[j->plan.rank[i].host].name);
		gpu = widest(gpu, cell);
		cpus = widest(cpus, j->rank[i].cpus);
		numa = widest(numa, j->rank[i].numa);
	}
	str_addf(out, "rank  local  %-*s  %-*s  %-*s  %-*s  why\n", host, "host", gpu,
		 "GPU", cpus, "cpus", numa, "numa");
	for (uint32_t i = 0; i < j->plan.np; i++) {
		const struct rank *r = &j->rank[i];

		gpu_cell(r, cell, sizeof cell);
		str_addf(out, "%4u  %5u  %-*s  %-*s  %-*s  %-*s  %s\n", i,
			 j->plan.rank[i].local, host,
			 j->agents.host[j->plan.rank[i].host].name, gpu, cell, cpus,
			 r->cpus, numa, *r->numa ? r->numa : "-", r->why);
	}
}

static void text_plan(struct str *out, const struct job *j)
{
	str_addf(out, "plan: %u rank%s on %u host%s\n", j->plan.np,
		 j->plan.np > 1 ? "s" : "", j->plan.nodes,
		 j->plan.nodes > 1 ? "s" : "");
	table(out, j);
	for (size_t i = 0; i < j->agents.n; i++) {
		if (!job_needs(j, i))
			continue;
		if (*j->run[i].certificate)
			str_addf(out, "%s: %s\n", j->agents.host[i].name,
				 j->run[i].certificate);
		if (*j->run[i].idle)
			str_addf(out, "%s: cpus that no rank got: %s\n",
				 j->agents.host[i].name, j->run[i].idle);
	}
	str_addf(out, "gpu-visible: %s", visible_name(j->spec.visible));
	if (j->spec.visible_why && *j->spec.visible_why)
		str_addf(out, " (%s)", j->spec.visible_why);
	str_add(out, "\n");
}

void report_plan(struct job *j)
{
	struct str out = { 0 };

	if (j->request->plan == PLAN_JSON)
		json_plan(&out, j);
	else
		text_plan(&out, j);
	fputs(str_text(&out), stdout);
	str_free(&out);
}
