#include "launcher/job/report_file.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/package.h"
#include "launcher/insight/page.h"
#include "launcher/insight/report_json.h"
#include "launcher/job/env_forward.h"
#include "launcher/job/monitor.h"
#include "launcher/job/phase.h"
#include "launcher/job/report.h"
#include "launcher/output/own_file.h"

extern char **environ;

struct report_file {
	int fd[REPORT_FORMS]; /* -1: not wanted */
	struct event_log events;
	enum report_form now; /* the one that is being written */
	int error;            /* errno of a write that failed */
};

int report_file_open(struct job *j)
{
	const struct request *r = j->request;
	struct report_file *f;

	if (r->plan != PLAN_OFF || r->check ||
	    (!r->insight.report[REPORT_HTML] && !r->insight.report[REPORT_JSON]))
		return 0;
	f = j->account.report = xcalloc(1, sizeof *f);
	for (size_t i = 0; i < REPORT_FORMS; i++)
		f->fd[i] = -1;
	for (size_t i = 0; i < REPORT_FORMS; i++) {
		struct str why = { 0 };

		if (!r->insight.report[i])
			continue;
		f->fd[i] = own_file_open(r->insight.report[i], OWN_FILE_REPLACE, &why);
		if (f->fd[i] < 0)
			err_set(&j->err, E_REPORT_FILE, r->insight.report[i],
				str_text(&why));
		str_free(&why);
		if (f->fd[i] < 0)
			return -1;
	}
	events_keep(&j->events, j->spec.job_id, &f->events);
	return 0;
}

void report_file_close(struct job *j)
{
	struct report_file *f = j->account.report;

	for (size_t i = 0; f && i < REPORT_FORMS; i++)
		if (f->fd[i] >= 0)
			close(f->fd[i]);
	if (f)
		event_log_free(&f->events);
	free(f);
	j->account.report = NULL;
}

/* ---- from the job to facts ---- */

static const char *text_of(const char *text)
{
	return text ? text : "";
}

/* Seconds of the job at NS of our clock. */
static double job_seconds(const struct job *j, int64_t ns)
{
	return (double)(ns - (int64_t)j->account.begin_ns) / 1e9;
}

/* How R has ended. */
static void facts_ending(struct facts_rank *out, const struct job *j,
			 const struct rank *r)
{
	static const char *const texts[] = {
		[FATE_EXEC] = "never ran",
		[FATE_OOM] = "killed: out of memory",
		[FATE_LOST] = "lost with its host",
	};
	const enum fate fate = r->ending.fate;

	out->end_s = fate == FATE_NONE ? -1 : job_seconds(j, r->ending.began_ns);
	/* a user's ^C is no failure of a rank */
	out->failed = fate > FATE_OK && !j->signo && (!r->late || r->left_out);
	if (fate == FATE_OK || fate == FATE_EXIT)
		snprintf(out->ended, sizeof out->ended, "exited with status %d",
			 r->ending.code);
	else if (fate == FATE_SIGNAL)
		snprintf(out->ended, sizeof out->ended, "%s",
			 outcome_signal_name(r->ending.code));
	else if (fate != FATE_NONE)
		snprintf(out->ended, sizeof out->ended, "%s", texts[fate]);
}

static struct facts_rank facts_of_rank(const struct job *j, uint32_t i)
{
	const uint64_t clock_ns = j->account.record.rank[i].use.clock_ns;
	struct facts_rank out = { .host = FACTS_NO_HOST,
				  .gpu = "",
				  .gpu_name = "",
				  .cpus = "",
				  .numa = "",
				  .visible = "",
				  .why = "",
				  .end_s = -1 };
	const struct rank *r;

	if (i >= j->plan.np)
		return out;
	out.host = j->plan.rank[i].host;
	out.local = j->plan.rank[i].local;
	if (clock_ns)
		out.strip_end_s = job_seconds(
			j, agents_time(&j->agents.host[out.host], clock_ns));
	if (!j->rank)
		return out;
	r = &j->rank[i];
	out.gpu = text_of(r->gpu);
	out.gpu_name = text_of(r->gpu_name);
	out.gpu_index = r->gpu_index;
	out.cpus = text_of(r->bound ? r->bound : r->cpus);
	out.numa = text_of(r->numa);
	out.visible = text_of(r->visible);
	out.why = text_of(r->why);
	out.pid = r->pid;
	out.lives = j->epoch + r->starts;
	facts_ending(&out, j, r);
	return out;
}

