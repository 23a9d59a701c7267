#include "launcher/trace/trace_source.h"

#include <stdlib.h>
#include <string.h>

#include "common/str.h"
#include "launcher/output/events.h"

/* Times of 2001 and later, if they count from 1970. */
static const int64_t since_1970_ns = 1000000000000000000;

/* ---- what a file says of itself ---- */

static char *text_copy(const struct trace_text *t)
{
	return xstrndup(t->s, t->n);
}

/* {"rank": 3, "host": "n1", "job": "...", "wall_ns": ..., "begun_ns": ..., ...} */
static void take_berth(struct trace_source *s, const struct trace_text *args)
{
	struct trace_text key, v;
	uint64_t n;

	s->kind = TRACE_BERTH;
	for (size_t at = 0; trace_member(args, &at, &key, &v);) {
		if (trace_is(&key, "host") && !s->host)
			s->host = text_copy(&v);
		else if (trace_is(&key, "job") && !s->job)
			s->job = text_copy(&v);
		if (!trace_number(&v, &n))
			continue;
		if (trace_is(&key, "rank") && n < INT32_MAX)
			s->rank = (long)n;
		else if (trace_is(&key, "wall_ns")) {
			s->wall_ns = (int64_t)n;
			s->clock = TRACE_CLOCK_JOB;
		} else if (trace_is(&key, "begun_ns"))
			s->begun_ns = (int64_t)n;
		else if (trace_is(&key, "offset_ns"))
			s->offset_ns = n;
	}
}

/* Whether EV is Horovod's first: it has the time of its start as the "name" of a
 * process. */
static bool take_horovod(struct trace_source *s, const struct trace_event *ev)
{
	struct trace_text key, v;
	uint64_t n;

	if (!trace_is(&ev->name, "process_name"))
		return false;
	for (size_t at = 0; trace_member(&ev->args, &at, &key, &v);)
		if (trace_is(&key, "start_time_since_epoch_in_micros") &&
		    trace_number(&v, &n) && n < INT64_MAX / 2000) {
			s->kind = TRACE_HOROVOD;
			s->clock = TRACE_CLOCK_WALL;
			s->wall_ns = (int64_t)n * 1000;
			return true;
		}
	return false;
}

static void take_label(struct trace_source *s)
{
	const char *slash = strrchr(s->in->path, '/');
	const char *host = s->in->host ? s->in->host : s->host;
	struct str plain = { 0 }, quoted = { 0 };

	if (s->rank >= 0)
		str_addf(&plain, "rank %ld", s->rank);
	else
		str_add(&plain, slash ? slash + 1 : s->in->path);
	if (s->in->host)
		str_addf(&plain, " (%s)", s->in->host);
	if (s->in->epoch > 1)
		str_addf(&plain, ", epoch %u", s->in->epoch);
	json_string(&quoted, str_text(&plain));
	free(s->label);
	s->label = xstrndup(quoted.s + 1, quoted.len - 2);
	if (host && !s->in->host) { /* of the file, escaped already */
		char *label = xasprintf("%s (%s)", s->label, host);

		free(s->label);
		s->label = label;
	}
	str_free(&plain);
	str_free(&quoted);
}

/* ---- events ---- */

int64_t trace_source_time(const struct trace_source *s, int64_t at_ns)
{
	const int64_t most = INT64_MAX / 4;
	double drift = 0;

	if (s->kind == TRACE_BERTH && s->in->end_ns > s->begun_ns && s->begun_ns)
		drift = (double)(int64_t)(s->in->end_offset_ns - s->offset_ns) *
			((double)(at_ns - s->begun_ns) /
			 (double)(s->in->end_ns - s->begun_ns));
	if (at_ns < -most || at_ns > most || s->wall_ns < -most || s->wall_ns > most ||
	    drift < -1e12 || drift > 1e12)
		return 0;
	return at_ns + s->wall_ns + (int64_t)drift;
}

int trace_source_open(struct trace_source *s, const struct trace_input *in, size_t most,
		      struct err *e)
{
	struct trace_head head;

	*s = (struct trace_source){ .in = in, .rank = -1 };
	if (in->pull)
		trace_reader_from(&s->reader, in->path, in->pull, in->ctx, most);
	else if (trace_reader_open(&s->reader, in->path, most, e))
		return -1;
	if (trace_reader_begin(s->reader, &head, e))
		return -1;
	if (head.base_ns) {
		s->kind = TRACE_KINETO;
		s->clock = TRACE_CLOCK_WALL;
		s->wall_ns = head.base_ns;
	}
	s->rank = head.rank;
	take_label(s);
	return 0;
}

/* The next event with a time into S. */
static int source_read(struct trace_source *s, trace_named *named, void *ctx,
		       struct err *e)
{
	int more;

	while ((more = trace_reader_next(s->reader, &s->ev, e)) > 0) {
		if (s->ev.timed && s->ev.ph != 'M')
			break;
		if (s->kind == TRACE_OTHER && trace_is(&s->ev.name, "berth_timeline")) {
			take_berth(s, &s->ev.args);
			take_label(s);
		} else if (s->kind != TRACE_OTHER || !take_horovod(s, &s->ev)) {
			named(ctx, s, &s->ev);
		}
	}
	s->has = more > 0;
	return more < 0 ? -1 : 0;
}

int trace_source_begin(struct trace_source *s, trace_named *named, void *ctx,
		       struct err *e)
{
	if (source_read(s, named, ctx, e))
		return -1;
	if (s->has && s->clock == TRACE_CLOCK_NONE && s->ev.ts_ns > since_1970_ns)
		s->clock = TRACE_CLOCK_WALL;
	return 0;
}

int trace_source_next(struct trace_source *s, trace_named *named, void *ctx,
		      struct err *e)
{
	if (source_read(s, named, ctx, e))
		return -1;
	s->at_ns = s->has ? trace_source_time(s, s->ev.ts_ns) : INT64_MAX;
	return 0;
}

void trace_source_free(struct trace_source *s)
{
	trace_reader_free(s->reader);
	free(s->job);
	free(s->host);
	free(s->label);
}
