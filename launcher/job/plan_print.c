#include "launcher/job/plan_print.h"

#include <ctype.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launcher/hosts.h"
#include "launcher/job/plan_draw.h"
#include "launcher/job/plan_groups.h"
#include "launcher/job/report.h"

enum {
	FILE_COLUMNS = 80, /* of a file or pipe */
	CPUS_COLUMNS = 30, /* at most, if the width is limited */
	WHY_COLUMNS = 12   /* at least */
};

/* ---- for programs ---- */

static const char *visible_name(enum gpu_visible v)
{
	static const char *const names[] = { GPU_VISIBLE_NAMES };

	return names[v];
}

static void json_rank(struct str *out, const struct job *j, uint32_t i)
{
	const struct rank *r = &j->rank[i];
	bool gpu = *r->gpu;

	str_addf(out, "    {\"rank\": %u, \"local_rank\": %u", i,
		 j->plan.rank[i].local);
	json_text(out, "host", j->agents.host[j->plan.rank[i].host].name);
	if (gpu) {
		json_text(out, "gpu", r->gpu);
		str_addf(out, ", \"gpu_index\": %u", r->gpu_index);
	} else {
		str_add(out, ", \"gpu\": null, \"gpu_index\": null");
	}
	json_text(out, "cpus", r->cpus);
	json_text(out, "numa", r->numa);
	str_add(out, ", \"shared_with\": [");
	for (size_t k = 0; k < r->nshared; k++)
		str_addf(out, "%s%u", k ? ", " : "", r->shared[k]);
	str_add(out, "]");
	json_text(out, "why", r->why);
	json_text(out, "visible", r->visible);
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
		json_text(out, "host", h->name);
		json_text(out, "idle", j->run[i].idle);
		json_text(out, "certificate", j->run[i].certificate);
		str_add(out, "}");
	}
	str_add(out, "\n  ],\n  \"gpu_visible\": ");
	json_string(out, visible_name(j->spec.visible));
	json_text(out, "gpu_visible_why",
		  j->spec.visible_why ? j->spec.visible_why : "");
	str_add(out, ",\n  \"ranks\": [\n");
	for (uint32_t i = 0; i < j->plan.np; i++) {
		json_rank(out, j, i);
		str_add(out, i + 1 < j->plan.np ? ",\n" : "\n");
	}
	str_add(out, "  ]\n}\n");
}

/* ---- for people: what stands in a cell ---- */

/* The end of the part of a reason that begins at P. */
static const char *part_end(const char *p)
{
	const char *end = strstr(p, "; ");

	return end ? end : p + strlen(p);
}

/* TEXT to its END, without WHAT in it, and with WITH instead. */
static void add_without(struct str *out, const char *text, const char *end,
			const char *what, const char *with)
{
	const char *hit = strstr(text, what);

	if (!hit || hit >= end) {
		str_addn(out, text, (size_t)(end - text));
		return;
	}
	str_addn(out, text, (size_t)(hit - text));
	str_add(out, with);
	hit += strlen(what);
	str_addn(out, hit, (size_t)(end - hit));
}

/* Takes the cores out of an agent's reason, where they are, and a GPU that is shared;
 * the other columns say the rest.  A reason of another form stays as it is. */
static void short_why(struct str *out, const char *why)
{
	static const char home_is[] = "its home is ", shared[] = ", shared with ";
	const char *home = strstr(why, home_is), *with = strstr(why, shared);
	const char *cores = NULL;

	for (const char *p = why; *p; p = part_end(p) + 2 * !!*part_end(p))
		if (isdigit((unsigned char)*p) || !strncmp(p, "not bound", 9)) {
			cores = p;
			break;
		}
	if (!cores) {
		str_add(out, why);
		return;
	}
	if (!isdigit((unsigned char)*cores)) {
		str_add(out, "not bound");
	} else if (home) {
		struct str there = { 0 };

		home += sizeof home_is - 1;
		str_add(&there, " in ");
		str_addn(&there, home, (size_t)(part_end(home) - home));
		if (strstr(cores, ", the nearest,"))
			add_without(out, cores, part_end(cores), ", the nearest,", "");
		else
			add_without(out, cores, part_end(cores), " there", there.s);
		str_free(&there);
	} else if (strstr(cores, ", an even share,")) {
		add_without(out, cores, part_end(cores), ", an even share,", "");
	} else {
		add_without(out, cores, part_end(cores), ", the nearest,", "");
	}
	if (with) {
		with += sizeof shared - 1;
		str_add(out, "; GPU shared with ");
		str_addn(out, with, (size_t)(part_end(with) - with));
	}
}

/* TEXT in at most COLUMNS (0: any number); of a longer one the begin, with whole parts
 * if one fits. */
