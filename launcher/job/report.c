#include "launcher/job/report.h"

#include <ctype.h>
#include <stdarg.h>
#include <unistd.h>

#include "launcher/hosts.h"
#include "launcher/job/monitor.h"
#include "launcher/job/phase.h"
#include "launcher/job/rank_status.h"
#include "launcher/output/nccl_report.h"
#include "launcher/output/progress.h"

enum { KEYS_MAX = 256 }; /* lines */

void report_note(struct job *j, const char *format, ...)
{
	va_list ap;
	char *text;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	progress_erase(j->progress);
	if (j->output)
		output_note(j->output, "%s", text);
	else
		fprintf(stderr, "%s\n", text);
	free(text);
}

void report_error(struct job *j, const struct err *e)
{
	report_note(j, "runner: %s%s%s", e->text, *e->hint ? "\nhint: " : "", e->hint);
}

/* ---- several hosts, one error ---- */

/* C continues a name: "n1" in "n12" and in "n1.example" is not the host n1. */
static bool in_name(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("-_", c));
}

/* TEXT to OUT, with WITH for each WHAT that is a whole name. */
static void report_replace(struct str *out, const char *text, const char *what,
			   const char *with)
{
	const size_t len = strlen(what);

	for (const char *p = text; *p; p++) {
		const char *end = p + len;

		if (strncmp(p, what, len) || (p > text && in_name(p[-1])) ||
		    in_name(*end) || (*end == '.' && in_name(end[1]))) {
			str_addn(out, p, 1);
			continue;
		}
		str_add(out, with);
		p = end - 1;
	}
}

/* H's error with "\1" for its name and without fingerprints: equal for hosts that
 * failed for the same reason. */
static char *error_shape(const struct host *h)
{
	struct str named = { 0 }, shape = { 0 };
	const char *text, *hit;

	report_replace(&named, h->err.text, h->name, "\1");
	text = str_text(&named);
	while ((hit = strstr(text, "SHA256:"))) {
		str_addn(&shape, text, (size_t)(hit - text) + 7);
		str_add(&shape, "...");
		text = hit + strcspn(hit, " ,)");
	}
	str_add(&shape, text);
	str_free(&named);
	return str_take(&shape);
}

/* The hosts that failed for the same reason as host I, itself first, to NAMES; marks
 * them in DONE; returns how many.  A hint that names one host becomes the row's own. */
static size_t report_fold_alike(struct job *j, size_t i, char *const *shape, bool *done,
				struct str *names)
{
	const char *hint = j->agents.host[i].err.hint;
	const char **list = xcalloc(j->agents.n, sizeof *list);
	size_t n = 0;

	for (size_t k = i; k < j->agents.n; k++) {
		struct host *h = &j->agents.host[k];

		if (!shape[k] || done[k] || h->err.id != j->agents.host[i].err.id ||
		    strcmp(shape[i], shape[k]))
			continue;
		list[n++] = h->name;
		done[k] = true;
		if (strcmp(h->err.hint, hint))
			err_hint(&j->err, "%s", err_row_hint(h->err.id));
	}
	hosts_fold(names, list, n);
	free(list);
	return n;
}

/* SHAPE for each of the folded NAMES: "root@n[3-4]:22, root@ip1:22". */
static void add_each(struct str *out, const char *shape, const char *names)
{
	const char *word = names;
	bool inside = false;

	for (const char *p = names;; p++) {
		if (*p == '[' || *p == ']')
			inside = *p == '[';
		if (*p && (*p != ',' || inside))
			continue;
		char *one = xstrndup(word, (size_t)(p - word));

		str_add(out, word > names ? ", " : "");
		report_replace(out, shape, "\1", one);
		free(one);
		if (!*p)
			return;
		word = p + 1;
	}
}

/* E for N hosts, from its SHAPE and their folded NAMES. */
static void set_folded(struct err *e, const char *shape, const char *names, size_t n)
{
	const char *rest = strstr(shape, ": "), *name = strchr(shape, '\1');
	char *subject = xstrndup(shape, rest ? (size_t)(rest - shape) : 0);
	char *reason = xstrdup(transport_reason(e));
	struct str text = { 0 };

	if (e->id == E_SSH_RESOLVE) {
		add_each(&text, "\1", names);
		err_set(e, E_SSH_RESOLVE_ALL, n, str_text(&text), reason);
	} else {
		if (name && rest && name < rest)
			add_each(&text, subject, names);
		else
			rest = shape;
		report_replace(&text, rest, "\1", names);
		snprintf(e->text, sizeof e->text, "%s", str_text(&text));
	}
	free(subject);
	free(reason);
	str_free(&text);
}

