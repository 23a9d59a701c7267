#include "launcher/job/check.h"

#include <time.h>

#include "launcher/hosts.h"
#include "launcher/job/imports.h"
#include "launcher/job/phase.h"
#include "launcher/transport/lookup.h"

enum {
	ROWS_MAX = 1000, /* of one host: its programs and directories */
	BEATS = 4,       /* heartbeats that measure the clock of a host */
	NAMES_MAX = 64,  /* that one host looks up */
};

static const uint64_t clock_most_ns = 1000000000; /* clocks may differ by less */

/* ---- programs that cannot run ---- */

static bool check_cannot(const struct job *j, size_t host)
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
		if (check_cannot(j, k) && !done[k] &&
		    j->run[k].cannot == j->run[i].cannot &&
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

int check_programs(struct job *j)
{
	bool *done = xcalloc(j->agents.n, sizeof *done);
	const struct host_run *first = NULL;
	struct str all = { 0 }, hosts = { 0 };
	size_t n = 0, groups = 0;

	for (size_t i = 0; i < j->agents.n; i++) {
		struct str names = { 0 };

		if (!check_cannot(j, i) || done[i])
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
		events_begin(j->events, "cause");
		events_number(j->events, "rank", first->cannot_rank);
		events_text(j->events, "host", str_text(&hosts));
		events_number(j->events, "status", err_status(j->err.id));
		events_text(j->events, "text", j->err.text);
		events_end(j->events);
	}
	str_free(&all);
	str_free(&hosts);
	free(done);
	return n ? -1 : 0;
}

/* ---- --check ---- */

/* The names that host I looks up: that of rank 0's host, which programs put into
 * MASTER_ADDR, and those of the hosts behind I; behind the last host is the first. */
static void names_for(struct strv *names, const struct job *j, const bool *named,
		      size_t i)
{
	const size_t first = j->plan.rank[0].host, n = j->agents.n;

	for (size_t k = 0; k < n && names->n < NAMES_MAX; k++) {
		const size_t other = k ? (i + k) % n : first;
		const char *name = j->agents.host[other].name;

		if (named[other] && other != i && (!k || other != first) &&
		    strcasecmp(name, j->agents.host[i].name) != 0)
			strv_add(names, name);
	}
}

void check_ask(struct job *j)
{
	/* MASTER_PORT is open if the agent of rank 0's host is up */
	const bool listens = job_reaches(j, j->plan.rank[0].host);
	/* by host: it has ranks, and a name rather than a number */
	bool *named = xcalloc(j->agents.n, sizeof *named);
	struct sockaddr_storage a;

	for (size_t i = 0; i < j->agents.n; i++)
		named[i] = job_needs(j, i) &&
			   lookup_number(j->agents.host[i].name, &a) != 0;
	for (size_t i = 0; i < j->agents.n; i++) {
		struct host *h = &j->agents.host[i];
		struct strv words = { 0 }, names = { 0 };
		struct wire_check m = {
			.epoch = j->epoch,
			.timeout_ms = (uint32_t)j->request->reach.start_timeout_ms,
			.connect = listens
		};
		const struct app *app;

		if (!job_reaches(j, i))
			continue;
		app = &j->request->app[j->plan.rank[j->plan.ranks[i][0]].app];
		if (imports_command(&words, &app->argv, app->wdir))
			m.imports =
				(wire_strv){ (const char *const *)words.v, words.n };
		else
			check_lines_add(&j->checks, i, CHECK_IMPORTS, CHECK_SKIPPED,
					"the program is not Python", "");
		if (!m.connect)
			check_lines_add(&j->checks, i, CHECK_MASTER, CHECK_SKIPPED,
					"the host of rank 0 is lost", "");
		names_for(&names, j, named, i);
		m.names = (wire_strv){ (const char *const *)names.v, names.n };
		wire_pack_check(&h->out, &m);
		for (int k = 0; k < BEATS; k++)
			agents_beat(h);
		strv_free(&words);
		strv_free(&names);
	}
	free(named);
}

const char *check_result(struct job *j, struct host *h,
			 const struct wire_check_result *m)
{
	struct host_run *run = &j->run[job_index(j, h)];

	if (j->phase != JOB_CHECK || run->phase != RUN_PLACED)
		return "'check_result' message that nobody asked for";
	if (m->row < CHECK_WDIR || m->row >= CHECK_ROWS || m->row == CHECK_CLOCK ||
	    m->verdict > CHECK_NOTED || run->check_rows++ > ROWS_MAX)
		return "'check_result' message with impossible values";
	check_lines_add(&j->checks, job_index(j, h), (enum check_row)m->row,
			(enum check_verdict)m->verdict, m->text, m->hint);
	return NULL;
}

/* H's CLOCK_REALTIME is its CLOCK_MONOTONIC and REALTIME_NS; the heartbeats measured
 * how far its CLOCK_MONOTONIC is from ours. */
static void check_clock(struct job *j, const struct host *h, uint64_t realtime_ns)
{
	struct timespec real;
	uint64_t ours, ahead, off;
	char text[96];
	bool bad, slow;

	clock_gettime(CLOCK_REALTIME, &real);
	ours = (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec - clock_ns();
	ahead = h->clock_offset_ns + realtime_ns - ours; /* modulo 2^64 */
	slow = ahead >> 63;
	off = slow ? -ahead : ahead;
	bad = off + h->clock_error_ns >= clock_most_ns;
	if (bad)
		snprintf(text, sizeof text, "%.1f s %s runner's", (double)off / 1e9,
			 slow ? "behind" : "ahead of");
	else
		snprintf(text, sizeof text, "less than 1 s from runner's");
	check_lines_add(&j->checks, job_index(j, h), CHECK_CLOCK,
			bad ? CHECK_FAILED : CHECK_OK, text,
			"set the clock there, for example with chrony");
}

const char *check_done(struct job *j, struct host *h, const struct wire_check_done *m)
{
	if (j->phase != JOB_CHECK || !phase_host(j, job_index(j, h), RUN_EV_CHECKED))
		return "'check_done' message that nobody asked for";
	check_clock(j, h, m->realtime_ns);
	return NULL;
}

/* Adds the first rows of host I: how its agent was reached, and why it was lost. */
static void add_reached(struct job *j, size_t i)
{
	const struct host *h = &j->agents.host[i];
	const bool lost = h->state == HOST_LOST, up = h->up_ns != 0;
	const char *id = err_name(h->err.id), *text = h->err.text, *colon;
	const bool by_ssh = !strncmp(id, "E_SSH_", 6) || !strncmp(id, "E_LOGIN_", 8) ||
			    h->err.id == E_START_TIMEOUT;

	if (lost && (colon = strstr(text, ": ")) && strstr(text, h->name) &&
	    strstr(text, h->name) < colon)
		text = colon + 2; /* the line names the host */
	if (h->local)
		check_lines_add(&j->checks, i, CHECK_SSH, CHECK_SKIPPED, "this machine",
				"");
	else if (lost && !up && by_ssh)
		check_lines_add(&j->checks, i, CHECK_SSH, CHECK_FAILED, text,
				h->err.hint);
	else
		check_lines_add(&j->checks, i, CHECK_SSH, CHECK_OK, "", "");
	if (lost && (up || !by_ssh))
		check_lines_add(&j->checks, i, CHECK_AGENT, CHECK_FAILED, text,
				h->err.hint);
	else if (up)
		check_lines_add(&j->checks, i, CHECK_AGENT, CHECK_OK, BERTH_VERSION,
				"");
}

void check_say(struct job *j)
{
	const char **names = xcalloc(j->agents.n, sizeof *names);
	struct str out = { 0 };
	size_t failed;

	for (size_t i = 0; i < j->agents.n; i++) {
		names[i] = j->agents.host[i].name;
		if (job_needs(j, i))
			add_reached(j, i);
	}
	check_lines_compare(&j->checks);
	failed = check_lines_print(&out, &j->checks, names, j->request->verbosity < 0);
	j->checks.failed = failed > 0;
	fputs(str_text(&out), stdout);
	fflush(stdout);
	str_free(&out);
	free(names);
}