static void add_cut(struct str *out, const char *text, size_t columns)
{
	const size_t part = (size_t)(part_end(text) - text);
	size_t n = strlen(text);

	if (!columns || n <= columns || part <= columns) {
		str_addn(out, text, !columns || n <= columns ? n : part);
		return;
	}
	for (n = columns - 3; n && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
		;
	str_addn(out, text, n);
	str_add(out, "...");
}

/* TEXT in lines of COLUMNS, broken at blanks; later lines are indented. */
static void add_wrapped(struct str *out, const char *text, size_t columns)
{
	size_t room = columns;

	while (room && strlen(text) > room) {
		size_t n = room;

		while (n && text[n] != ' ')
			n--;
		if (!n)
			n = strcspn(text, " ");
		str_addn(out, text, n);
		text += n;
		if (!*text)
			break;
		text++;
		str_add(out, "\n    ");
		room = columns - 4;
	}
	str_addf(out, "%s\n", text);
}

static char *gpu_cell(const struct rank *r)
{
	return *r->gpu ? xasprintf("%u %s", r->gpu_index, r->gpu) : xstrdup("-");
}

static void cpus_cell(struct str *out, const struct rank *r, size_t columns)
{
	add_cut(out, r->cpus, columns ? CPUS_COLUMNS : 0);
}

/* ---- for people: a table for equal hosts ---- */

/* The width of a column that now has the width NOW and gets TEXT. */
static int print_widest(int now, const char *text)
{
	int n = (int)strlen(text);

	return n > now ? n : now;
}

static void print_table(struct str *out, const struct job *j, uint32_t host,
			size_t columns)
{
	const uint32_t n = j->plan.local_size[host];
	int gpu = 3, cpus = 4, numa = 4;
	struct str text = { 0 };
	size_t used, why = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct rank *r = plan_rank(j, host, i);
		char *cell = gpu_cell(r);

		gpu = print_widest(gpu, cell);
		free(cell);
		cpus_cell(&text, r, columns);
		cpus = print_widest(cpus, str_text(&text));
		str_free(&text);
		numa = print_widest(numa, r->numa);
	}
	used = 4 + 2 + 5 + 2 + (size_t)gpu + 2 + (size_t)cpus + 2 + (size_t)numa + 2;
	if (columns)
		why = columns > used + WHY_COLUMNS ? columns - used : WHY_COLUMNS;
	str_addf(out, "rank  local  %-*s  %-*s  %-*s  why\n", gpu, "GPU", cpus, "cpus",
		 numa, "numa");
	for (uint32_t i = 0; i < n; i++) {
		const struct rank *r = plan_rank(j, host, i);
		char *cell = gpu_cell(r);

		cpus_cell(&text, r, columns);
		str_addf(out, "%4u  %5u  %-*s  %-*s  %-*s  ", j->plan.ranks[host][i], i,
			 gpu, cell, cpus, str_text(&text), numa,
			 *r->numa ? r->numa : "-");
		free(cell);
		str_free(&text);
		if (columns)
			short_why(&text, r->why);
		else
			str_add(&text, r->why);
		add_cut(out, str_text(&text), why);
		str_free(&text);
		str_add(out, "\n");
	}
}

static void print_group(struct str *out, const struct job *j,
			const struct plan_group *g, size_t columns)
{
	const struct host_run *run = &j->run[g->host[0]];
	struct str head = { 0 };
	char *line;

	plan_group_words(&head, j, g);
	add_wrapped(out, str_text(&head), columns);
	str_free(&head);
	print_table(out, j, g->host[0], columns);
	if (*run->certificate)
		add_wrapped(out, run->certificate, columns);
	if (!*run->idle)
		return;
	line = xasprintf("cpus that no rank got: %s", run->idle);
	add_wrapped(out, line, columns);
	free(line);
}

void plan_print_text(struct str *out, const struct job *j, size_t columns)
{
	const char *why = j->spec.visible_why ? j->spec.visible_why : "";
	struct plan_group *group;
	bool gpus = false;
	char *line;
	size_t n;

	str_addf(out, "plan: %u rank%s on %u host%s\n", j->plan.np,
		 str_plural(j->plan.np), j->plan.nodes, str_plural(j->plan.nodes));
	group = plan_groups(j, &n);
	for (size_t i = 0; i < n; i++)
		print_group(out, j, &group[i], columns);
	plan_groups_free(group, n);
	for (uint32_t i = 0; i < j->plan.np; i++)
		gpus |= *j->rank[i].gpu != '\0';
	if (!gpus)
		return;
	line = xasprintf("gpu-visible: %s%s%s%s", visible_name(j->spec.visible),
			 *why ? " (" : "", why, *why ? ")" : "");
	add_wrapped(out, line, columns);
	free(line);
}

/* ---- both ---- */

void report_plan(struct job *j)
{
	struct winsize size = { 0 };
	size_t columns = FILE_COLUMNS;
	struct str out = { 0 };

	if (j->request->plan >= PLAN_SVG) {
		plan_draw(j);
		return;
	}
	if (j->request->verbosity > 0)
		columns = 0;
	else if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col >= 40)
		columns = size.ws_col;
	if (j->request->plan == PLAN_JSON)
		json_plan(&out, j);
	else
		plan_print_text(&out, j, columns);
	fputs(str_text(&out), stdout);
	str_free(&out);
}