/* The keys of the hosts that failed as host I did, a line each: the user compares each
 * of them with the host's own. */
static void list_keys(struct job *j, size_t i, char *const *shape)
{
	size_t alike = 0, said = 0;

	for (size_t k = i; k < j->agents.n; k++)
		alike += shape[k] && !strcmp(shape[i], shape[k]);
	if (alike < 2 || !strstr(shape[i], "SHA256:")) /* one alone hides nothing */
		return;
	for (size_t k = i; k < j->agents.n && said < KEYS_MAX; k++) {
		const struct host *h = &j->agents.host[k];
		const char *key = strstr(h->err.text, "SHA256:");

		if (!key || !shape[k] || strcmp(shape[i], shape[k]) != 0)
			continue;
		while (key > h->err.text + 1 && strncmp(key - 2, ": ", 2) != 0)
			key--;
		report_note(j, "runner: %s: %s", h->name, key);
		said++;
	}
	if (said < alike)
		report_note(j, "runner: keys of %zu more hosts not shown",
			    alike - said);
}

int report_lost_hosts(struct job *j)
{
	bool *done = xcalloc(j->agents.n, sizeof *done);
	char **shape = xcalloc(j->agents.n, sizeof *shape);

	for (size_t i = 0; i < j->agents.n; i++)
		if (j->run[i].phase == RUN_GONE &&
		    j->agents.host[i].err.id != E_UNCONFIRMED) /* is said in the end */
			shape[i] = error_shape(&j->agents.host[i]);
	for (size_t i = 0; i < j->agents.n; i++) {
		struct str names = { 0 };
		size_t n;

		if (!shape[i] || done[i])
			continue;
		if (j->err.id != ERR_NONE)
			report_error(j, &j->err);
		list_keys(j, i, shape);
		j->err = j->agents.host[i].err;
		n = report_fold_alike(j, i, shape, done, &names);
		if (n > 1) /* of one alone nothing is hidden */
			set_folded(&j->err, shape[i], str_text(&names), n);
		str_free(&names);
	}
	for (size_t i = 0; i < j->agents.n; i++)
		free(shape[i]);
	free(shape);
	free(done);
	return -1;
}

/* MUNGE fails on this host, and so for each second agent: once is enough. */
static void note_failed_cleanup(struct job *j)
{
	for (size_t i = 0; j->cleanup.agents.host && i < j->agents.n; i++) {
		const struct err *why = &j->cleanup.agents.host[i].err;

		if (j->run[i].unconfirmed && why->id == E_SRUN_MUNGE) {
			report_note(j, "runner: %s", why->text);
			return;
		}
	}
}

void report_unconfirmed(struct job *j)
{
	const char **names = xcalloc(j->agents.n, sizeof *names);
	struct str folded = { 0 };
	struct err e;
	size_t n = 0;

	for (size_t i = 0; j->run && i < j->agents.n; i++)
		if (j->run[i].unconfirmed)
			names[n++] = j->agents.host[i].name;
	hosts_fold(&folded, names, n);
	free(names);
	if (n) {
		note_failed_cleanup(j);
		err_set(&e, E_UNCONFIRMED, str_text(&folded));
		err_hint(&e, "run `berth-agent --sweep %s` there", j->spec.job_id);
		report_error(j, &e);
	}
	str_free(&folded);
}

/* ---- a failure ---- */

static const char device_hint[] = "the program takes its local rank for a device; "
				  "use --gpu-visible node";
static const char gloo_hint[] = "Horovod's gloo needs horovodrun; --horovod runs the "
				"script on berth instead";

/* A hint for a line that a rank printed on stderr; NULL: nothing is known. */
static const char *hint_from(const char *tail, const struct request *r)
{
	static const struct {
		const char *sign, *hint;
	} known[] = {
		/* its local rank is its device, and it sees one GPU alone */
		{ "invalid device ordinal", device_hint },
		{ "visible_device_list listed an invalid GPU id", device_hint },
		{ "CUDA_ERROR_INVALID_DEVICE", device_hint },
		{ "But your machine only has", device_hint },
		/* the installed Horovod awaits ranks at horovodrun's server */
		{ "HOROVOD_GLOO_TIMEOUT_SECONDS", gloo_hint },
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strstr(tail, known[i].sign) &&
		    (known[i].hint != gloo_hint || r->horovod == HOROVOD_INSTALLED))
			return known[i].hint;
	return NULL;
}

