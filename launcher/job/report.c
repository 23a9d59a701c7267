#include "launcher/job/report.h"

#include <ctype.h>
#include <stdarg.h>
#include <unistd.h>

#include "launcher/hosts/hosts.h"
#include "launcher/job/rank_status.h"
#include "launcher/output/progress.h"

bool report_in_managed_job(void)
{
	static const char *const names[] = { "SLURM_JOB_ID", "PBS_JOBID",
					     "LSB_JOBID",    "FLUX_JOB_ID",
					     "COBALT_JOBID", "PE_HOSTFILE" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (getenv(names[i]))
			return true;
	return false;
}

void report_note(struct session *s, const char *format, ...)
{
	va_list ap;
	char *text;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	progress_erase(s->progress);
	if (s->output)
		output_note(s->output, "%s", text);
	else
		fprintf(stderr, "%s\n", text);
	free(text);
}

void report_error(struct session *s, const struct err *e)
{
	report_note(s, "runner: %s%s%s", e->text, *e->hint ? "\nhint: " : "", e->hint);
}

/* ---- several hosts, one error ---- */

/* Part of a longer name: "n1" in "n12" and "n1.example" is not the host n1. */
static bool in_name(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("-_", c));
}

/* TEXT with WITH for each WHAT that stands alone. */
static void replace(struct str *out, const char *text, const char *what,
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

/* TEXT without what differs from one key to the next. */
static void hide_fingerprints(struct str *out, const char *text)
{
	const char *hit;

	while ((hit = strstr(text, "SHA256:"))) {
		str_addn(out, text, (size_t)(hit - text) + 7);
		str_add(out, "...");
		text = hit + strcspn(hit, " ,)");
	}
	str_add(out, text);
}

/* H's error with "\1" for its name: equal for hosts that failed alike. */
static char *error_shape(const struct host *h)
{
	struct str named = { 0 }, s = { 0 };

	replace(&named, h->err.text, h->name, "\1");
	hide_fingerprints(&s, str_text(&named));
	str_free(&named);
	return str_take(&s);
}

/* Hosts that failed as host I did, I itself first, each marked in DONE; how many.  A
 * hint that names one of them becomes the one for all. */
static size_t fold_alike(struct session *s, size_t i, char *const *shape, bool *done,
			 struct str *names)
{
	const char *hint = s->agents.host[i].err.hint;
	const char **list = xcalloc(s->agents.n, sizeof *list);
	size_t n = 0;

	for (size_t k = i; k < s->agents.n; k++) {
		struct host *h = &s->agents.host[k];

		if (!shape[k] || done[k] || h->err.id != s->agents.host[i].err.id ||
		    strcmp(shape[i], shape[k]))
			continue;
		list[n++] = h->name;
		done[k] = true;
		if (strcmp(h->err.hint, hint))
			err_hint(&s->err, "%s", err_row_hint(h->err.id));
	}
	hosts_fold(names, list, n);
	free(list);
	return n;
}

int report_lost_hosts(struct session *s)
{
	bool *done = xcalloc(s->agents.n, sizeof *done);
	char **shape = xcalloc(s->agents.n, sizeof *shape);

	for (size_t i = 0; i < s->agents.n; i++)
		if (s->agents.host[i].state == HOST_LOST && !s->run[i].dropped &&
		    s->agents.host[i].err.id != E_UNCONFIRMED) /* is said in the end */
			shape[i] = error_shape(&s->agents.host[i]);
	for (size_t i = 0; i < s->agents.n; i++) {
		struct str names = { 0 }, text = { 0 };
		size_t n;

		if (!shape[i] || done[i])
			continue;
		if (s->err.id != ERR_NONE)
			report_error(s, &s->err);
		s->err = s->agents.host[i].err;
		n = fold_alike(s, i, shape, done, &names);
		replace(&text, shape[i], "\1", str_text(&names));
		if (n > 1) /* of one alone nothing is hidden */
			snprintf(s->err.text, sizeof s->err.text, "%s",
				 str_text(&text));
		str_free(&names);
		str_free(&text);
	}
	for (size_t i = 0; i < s->agents.n; i++)
		free(shape[i]);
	free(shape);
	free(done);
	return -1;
}

void report_unconfirmed(struct session *s)
{
	const char **names = xcalloc(s->agents.n, sizeof *names);
	struct str folded = { 0 };
	struct err e;
	size_t n = 0;

	for (size_t i = 0; s->run && i < s->agents.n; i++)
		if (s->run[i].unconfirmed)
			names[n++] = s->agents.host[i].name;
	hosts_fold(&folded, names, n);
	free(names);
	if (n) {
		err_set(&e, E_UNCONFIRMED, str_text(&folded));
		err_hint(&e, "run `berth-agent --sweep %s` there", s->job_id);
		report_error(s, &e);
	}
	str_free(&folded);
}

/* ---- a failure ---- */

/* What a program says that takes its local rank for a device but sees one GPU alone. */
static bool asked_for_missing_gpu(const char *tail)
{
	static const char *const signs[] = {
		"invalid device ordinal",
		"visible_device_list listed an invalid GPU id",
		"CUDA_ERROR_INVALID_DEVICE",
		"But your machine only has",
	};

	for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
		if (strstr(tail, signs[i]))
			return true;
	return false;
}

static void who(const struct rank *r, char *text, size_t size)
{
	if (r->gpu && *r->gpu)
		snprintf(text, size, "pid %u, GPU %u %s", r->pid, r->gpu_index, r->gpu);
	else
		snprintf(text, size, "pid %u", r->pid);
}

static void describe(struct session *s, uint32_t index, struct err *e)
{
	const struct rank *r = &s->rank[index];
	const struct host *h = &s->agents.host[s->plan.rank[index].host];
	char text[96];

	who(r, text, sizeof text);
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
		err_set(e, E_RANK_EXIT, index, h->name, text, r->ending.code);
	}
}