/* The hosts of J to OUT, its programs to APP. */
static void facts_hosts(struct facts_host *out, struct facts_app *app,
			const struct job *j)
{
	for (size_t i = 0; i < j->agents.n; i++) {
		const struct host *h = &j->agents.host[i];
		const struct usage *u = &j->account.usage[i];

		out[i] = (struct facts_host){
			.name = h->name,
			.cpus = h->cpus,
			.gpus = h->gpus,
			.lost = h->state == HOST_LOST,
			.idle = text_of(j->run[i].idle),
			.certificate = text_of(j->run[i].certificate),
			.cpu_s = (double)(u->cpu_us + u->ranks_us) / 1e6,
			.peak_bytes = u->peak_bytes,
		};
	}
	for (size_t i = 0; i < j->request->napp; i++) {
		app[i].argv = &j->request->app[i].argv;
		app[i].env = i < j->spec.napps ? &j->spec.app_env[i] : NULL;
	}
	for (uint32_t i = 0; i < j->plan.np; i++)
		app[j->plan.rank[i].app].np++;
}

/* ---- to the files ---- */

static void put_to_file(void *ctx, const char *bytes, size_t n)
{
	struct report_file *f = ctx;

	if (!f->error && file_write(f->fd[f->now], bytes, n))
		f->error = errno;
}

static void write_facts(struct job *j, const struct facts *facts)
{
	static void (*const forms[REPORT_FORMS])(const struct facts *f, facts_put *put,
						 void *ctx) = { page_html,
								report_json };
	struct report_file *f = j->account.report;

	for (f->now = 0; f->now < REPORT_FORMS; f->now++) {
		const char *name = j->request->insight.report[f->now];
		struct err e;

		if (f->fd[f->now] < 0)
			continue;
		f->error = 0;
		forms[f->now](facts, put_to_file, f);
		if (f->error) {
			err_set(&e, E_REPORT_FILE, name, strerror(f->error));
			report_error(j, &e);
		} else if (j->request->verbosity >= 0) {
			report_note(j, "runner: report: %s", name);
		}
	}
}

void report_file_write(struct job *j, int status)
{
	const struct record *record = &j->account.record;
	struct str reason = { 0 };
	struct strv env = { 0 };
	struct timespec now;
	struct verdict verdict;
	struct facts f;
	struct facts_host *hosts;
	struct facts_rank *ranks;
	struct facts_app *apps;

	if (!j->account.report)
		return;
	record_grow(&j->account.record, j->plan.np, j->agents.n);
	monitor_verdict(&verdict, j);
	report_reason(&reason, j);
	if (!j->request->env.forward_listed)
		env_forward(&env, environ, j->spec.managed, j->request->env.options,
			    j->request->env.noptions);
	hosts = xcalloc(j->agents.n + 1, sizeof *hosts);
	ranks = xcalloc(record->nranks + 1, sizeof *ranks);
	apps = xcalloc(j->request->napp, sizeof *apps);
	facts_hosts(hosts, apps, j);
	for (uint32_t i = 0; i < record->nranks; i++)
		ranks[i] = facts_of_rank(j, i);
	clock_gettime(CLOCK_REALTIME, &now);
	f = (struct facts){
		.job = j->spec.job_id,
		.version = BERTH_VERSION,
		.cause = reason.len ? str_text(&reason) : NULL,
		.logs = j->request->output.dir,
		.status = phase_death(j) ? 128 + phase_death(j) : status,
		.wall_s = job_seconds(j, (int64_t)clock_ns()),
		.restarts = j->account.restarts.all,
		.app = apps,
		.napp = j->request->napp,
		.env = &env,
		.host = hosts,
		.nhosts = j->agents.n,
		.rank = ranks,
		.record = record,
		.verdict = &verdict,
		.events = &j->account.report->events,
	};
	f.begin = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - f.wall_s;
	write_facts(j, &f);
	verdict_free(&verdict);
	str_free(&reason);
	strv_free(&env);
	free(hosts);
	free(ranks);
	free(apps);
}