static void report_describe(struct job *j, uint32_t index, struct err *e)
{
	const struct rank *r = &j->rank[index];
	const struct host *h = &j->agents.host[j->plan.rank[index].host];
	char text[96];

	if (r->gpu && *r->gpu)
		snprintf(text, sizeof text, "pid %u, GPU %u %s", r->pid, r->gpu_index,
			 r->gpu);
	else
		snprintf(text, sizeof text, "pid %u", r->pid);
	if (r->hung_text &&
	    (r->ending.fate == FATE_SIGNAL || r->ending.fate == FATE_EXIT)) {
		err_set(e, E_RANK_HUNG, index, h->name, text, r->hung_text);
		return;
	}
	switch (r->ending.fate) {
	case FATE_LOST:
		*e = h->err;
		break;
	case FATE_OOM:
		err_set(e, E_RANK_OOM, index, h->name, text, r->text);
		break;
	case FATE_SIGNAL:
		err_set(e, E_RANK_SIGNAL, index, h->name, text,
			outcome_signal_name(r->ending.code));
		break;
	case FATE_EXEC:
		err_set(e, E_RANK_EXEC, index, h->name, r->text);
		err_hint(e, "%s", r->hint);
		break;
	default:
		if (*r->text)
			err_set(e, E_RANK_FAILED, index, h->name, text, r->text);
		else
			err_set(e, E_RANK_EXIT, index, h->name, text, r->ending.code);
		if (*r->hint)
			err_hint(e, "%s", r->hint);
	}
}

/* Adds the fate of the other ranks so far.  If the cause is a lost host, its ranks are
 * named together: "with it ranks 4-7".  "The other ranks" are all others. */
static void count_others(struct job *j, uint32_t cause, struct str *out)
{
	const bool lost = j->rank[cause].ending.fate == FATE_LOST;
	uint32_t group = 0, failed = 0, rest = 0;
	struct rank_set with = { 0 };
	const char *which;

	for (uint32_t i = 0; i < j->plan.np; i++) {
		const enum fate fate = j->rank[i].ending.fate;

		if (i == cause || (lost && fate == FATE_LOST &&
				   j->plan.rank[i].host == j->plan.rank[cause].host)) {
			rank_set_add(&with, i);
			group++;
		} else if (fate > FATE_OK && !j->rank[i].late) {
			failed++;
		} else if (fate != FATE_OK) {
			rest++;
		}
	}
	if (lost) {
		str_addf(out, "\n  with it rank%s ", str_plural(group));
		rank_set_print(out, &with);
	}
	rank_set_free(&with);
	if (failed)
		str_addf(out, "\n  %u other rank%s failed after it", failed,
			 str_plural(failed));
	which = group + rest == j->plan.np ? "other" : "remaining";
	if (rest == 1)
		str_addf(out, "\n  the %s rank will be ended", which);
	else if (rest)
		str_addf(out, "\n  the %s %u ranks will be ended", which, rest);
}

/* Adds the last lines of RANK on stderr to OUT, unless the user has seen them already.
 * E gets the hint that follows from them. */
static void add_last_lines(struct str *out, struct job *j, uint32_t rank, struct err *e)
{
	const char *tail = output_tail(j->output, rank), *hint;
	bool gap = false;
	const char *reason = output_reason(j->output, rank, &gap);

	hint = reason ? hint_from(reason, j->request) : NULL;
	if (!hint)
		hint = hint_from(tail, j->request);
	if (hint)
		err_hint(e, "%s", hint);
	if (!*tail || output_is_live(j->output, rank))
		return;
	str_add(out, "\n  its last lines on stderr:");
	if (reason)
		str_addf(out, "\n  | %s%s", reason, gap ? "\n  | ..." : "");
	while (*tail) {
		size_t len = strcspn(tail, "\n");

		str_addf(out, "\n  | %.*s", (int)len, tail);
		tail += len + (tail[len] == '\n');
	}
}

void report_cause(struct job *j)
{
	const bool quiet = j->request->verbosity < 0;
	struct str out = { 0 };
	long cause = phase_cause(j);
	const struct rank *r;
	struct err e = { 0 };

	if (cause < 0)
		return;
	r = &j->rank[cause];
	report_describe(j, (uint32_t)cause, &e);
	account_cause(&j->account, e.text);
	events_begin(j->events, "cause");
	events_number(j->events, "rank", cause);
	events_text(j->events, "host", j->agents.host[j->plan.rank[cause].host].name);
	events_number(j->events, "status", outcome_status(&r->ending));
	events_text(j->events, "text", e.text);
	events_end(j->events);
	str_addf(&out, "runner: %s", e.text);
	if (r->ending.fate != FATE_LOST) {
		const char *last = rank_status_last(j->serves.status, (uint32_t)cause);

		if (!quiet && *last)
			str_addf(&out, "\n  its last operation: %s", last);
		add_last_lines(&out, j, (uint32_t)cause, &e);
	}
	if (!quiet)
		count_others(j, (uint32_t)cause, &out);
	if (*e.hint)
		str_addf(&out, "\nhint: %s", e.hint);
	output_note(j->output, "%s", str_text(&out));
	str_free(&out);
}