static void add_tail(struct str *out, const char *tail)
{
	if (!*tail)
		return;
	str_add(out, "\n  its last lines on stderr:");
	while (*tail) {
		size_t len = strcspn(tail, "\n");

		str_addf(out, "\n  | %.*s", (int)len, tail);
		tail += len + (tail[len] == '\n');
	}
}

static void event_cause(struct session *s, long cause, const struct err *e)
{
	events_begin(s->events, "cause");
	events_number(s->events, "rank", cause);
	events_text(s->events, "host", s->agents.host[s->plan.rank[cause].host].name);
	events_number(s->events, "status", outcome_status(&s->rank[cause].ending));
	events_text(s->events, "text", e->text);
	events_end(s->events);
}

/* "with it ranks 4-7" for a lost host; how many they are. */
static uint32_t add_lost_ranks(struct session *s, uint32_t host, struct str *out)
{
	size_t nwords = s->plan.np / 64 + 1;
	uint64_t *bits = xcalloc(nwords, sizeof *bits);
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->plan.np; i++)
		if (s->plan.rank[i].host == host &&
		    s->rank[i].ending.fate == FATE_LOST) {
			bits[i / 64] |= 1ull << i % 64;
			n++;
		}
	str_addf(out, "\n  with it rank%s ", n > 1 ? "s" : "");
	str_add_bits(out, bits, nwords);
	free(bits);
	return n;
}

/* What became of the other ranks so far. */
static void count_others(struct session *s, uint32_t cause, struct str *out)
{
	bool lost = s->rank[cause].ending.fate == FATE_LOST;
	uint32_t host = s->plan.rank[cause].host, failed = 0, fine = 0, rest;
	uint32_t group =
		lost ? add_lost_ranks(s, host, out) : 1; /* these are the cause */

	for (uint32_t i = 0; i < s->plan.np; i++) {
		enum fate fate = s->rank[i].ending.fate;
		bool in_group = lost ? s->plan.rank[i].host == host && fate == FATE_LOST
				     : i == cause;

		failed += !in_group && fate > FATE_OK && !s->rank[i].late;
		fine += fate == FATE_OK;
	}
	rest = s->plan.np - group - failed - fine;
	if (failed)
		str_addf(out, "\n  %u other rank%s failed after it", failed,
			 failed > 1 ? "s" : "");
	if (rest == 1)
		str_add(out, "\n  the other rank will be ended");
	else if (rest)
		str_addf(out, "\n  the other %u ranks will be ended", rest);
}

