/* request_text.h - for tests: a command line to a request, and that as one line of text
 * that names only what differs from the built-in values. */
#ifndef BERTH_TESTS_REQUEST_TEXT_H
#define BERTH_TESTS_REQUEST_TEXT_H

#include <check.h>

#include "common/wire.h"
#include "launcher/cli/options.h"

static const char *const bind_names[] = { BIND_TO_NAMES };
static const char *const share_names[] = { SHARE_NAMES };
static const char *const visible_names[] = { GPU_VISIBLE_NAMES };
static const char *const transports[] = { "auto", "local", "ssh", "openssh", "srun" };

static void say_text(struct str *s, const char *name, const char *value)
{
	if (value)
		str_addf(s, " %s=%s", name, value);
}

static void say_number(struct str *s, const char *name, long value, long usual)
{
	if (value != usual)
		str_addf(s, " %s=%ld", name, value);
}

static void say_time(struct str *s, const char *name, long ms, long usual)
{
	if (ms == usual)
		return;
	str_addf(s, " %s=", name);
	str_add_seconds(s, (uint64_t)ms);
}

static void say_list(struct str *s, const char *name, const struct strv *list)
{
	for (size_t i = 0; i < list->n; i++)
		str_addf(s, " %s=%s", name, list->v[i]);
}

static void say_host_list(struct str *s, const struct hosts *h)
{
	for (size_t i = 0; i < h->n; i++) {
		str_addf(s, "%s%s", i ? "," : " hosts=", h->v[i].name);
		if (h->v[i].counted)
			str_addf(s, ":%d", h->v[i].slots);
	}
}

static void say_hosts(struct str *s, const struct request *r)
{
	say_host_list(s, &r->hosts);
	say_text(s, "hostfile", r->hostfile);
	say_text(s, "from", r->hosts_from);
	say_number(s, "ppn", r->per_host, 0);
	say_number(s, "per", r->per_object, PER_NODE);
	say_number(s, "nodes", r->nodes, 0);
	say_number(s, "bynode", r->map_by, MAP_SLOT);
	say_number(s, "oversubscribe", r->oversubscribe, 0);
	if (r->reach.transport)
		say_text(s, "transport", transports[r->reach.transport]);
	say_number(s, "port", r->reach.ssh_port, 0);
	say_text(s, "identity", r->reach.identity);
	say_number(s, "accept", r->reach.accept_new_hosts, 0);
	say_text(s, "agent", r->reach.agent);
	say_number(s, "nopush", r->reach.no_push, 0);
	say_time(s, "start", r->reach.start_timeout_ms, 30000);
	say_time(s, "host", r->reach.host_timeout_ms, 60000);
	say_time(s, "timeout", r->timeout_ms, 0);
	say_time(s, "grace", r->kill_grace_ms, 10000);
	say_number(s, "gracegiven", r->kill_grace_given, 0);
	say_number(s, "keepgoing", r->lives.keep_going, 0);
	say_number(s, "restarts", r->lives.restarts, 0);
	if (r->growing.min_np)
		str_addf(s, " %d-%d", r->growing.min_np, r->growing.max_np);
}

