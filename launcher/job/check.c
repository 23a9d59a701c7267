#include "launcher/job/check.h"

#include "launcher/hosts/hosts.h"

/* ---- programs that cannot run ---- */

static bool cannot(const struct job *j, size_t host)
{
	return job_reaches(j, host) && j->run[host].cannot != ERR_NONE;
}

/* The names of host I and of those that cannot run a program for the same reason, to
 * NAMES.  Marks them in DONE; returns how many. */
static size_t fold_same(const struct job *j, size_t i, bool *done, struct str *names)
{
	const char **list = xcalloc(j->agents.n, sizeof *list);
	size_t n = 0;

	for (size_t k = i; k < j->agents.n; k++)
		if (cannot(j, k) && !done[k] && j->run[k].cannot == j->run[i].cannot &&
		    !strcmp(j->run[k].cannot_text, j->run[i].cannot_text)) {
			list[n++] = j->agents.host[k].name;
			done[k] = true;
		}
	hosts_fold(names, list, n);
	free(list);
	return n;
}

/* A relative path that --wdir leads elsewhere. */
static void hint_wdir(const struct job *j, const struct host_run *run, struct err *e)
{
	const struct app *app = &j->request->app[j->plan.rank[run->cannot_rank].app];
	const char *name = app->argv.n ? app->argv.v[0] : "";

	if (run->cannot == E_NOT_FOUND && app->wdir && *name != '/' &&
	    strchr(name, '/') && !strpbrk(name, " \t"))
		err_hint(e,
			 "a relative path starts in %s, the --wdir: give the whole "
			 "path of '%s'",
			 app->wdir, name);
}

static void event_of_cause(const struct job *j, uint32_t rank, const char *hosts)
{
	events_begin(j->events, "cause");
	events_number(j->events, "rank", rank);
	events_text(j->events, "host", hosts);
	events_number(j->events, "status", err_status(j->err.id));
	events_text(j->events, "text", j->err.text);
	events_end(j->events);
}

int check_programs(struct job *j)
{
	bool *done = xcalloc(j->agents.n, sizeof *done);
	const struct host_run *first = NULL;
	struct str all = { 0 }, hosts = { 0 };
	size_t n = 0, groups = 0;

	for (size_t i = 0; i < j->agents.n; i++) {
		struct str names = { 0 };

		if (!cannot(j, i) || done[i])
			continue;
		n += fold_same(j, i, done, &names);
		if (groups++) {
			str_addf(&all, "; on '%s': %s", str_text(&names),
				 j->run[i].cannot_text);
		} else {
			first = &j->run[i];
			str_add(&all, first->cannot_text);
			str_add(&hosts, str_text(&names));
		}
		str_free(&names);
	}
	if (n == 1)
		err_set(&j->err, E_RANK_EXEC, first->cannot_rank, str_text(&hosts),
			str_text(&all));
	else if (n)
		err_set(&j->err, E_HOSTS_EXEC, str_text(&hosts), str_text(&all));
	if (n) {
		err_hint(&j->err, "%s", first->cannot_hint);
		hint_wdir(j, first, &j->err);
		j->err.id = first->cannot;
		event_of_cause(j, first->cannot_rank, str_text(&hosts));
	}
	str_free(&all);
	str_free(&hosts);
	free(done);
	return n ? -1 : 0;
}