void report_cause(struct session *s)
{
	struct str out = { 0 };
	long cause = session_cause(s);
	struct err e = { 0 };

	if (cause < 0)
		return;
	describe(s, (uint32_t)cause, &e);
	event_cause(s, cause, &e);
	str_addf(&out, "runner: %s", e.text);
	if (s->rank[cause].ending.fate != FATE_LOST) {
		const char *tail = output_tail(s->output, (uint32_t)cause);
		const struct rank_op *doing = s->rank[cause].doing;

		if (s->request->verbosity >= 0 && doing && *doing->text)
			str_addf(&out, "\n  its last operation: %s", doing->text);
		if (s->request->verbosity >= 0)
			add_tail(&out, tail);
		if (asked_for_missing_gpu(tail))
			err_hint(&e, "the program takes its local rank for a device; "
				     "use --gpu-visible node");
	}
	if (s->request->verbosity >= 0)
		count_others(s, (uint32_t)cause, &out);
	if (*e.hint)
		str_addf(&out, "\nhint: %s", e.hint);
	output_note(s->output, "%s", str_text(&out));
	str_free(&out);
}

/* ---- bindings ---- */

void report_overload(struct session *s)
{
	for (size_t i = 0; i < s->agents.n; i++) {
		const struct host *h = &s->agents.host[i];
		uint32_t ranks = s->plan.local_size[i];

		if (s->request->verbosity < 0 || h->state != HOST_UP || !ranks)
			continue;
		if (ranks > h->cores)
			report_note(s, "runner: warning: %s: %u ranks share %u core%s",
				    h->name, ranks, h->cores, h->cores > 1 ? "s" : "");
	}
}

static void gpu_text(const struct rank *r, char *text, size_t size)
{
	if (r->gpu && *r->gpu)
		snprintf(text, size, "%u %s", r->gpu_index, r->gpu);
	else
		snprintf(text, size, "-");
}

void report_binding(struct session *s, uint32_t rank)
{
	const struct rank *r = &s->rank[rank];
	char gpu[64];

	gpu_text(r, gpu, sizeof gpu);
	report_note(s, "runner: rank %u on %s, pid %u: cpus %s, numa %s, GPU %s", rank,
		    s->agents.host[s->plan.rank[rank].host].name, r->pid, r->bound,
		    *r->numa ? r->numa : "-", gpu);
}

/* ---- roll-call ---- */

/* What it does in the library, and for whom it waits there. */
static void add_doing(const struct session *s, uint32_t i, struct str *out)
{
	const size_t nwords = s->plan.np / 64 + 1;
	uint64_t *bits;
	size_t n;

	if (!s->rank[i].doing || !*s->rank[i].doing->text)
		return;
	str_addf(out, "\n    %s", s->rank[i].doing->text);
	if (s->rank[i].state != RANK_RUNNING)
		return;
	bits = xcalloc(nwords, sizeof *bits);
	n = rank_status_behind(s, i, bits);
	if (n) {
		str_addf(out, "; waits for rank%s ", n > 1 ? "s" : "");
		str_add_bits(out, bits, nwords);
	}
	free(bits);
}

static void roll_call_line(struct session *s, uint32_t i)
{
	static const char *const states[] = { "waiting", "running", "ended" };
	const struct rank *r = &s->rank[i];
	long quiet = output_quiet_ms(s->output, i);
	char last[64] = "no output yet";
	struct str doing = { 0 };

	add_doing(s, i, &doing);
	if (quiet >= 0)
		snprintf(last, sizeof last, "last output %ld.%ld s ago", quiet / 1000,
			 quiet % 1000 / 100);
	report_note(s, "  rank %u  %s  pid %u  %s  %s%s", i,
		    s->agents.host[s->plan.rank[i].host].name, r->pid, states[r->state],
		    last, str_text(&doing));
	str_free(&doing);
}

void report_roll_call(struct session *s)
{
	if (!s->rank || !s->output)
		return;
	report_note(s, "runner: roll-call: %u ranks, %u ended", s->plan.np, s->ended);
	for (uint32_t i = 0; i < s->plan.np; i++)
		roll_call_line(s, i);
}