void report_add_budget(struct str *out, const struct job *j)
{
	str_addf(out, "%u", j->account.restarts.all);
	if (j->request->lives.span_ms) {
		str_addf(out, ", at most %d in ", j->request->lives.restarts);
		str_add_seconds(out, (uint64_t)j->request->lives.span_ms);
		str_add(out, " s");
	} else {
		str_addf(out, " of %d", j->request->lives.restarts);
	}
}

void report_restart(struct job *j, bool resized)
{
	struct str most = { 0 };

	if (j->request->verbosity < 0)
		return;
	if (resized) {
		str_add(&most, "start");
	} else {
		str_add(&most, "restart ");
		report_add_budget(&most, j);
	}
	report_note(j, "runner: %s: %u rank%s on %u host%s", str_text(&most),
		    j->plan.np, str_plural(j->plan.np), j->plan.nodes,
		    str_plural(j->plan.nodes));
	str_free(&most);
}

/* Append "ranks 2-3": the ranks of H that run.  Returns how many others run on hosts
 * that are not to be left. */
static uint32_t add_ranks_of(struct str *out, const struct job *j, const struct host *h)
{
	struct rank_set with = { 0 };
	uint32_t others = 0;

	for (uint32_t i = 0; i < j->plan.np; i++) {
		const uint32_t host = j->plan.rank[i].host;

		if (j->rank[i].state == RANK_ENDED)
			continue;
		if (host == job_index(j, h))
			rank_set_add(&with, i);
		else
			others += !j->run[host].leaves;
	}
	str_addf(out, "rank%s ", str_plural((uint32_t)rank_set_count(&with)));
	rank_set_print(out, &with);
	rank_set_free(&with);
	return others;
}

void report_left(struct job *j, const struct host *h)
{
	struct str out = { 0 };
	uint32_t others;

	if (h->state == HOST_LOST)
		account_loss(&j->account, clock_ns(), h->err.text);
	if (j->request->verbosity < 0)
		return;
	if (h->state == HOST_LOST)
		str_addf(&out, "runner: %s\n  with it ", h->err.text);
	else
		str_addf(&out, "runner: %s is to be left: ending ", h->name);
	others = add_ranks_of(&out, j, h);
	str_addf(&out, "\n  the other %u rank%s go%s on", others, str_plural(others),
		 others == 1 ? "es" : "");
	output_note(j->output, "%s", str_text(&out));
	str_free(&out);
}

void report_resize(struct job *j)
{
	const uint32_t n = j->plan.np - j->ended;

	if (j->request->verbosity >= 0)
		report_note(j,
			    "runner: the hosts are others now: ending %u rank%s, to "
			    "start as many as there is room for",
			    n, str_plural(n));
}

void report_replaced(struct job *j, uint32_t rank)
{
	struct str out = { 0 };
	struct err e = { 0 };

	report_describe(j, rank, &e);
	account_loss(&j->account, clock_ns(), e.text);
	if (j->request->verbosity < 0)
		return;
	str_addf(&out, "runner: %s", e.text);
	add_last_lines(&out, j, rank, &e);
	str_add(&out, "\n  it starts again: restart ");
	report_add_budget(&out, j);
	output_note(j->output, "%s", str_text(&out));
	str_free(&out);
}

void report_back(struct job *j, uint32_t rank, uint32_t ranks)
{
	const uint64_t ms = clock_ms() - j->rank[rank].again_ms;

	if (j->request->verbosity >= 0)
		report_note(j, "runner: rank %u %s after %llu.%llu s: %u rank%s", rank,
			    j->rank[rank].starts ? "is back" : "has joined",
			    (unsigned long long)ms / 1000,
			    (unsigned long long)ms / 100 % 10, ranks,
			    str_plural(ranks));
}

/* ---- --summary ---- */