static void say_rest(struct str *s, const struct request *r)
{
	say_text(s, "envfile", r->env.file);
	if (r->env.forward_listed)
		str_add(s, " only");
	say_list(s, "forward", &r->env.forward);
	say_text(s, "output", r->output.dir);
	say_number(s, "tag", r->output.tag_style, TAG_LONG);
	say_number(s, "color", r->output.colour, COLOUR_AUTO);
	say_number(s, "timestamps", r->output.timestamps, 0);
	say_number(s, "coalesce", r->output.coalesce, 0);
	say_number(s, "sort", r->output.sort, 0);
	if (!r->output.show.all) {
		str_add(s, " show=");
		rank_set_print(s, &r->output.show);
	}
	say_number(s, "errors", r->output.show_errors, 0);
	say_number(s, "pty", r->output.pty, 0);
	say_text(s, "events", r->events_file);
	say_text(s, "timeline", r->insight.timeline.file);
	say_number(s, "first", r->insight.timeline.first_step, 1);
	say_number(s, "last", r->insight.timeline.last_step, UINT32_MAX);
	if (r->stdin_rank == STDIN_ALL || r->stdin_rank == STDIN_NONE)
		say_text(s, "stdin", r->stdin_rank == STDIN_ALL ? "all" : "none");
	else
		say_number(s, "stdin", r->stdin_rank, 0);
	if (r->bind_to)
		say_text(s, "bind", bind_names[r->bind_to]);
	say_number(s, "count", r->bind_count, 1);
	if (r->share)
		say_text(s, "share", share_names[r->share]);
	say_number(s, "report", r->report_bindings, 0);
	say_number(s, "plan", r->plan, PLAN_OFF);
	say_number(s, "check", r->check, 0);
	say_number(s, "summary", r->insight.summary, SUMMARY_NONE);
	say_number(s, "no-ledger", r->insight.no_ledger, 0);
	say_number(s, "monitor", r->insight.monitor_ms, 0);
	say_text(s, "html", r->insight.report[REPORT_HTML]);
	say_text(s, "json", r->insight.report[REPORT_JSON]);
	say_list(s, "topology", &r->topology);
	say_list(s, "for", &r->topology_host);
	say_list(s, "gpus", &r->gpus);
	if (r->gpu_visible)
		say_text(s, "visible", visible_names[r->gpu_visible]);
	say_number(s, "gpuid", r->gpu_id, GPU_ID_INDEX);
	say_number(s, "mpi", r->mpi, MPI_AUTO);
	say_number(s, "nosharing", r->no_gpu_sharing, 0);
	say_number(s, "verbosity", r->verbosity, 0);
}

static void say_app(struct str *s, const struct app *a)
{
	say_number(s, "np", a->np, 0);
	if (a->np_from && strcmp(a->np_from, "-np") != 0)
		say_text(s, "npfrom", a->np_from);
	say_list(s, "x", &a->export);
	say_text(s, "wdir", a->wdir);
	say_number(s, "role", a->tf_role, TF_UNSAID);
	say_host_list(s, &a->hosts);
	say_text(s, "from", a->hosts_from);
	say_number(s, "ppn", a->per_host, 0);
	str_add(s, " [");
	for (size_t i = 0; i < a->argv.n; i++)
		str_addf(s, "%s%s", i ? " " : "", a->argv.v[i]);
	str_add(s, "]");
}

/* "" as a word of a command line is written ''. */
static struct strv words(const char *first, const char *text)
{
	char *copy = xstrdup(text), *rest = copy, *word;
	struct strv list = { 0 };

	if (first)
		strv_add(&list, first);
	while ((word = strsep(&rest, " ")))
		if (*word)
			strv_add(&list, strcmp(word, "''") ? word : "");
	free(copy);
	return list;
}

static char *result(enum options_do done, const struct request *r,
		    const struct strv *notes, const struct str *print,
		    const struct err *e)
{
	struct str s = { 0 };

	if (done == OPTIONS_FAILED) {
		str_addf(&s, " error %s", e->text);
		if (*e->hint)
			str_addf(&s, " | %s", e->hint);
	} else if (done == OPTIONS_PRINTED) {
		str_addf(&s, " printed %.20s", str_text(print));
	} else {
		say_hosts(&s, r);
		say_rest(&s, r);
		say_list(&s, "all", &r->env.export);
		for (size_t i = 0; i < r->napp; i++)
			say_app(&s, &r->app[i]);
	}
	for (size_t i = 0; i < notes->n && done == OPTIONS_RUN; i++)
		str_addf(&s, " | %s", notes->v[i]);
	return str_take(&s);
}

/* ENV's words are variables; what a command line comes to, as text. */
static char *read_with(const char *site, const char *line, const char *env)
{
	struct strv argv = words("runner", line), vars = words(NULL, env),
		    notes = { 0 };
	struct str print = { 0 };
	struct request r;
	struct err e = { 0 };
	enum options_do done =
		options_read(&r, &notes, &print, site, (int)argv.n, argv.v, vars.v, &e);
	char *text = result(done, &r, &notes, &print, &e);

	if (done == OPTIONS_FAILED)
		ck_assert_int_eq(err_status(e.id), EXIT_USAGE);
	ck_assert_uint_ge(r.napp, 1);
	ck_assert_uint_ge(r.bind_count, 1);
	options_free(&r);
	strv_free(&argv);
	strv_free(&vars);
	strv_free(&notes);
	str_free(&print);
	return text;
}

#endif
