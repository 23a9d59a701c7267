#include "launcher/trace/trace_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/str.h"

struct json {
	struct trace_file *file;
	bool any, timed;
	int64_t base_ns;
};

static void json_add(struct json *j, const char *text)
{
	trace_file_add(j->file, text, strlen(text));
}

static void json_string_of(struct json *j, const char *key, const struct trace_text *t)
{
	if (!t->n)
		return;
	json_add(j, key);
	trace_file_add(j->file, t->s, t->n);
	json_add(j, "\"");
}

/* N in decimal behind KEY. */
static void json_number(struct json *j, const char *key, uint64_t n)
{
	char text[24], *p = text + sizeof text;

	do
		*--p = (char)('0' + n % 10);
	while (n /= 10);
	json_add(j, key);
	trace_file_add(j->file, p, (size_t)(text + sizeof text - p));
}

/* NS as microseconds. */
static void json_time(struct json *j, const char *key, int64_t ns)
{
	const uint64_t n = ns < 0 ? 0 : (uint64_t)ns;
	const unsigned rest = (unsigned)(n % 1000);
	const char part[4] = { '.', (char)('0' + rest / 100),
			       (char)('0' + rest / 10 % 10), (char)('0' + rest % 10) };

	json_number(j, key, n / 1000);
	if (rest)
		trace_file_add(j->file, part, 4);
}

static void *json_begin(struct trace_file *f)
{
	struct json *j = xcalloc(1, sizeof *j);

	j->file = f;
	json_add(j, "{\"traceEvents\":[");
	return j;
}

static void json_next(struct json *j)
{
	json_add(j, j->any ? ",\n" : "\n");
	j->any = true;
}

/* The name of a process or a track.  Viewers show them by their numbers. */
static void json_name(struct json *j, const struct trace_put *p)
{
	const bool process = p->ph == 'P';

	json_next(j);
	json_add(j, process ? "{\"ph\":\"M\",\"name\":\"process_name\""
			    : "{\"ph\":\"M\",\"name\":\"thread_name\"");
	json_number(j, ",\"pid\":", p->pid);
	json_number(j, ",\"tid\":", p->tid);
	json_add(j, ",\"args\":{\"name\":\"");
	trace_file_add(j->file, p->name.s, p->name.n);
	json_add(j, "\"}}");
	json_next(j);
	json_add(j, process ? "{\"ph\":\"M\",\"name\":\"process_sort_index\""
			    : "{\"ph\":\"M\",\"name\":\"thread_sort_index\"");
	json_number(j, ",\"pid\":", p->pid);
	json_number(j, ",\"tid\":", p->tid);
	json_number(j, ",\"args\":{\"sort_index\":", process ? p->pid : p->tid);
	json_add(j, "}}");
}

static void json_put(void *state, const struct trace_put *p)
{
	enum { BEFORE_S = 600 };
	const int64_t second_ns = 1000000000;
	struct json *j = state;
	const char ph[2] = { p->ph, '\0' };

	if (p->ph == 'P' || p->ph == 'T') {
		json_name(j, p);
		return;
	}
	if (!j->timed)
		j->base_ns = p->ts_ns / second_ns * second_ns - BEFORE_S * second_ns;
	j->timed = true;
	json_next(j);
	json_add(j, "{\"ph\":\"");
	json_add(j, ph);
	json_string_of(j, "\",\"name\":\"", &p->name);
	if (!p->name.n)
		json_add(j, "\"");
	json_string_of(j, ",\"cat\":\"", &p->cat);
	json_string_of(j, ",\"s\":\"", &p->scope);
	json_string_of(j, ",\"bp\":\"", &p->bp);
	json_number(j, ",\"pid\":", p->pid);
	json_number(j, ",\"tid\":", p->tid);
	json_time(j, ",\"ts\":", p->ts_ns - j->base_ns);
	if (p->ph == 'X')
		json_time(j, ",\"dur\":", p->dur_ns);
	if (strchr("stfbne", p->ph))
		json_number(j, ",\"id\":", p->id);
	if (p->args.n) {
		json_add(j, ",\"args\":");
		trace_file_add(j->file, p->args.s, p->args.n);
	}
	json_add(j, "}");
}

static void json_close(void *state, const struct trace_text *about)
{
	struct json *j = state;

	json_add(j, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{");
	json_number(j, "\"base_ns\":\"", (uint64_t)j->base_ns);
	json_add(j, "\",\"about\":");
	trace_file_add(j->file, about->s, about->n);
	json_add(j, "}}\n");
	free(j);
}

const struct trace_form trace_json = { json_begin, json_put, json_close, true };