void report_reason(struct str *out, const struct job *j)
{
	const struct host *lost = NULL;

	for (size_t i = 0; i < j->agents.n && !lost; i++)
		if (j->run[i].phase == RUN_GONE)
			lost = &j->agents.host[i];
	if (j->err.id != ERR_NONE)
		str_add(out, j->err.text);
	else if (j->timed_out) {
		str_add(out, "the time limit of ");
		str_add_seconds(out, (uint64_t)j->request->timeout_ms);
		str_add(out, " s has passed");
	} else if (j->signo)
		str_add(out, outcome_signal_name(j->signo));
	else if (j->account.cause)
		str_add(out, j->account.cause);
	else if (j->lost && lost)
		str_add(out, lost->err.text);
	else if (j->unread)
		str_add(out, "the output has no reader");
	else if (j->disk_failed)
		str_add(out, "an output file could not be written");
}

static void report_summary(struct job *j, int status, const struct verdict *verdict)
{
	const char **names = xcalloc(j->agents.n, sizeof *names);
	struct str out = { 0 }, reason = { 0 };
	struct summary s = {
		.job = j->spec.job_id,
		.status = phase_death(j) ? 128 + phase_death(j) : status,
		.begin_ns = j->account.begin_ns,
		.end_ns = clock_ns(),
		.restarts = j->account.restarts.all,
		.losses = &j->account.losses,
		.logs = j->request->output.dir,
		.verdict = verdict,
		.host = names,
		.usage = j->account.usage,
		.n = j->agents.n,
		.nccl = j->output ? output_nccl(j->output) : NULL,
	};

	for (size_t i = 0; i < j->agents.n; i++)
		names[i] = j->agents.host[i].name;
	report_reason(&reason, j);
	s.cause = reason.len ? str_text(&reason) : NULL;
	if (j->request->insight.summary == SUMMARY_JSON) {
		summary_json(&out, &s);
	} else {
		str_add(&out, "runner: ");
		summary_text(&out, &s);
	}
	report_note(j, "%s", str_text(&out));
	str_free(&reason);
	str_free(&out);
	free(names);
}

static void report_nccl(struct job *j)
{
	const struct nccl_pairs *p = j->output ? output_nccl(j->output) : NULL;
	struct strv texts = { 0 }, hints = { 0 };
	struct str out = { 0 };

	if (!p || !p->lines) {
		report_note(j, "runner: NCCL: no rank has logged what it does\n"
			       "hint: leave NCCL_DEBUG and NCCL_DEBUG_FILE unset for "
			       "--nccl-transports");
		return;
	}
	nccl_report_table(&out, p);
	report_note(j, "runner: %s", str_text(&out));
	nccl_report_warnings(&texts, &hints, p);
	for (size_t i = 0; i < texts.n; i++)
		report_note(j,
			    *hints.v[i] ? "runner: warning: %s\nhint: %s"
					: "runner: warning: %s",
			    texts.v[i], hints.v[i]);
	strv_free(&texts);
	strv_free(&hints);
}

void report_end(struct job *j, int status)
{
	struct verdict verdict;
	struct str out = { 0 };

	monitor_close(j);
	monitor_verdict(&verdict, j);
	if (j->request->insight.nccl_transports &&
	    j->request->insight.summary != SUMMARY_JSON)
		report_nccl(j);
	if (j->request->insight.summary != SUMMARY_NONE)
		report_summary(j, status, &verdict);
	else if (insight_period_ms(&j->request->insight))
		verdict_text(&out, &verdict);
	if (out.len)
		report_note(j, "runner: what --monitor found:%s", str_text(&out));
	verdict_free(&verdict);
	str_free(&out);
}

/* ---- bindings ---- */

void report_overload(struct job *j)
{
	for (size_t i = 0; i < j->agents.n; i++) {
		const struct host *h = &j->agents.host[i];
		const uint32_t ranks = job_needs(j, i) ? j->plan.local_size[i] : 0;

		if (j->request->verbosity < 0 || h->state != HOST_UP || !ranks)
			continue;
		if (ranks > h->cores)
			report_note(j, "runner: warning: %s: %u ranks share %u core%s",
				    h->name, ranks, h->cores, str_plural(h->cores));
	}
}

void report_bindings(struct job *j)
{
	for (uint32_t i = 0; i < j->plan.np; i++) {
		const struct rank *r = &j->rank[i];
		char gpu[64] = "-";

		if (!r->bound) /* it never ran */
			continue;
		if (*r->gpu)
			snprintf(gpu, sizeof gpu, "%u %s", r->gpu_index, r->gpu);
		report_note(j,
			    "runner: rank %u on %s, pid %u: cpus %s, numa %s, GPU %s",
			    i, j->agents.host[j->plan.rank[i].host].name, r->pid,
			    r->bound, *r->numa ? r->numa : "-", gpu);
	}
}
