#include "launcher/trace/trace_merge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/output/events.h"
#include "launcher/trace/trace_json.h"
#include "launcher/trace/trace_match.h"
#include "launcher/trace/trace_perfetto.h"

enum {
	JOB_PID = 1, /* the process in front of those of the files */
	JOB_STEPS = 1,
	JOB_LAST = 2,
	JOB_ABOUT = 3,
	DECLARED = 1 << 18, /* tracks that are known to have a name */
	TRACKS = 1 << 14,   /* of which the last slices are known */
	LANES = 4,          /* of one track, if its slices overlap */
	LANE_BIT = 17,      /* of a track's number: its lane */
	KEPT = 4,
	EVENT_BYTES_MOST = 1 << 20,
	EVENT_BYTES_ALL = 16 << 20, /* of all files */
	EVENT_BYTES_LEAST = 8192
};

struct track {
	uint32_t pid, tid;
	struct lane {
		int64_t begin[KEPT],
			end[KEPT]; /* of its last slices, no one in another */
		size_t n;
	} lane[LANES];
};

struct merge {
	const struct trace_form *form;
	struct trace_file *file;
	void *state;
	struct trace_source *source;
	size_t n;
	struct trace_source **heap; /* those with an event, the earliest first */
	size_t heaped;
	uint32_t pids;
	struct trace_match *match;
	uint64_t arrows, step_end_ns;
	int64_t first_ns;
	struct trace_report *report;
	uint64_t declared[DECLARED];
	size_t ndeclared;
	struct track track[TRACKS];
};

/* ---- names ---- */

static uint64_t merge_hash(uint64_t hash, uint64_t v)
{
	hash = (hash ^ v) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

static void put_name(struct merge *m, char ph, uint32_t pid, uint64_t tid,
		     const struct trace_text *name)
{
	m->form->put(
		m->state,
		&(struct trace_put){ .ph = ph, .pid = pid, .tid = tid, .name = *name });
}

static void put_plain_name(struct merge *m, char ph, uint32_t pid, uint64_t tid,
			   const char *name)
{
	const struct trace_text t = { name, strlen(name) };

	put_name(m, ph, pid, tid, &t);
}

/* Whether this track is seen for the first time. */
static bool track_is_new(struct merge *m, uint32_t pid, uint32_t tid)
{
	const uint64_t key = ((uint64_t)pid << 32 | tid) + 1;
	size_t i = (merge_hash(key, 0) >> 20) % DECLARED;

	for (; m->declared[i]; i = (i + 1) % DECLARED)
		if (m->declared[i] == key)
			return false;
	if (m->ndeclared > DECLARED / 2)
		return false;
	m->ndeclared++;
	m->declared[i] = key;
	return true;
}

/* A track without a name would be nowhere in Perfetto's form. */
static void track_declare(struct merge *m, const struct trace_event *ev, uint32_t pid,
			  uint32_t tid)
{
	char text[32];

	if (!track_is_new(m, pid, tid))
		return;
	snprintf(text, sizeof text, "%u", tid);
	if (ev->tid_text.n)
		put_name(m, 'T', pid, tid, &ev->tid_text);
	else
		put_plain_name(m, 'T', pid, tid, text);
}

/* The merged file's number for a process of S. */
static uint32_t pid_of(struct merge *m, struct trace_source *s,
		       const struct trace_event *ev)
{
	const bool one = s->kind == TRACE_BERTH || s->kind == TRACE_HOROVOD;
	const int64_t raw = one ? 0 : ev->pid;
	size_t i = 0;

	while (i < s->pids && s->raw[i] != raw)
		i++;
	if (i == s->pids && i == TRACE_PIDS)
		return s->pid[i - 1];
	if (i == s->pids) {
		s->raw[i] = raw;
		s->pid[i] = ++m->pids;
		s->pids++;
		if (one || !ev->pid_text.n) {
			put_plain_name(m, 'P', s->pid[i], 0, s->label);
		} else {
			char *name = xasprintf("%s: %.*s", s->label,
					       (int)ev->pid_text.n, ev->pid_text.s);

			put_plain_name(m, 'P', s->pid[i], 0, name);
			free(name);
		}
	}
	return s->pid[i];
}

/* Horovod has a process for each tensor: here it is a track. */
static uint32_t tid_of(const struct trace_source *s, const struct trace_event *ev)
{
	return (uint32_t)(s->kind == TRACE_HOROVOD ? ev->pid : ev->tid) +
	       (s->kind == TRACE_BERTH);
}

/* An event without a time: a name, or nothing of interest. */
static void on_named(void *ctx, struct trace_source *s, const struct trace_event *ev)
{
	struct merge *m = ctx;
	const bool process = trace_is(&ev->name, "process_name");
	struct trace_text key, name = { 0 };
	uint32_t pid;
	char *text;
	size_t at = 0;

	if (!process && !trace_is(&ev->name, "thread_name"))
		return;
	while (trace_member(&ev->args, &at, &key, &name) && !trace_is(&key, "name"))
		;
	if (!name.n || name.s[-1] != '"')
		return;
	pid = pid_of(m, s, ev);
	if (!process || s->kind == TRACE_HOROVOD) {
		track_is_new(m, pid, tid_of(s, ev));
		put_name(m, 'T', pid, tid_of(s, ev), &name);
	} else if (s->kind != TRACE_BERTH) {
		text = xasprintf("%s: %.*s", s->label, (int)name.n, name.s);
		put_plain_name(m, 'P', pid, 0, text);
		free(text);
	}
}

/* ---- collectives ---- */

static void take_op(struct trace_op *op, const struct trace_event *ev)
{
	struct trace_text key, v;
	uint64_t n = 0;

	*op = (struct trace_op){ 0 };
	for (size_t at = 0; trace_member(&ev->args, &at, &key, &v);) {
		if (trace_is(&key, "waited"))
			trace_thousandths(&v, &op->waited_ns);
		if (!trace_number(&v, &n))
			continue;
		if (trace_is(&key, "set"))
			op->set = n;
		else if (trace_is(&key, "seq")) {
			op->seq = n;
			op->is = true;
		} else if (trace_is(&key, "part"))
			op->part = n;
		else if (trace_is(&key, "of"))
			op->of = n;
		else if (trace_is(&key, "world"))
			op->world = n;
		else if (trace_is(&key, "step"))
			op->step = n;
		else if (trace_is(&key, "bytes"))
			op->bytes = n;
	}
	op->is &= op->of > 0 && op->waited_ns >= 0 && op->waited_ns < INT64_MAX / 4;
}

static int by_time(const void *left, const void *right)
{
	const struct trace_came *a = left, *b = right;

	return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

/* From the first slice of C to the next, and so on. */
static void put_arrows(struct merge *m, const struct trace_collective *c)
{
	static const struct trace_text name = { "collective", 10 }, bp = { "e", 1 };

	qsort(c->came, c->n, sizeof *c->came, by_time);
	m->arrows++;
	for (uint32_t i = 0; i < c->n; i++)
		m->form->put(
			m->state,
			&(struct trace_put){ .ph = "stf"[!i             ? 0
							 : i + 1 < c->n ? 1
									: 2],
					     .pid = m->source[c->came[i].source].pid[0],
					     .tid = c->came[i].tid,
					     .ts_ns = c->came[i].at_ns,
					     .name = name,
					     .cat = name,
					     .bp = bp,
					     .id = m->arrows });
}

static void put_of_job(struct merge *m, char ph, uint64_t tid, const char *name,
		       int64_t at_ns, int64_t dur_ns, const struct str *args)
{
	static const struct trace_text scope = { "t", 1 };

	m->form->put(m->state,
		     &(struct trace_put){ .ph = ph,
					  .pid = JOB_PID,
					  .tid = tid,
					  .ts_ns = at_ns,
					  .dur_ns = dur_ns,
					  .name = { name, strlen(name) },
					  .scope = ph == 'i' ? scope
							     : (struct trace_text){ 0 },
					  .args = { args->s, args->len } });
}

static void on_joined(void *ctx, const struct trace_collective *c)
{
	struct merge *m = ctx;
	struct str args = { 0 };

	m->report->joined += c->n >= c->of && c->n > 1;
	m->report->partial += c->n < c->of;
	if (c->n < 2)
		return;
	str_addf(&args,
		 "{\"step\":%llu,\"ranks\":%u,\"of\":%u,\"first waited us\":%lld.%03u}",
		 (unsigned long long)c->step, c->n, c->of,
		 (long long)((c->last_ns - c->first_ns) / 1000),
		 (unsigned)((c->last_ns - c->first_ns) % 1000));
	put_of_job(m, 'i', JOB_LAST, m->source[c->came[c->last].source].label,
		   c->last_ns, 0, &args);
	str_free(&args);
	if (m->form->arrows)
		put_arrows(m, c);
}

/* Steps of several threads may overlap: what is drawn does not. */
static void on_step(void *ctx, const struct trace_step *s)
{
	struct merge *m = ctx;
	struct str args = { 0 };
	int64_t begin_ns = s->begin_ns;

	if (begin_ns < (int64_t)m->step_end_ns)
		begin_ns = (int64_t)m->step_end_ns;
	if (s->end_ns <= begin_ns)
		return;
	m->step_end_ns = (uint64_t)s->end_ns;
	str_addf(&args,
		 "{\"step\":%llu,\"collectives\":%llu,\"last to come to\":%llu,"
		 "\"others waited us\":%lld.%03u}",
		 (unsigned long long)s->step, (unsigned long long)s->collectives,
		 (unsigned long long)s->last, (long long)(s->waited_ns / 1000),
		 (unsigned)(s->waited_ns % 1000));
	put_of_job(m, 'X', JOB_STEPS, m->source[s->source].label, begin_ns,
		   s->end_ns - begin_ns, &args);
	str_free(&args);
}

/* ---- slices ---- */

/* Whether P, written after the others of L, is beside them or around them. */
static bool lane_takes(struct lane *l, int64_t begin, int64_t end)
{
	while (l->n && l->end[l->n - 1] > begin) {
		if (l->begin[l->n - 1] <= begin)
			return false;
		l->n--;
	}
	if (l->n == KEPT) {
		memmove(l->begin, l->begin + 1, sizeof l->begin - sizeof *l->begin);
		memmove(l->end, l->end + 1, sizeof l->end - sizeof *l->end);
		l->n--;
	}
	l->begin[l->n] = begin;
	l->end[l->n++] = end;
	return true;
}

/* libberth writes slices as they end.  One that would cross another of its track gets a
 * track beside it. */
static uint32_t lane_of(struct merge *m, uint32_t pid, uint32_t tid, int64_t begin,
			int64_t end)
{
	struct track *t = &m->track[merge_hash((uint64_t)pid << 32 | tid, 1) % TRACKS];
	uint32_t lane = 0;
	char name[48];

	if (t->pid != pid || t->tid != tid)
		*t = (struct track){ .pid = pid, .tid = tid };
	while (lane < LANES - 1 && !lane_takes(&t->lane[lane], begin, end))
		lane++;
	if (lane && track_is_new(m, pid, tid + (lane << LANE_BIT))) {
		snprintf(name, sizeof name, "row %u, beside it %u", tid - 1, lane);
		put_plain_name(m, 'T', pid, tid + (lane << LANE_BIT), name);
	}
	return tid + (lane << LANE_BIT);
}

static void put_own_slice(struct merge *m, struct trace_source *s, struct trace_put *p)
{
	struct trace_op *op = &p->op;

	m->report->slices++;
	s->slices++;
	if (p->dur_ns < 0 || p->dur_ns > INT64_MAX / 4)
		p->dur_ns = 0;
	if (s->kind == TRACE_BERTH) {
		p->tid = lane_of(m, p->pid, (uint32_t)p->tid, p->ts_ns,
				 p->ts_ns + p->dur_ns);
		take_op(op, &s->ev);
		if (op->is && op->of > 1)
			p->flow = trace_match_add(
				m->match, op, s->in->epoch,
				&(struct trace_came){ p->ts_ns, op->waited_ns,
						      (uint32_t)(s - m->source),
						      (uint32_t)p->tid },
				p->ts_ns + p->dur_ns);
	}
	m->form->put(m->state, p);
}

static void take_event(struct merge *m, struct trace_source *s)
{
	const struct trace_event *ev = &s->ev;
	struct trace_put p = { .ph = ev->ph == 'I' || ev->ph == 'R' ? 'i' : ev->ph,
			       .ts_ns = s->at_ns,
			       .dur_ns = ev->dur_ns,
			       .name = ev->name,
			       .cat = ev->cat,
			       .scope = ev->scope,
			       .bp = ev->bp,
			       .args = ev->args };

	if (!p.ph || !strchr("XBEiCbnestf", p.ph) ||
	    (strchr("stf", p.ph) && !m->form->arrows)) {
		m->report->left_out++;
		return;
	}
	p.pid = pid_of(m, s, ev);
	p.tid = tid_of(s, ev);
	p.id = merge_hash((uint64_t)(s - m->source) + 1, ev->id.n);
	for (size_t i = 0; i < ev->id.n; i++)
		p.id = merge_hash(p.id, (unsigned char)ev->id.s[i]);
	p.id >>= 12;
	if (!strchr("Cbne", p.ph))
		track_declare(m, ev, p.pid, (uint32_t)p.tid);
	if (p.ph == 'X')
		put_own_slice(m, s, &p);
	else
		m->form->put(m->state, &p);
	m->report->slices += p.ph == 'B';
	s->slices += p.ph == 'B';
}

/* ---- in the order of time ---- */

static void heap_down(struct merge *m, size_t i)
{
	struct trace_source *s = m->heap[i];

	for (;;) {
		size_t k = 2 * i + 1;

		if (k >= m->heaped)
			break;
		if (k + 1 < m->heaped && m->heap[k + 1]->at_ns < m->heap[k]->at_ns)
			k++;
		if (m->heap[k]->at_ns >= s->at_ns)
			break;
		m->heap[i] = m->heap[k];
		i = k;
	}
	m->heap[i] = s;
}

static int merge_events(struct merge *m, struct err *e)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->source[i].has)
			m->heap[m->heaped++] = &m->source[i];
	for (size_t i = m->heaped / 2; i-- > 0;)
		heap_down(m, i);
	while (m->heaped) {
		struct trace_source *s = m->heap[0];

		take_event(m, s);
		if (trace_source_next(s, on_named, m, e))
			return -1;
		if (!s->has)
			m->heap[0] = m->heap[--m->heaped];
		if (m->heaped)
			heap_down(m, 0);
	}
	return 0;
}

/* ---- the whole ---- */

/* All files of one job have its clock, and one of them says what time that was. */
static void merge_clocks(struct merge *m)
{
	int64_t first = INT64_MAX;

	for (size_t i = 0; i < m->n; i++) {
		struct trace_source *s = &m->source[i];

		for (size_t k = 0; s->job && k < i; k++)
			if (m->source[k].job && !strcmp(m->source[k].job, s->job)) {
				s->wall_ns = m->source[k].wall_ns;
				break;
			}
		s->at_ns = s->has ? trace_source_time(s, s->ev.ts_ns) : INT64_MAX;
		if (s->has && s->clock != TRACE_CLOCK_NONE && s->at_ns < first)
			first = s->at_ns;
	}
	m->first_ns = first == INT64_MAX ? 0 : first;
	for (size_t i = 0; i < m->n; i++) {
		struct trace_source *s = &m->source[i];

		if (!s->has || s->clock != TRACE_CLOCK_NONE)
			continue;
		m->report->unaligned++;
		s->wall_ns = m->first_ns - s->ev.ts_ns;
		s->at_ns = m->first_ns;
	}
}

/* Times of one host, or of one job with a known error, can be compared. */
static void merge_error(struct merge *m)
{
	const struct trace_source *first = m->source;

	for (size_t i = 0; i < m->n; i++) {
		const struct trace_source *s = &m->source[i];
		const bool here =
			first->host && s->host && !strcmp(first->host, s->host);

		if (s->in->pull && !s->slices)
			continue;
		if (s->in->end_ns && 2 * s->in->error_ns > m->report->error_ns)
			m->report->error_ns = 2 * s->in->error_ns;
		else if (!s->in->end_ns && !here && m->n > 1) {
			m->report->error_ns = -1;
			return;
		}
	}
}

static void merge_about(struct merge *m, struct str *about)
{
	static const char *const clocks[] = { /* enum trace_clock */
					      "not known: begins with the first",
					      "wall clock of its host", "of the job"
	};
	const struct trace_report *r = m->report;

	str_addf(about, "{\"collectives\":%llu,\"without all ranks\":%llu,",
		 (unsigned long long)r->joined, (unsigned long long)r->partial);
	if (r->error_ns < 0)
		str_add(about, "\"clock error\":\"not known\"");
	else
		str_addf(about, "\"clock error\":\"at most %lld us\"",
			 (long long)(r->error_ns + 999) / 1000);
	str_add(about, ",\"files\":[");
	for (size_t i = 0; i < m->n; i++) {
		const struct trace_source *s = &m->source[i];

		str_addf(about,
			 "%s{\"name\":\"%s\",\"clock\":\"%s\",\"slices\":%llu%s}",
			 i ? "," : "", s->label, clocks[s->clock],
			 (unsigned long long)s->slices,
			 trace_reader_cut(s->reader) ? ",\"ends early\":true" : "");
	}
	str_add(about, "]}");
}

static int merge_all(struct merge *m, struct err *e)
{
	static const struct trace_match_events events = { on_joined, on_step };
	struct str about = { 0 };

	put_plain_name(m, 'P', JOB_PID, 0, "job");
	put_plain_name(m, 'T', JOB_PID, JOB_STEPS, "critical rank of each step");
	put_plain_name(m, 'T', JOB_PID, JOB_LAST, "last to come");
	put_plain_name(m, 'T', JOB_PID, JOB_ABOUT, "about this file");
	m->pids = JOB_PID;
	for (size_t i = 0; i < m->n; i++)
		if (trace_source_begin(&m->source[i], on_named, m, e))
			return -1;
	merge_clocks(m);
	trace_match_open(&m->match, m->n, &events, m);
	if (merge_events(m, e))
		return -1;
	trace_match_end(m->match);
	for (size_t i = 0; i < m->n; i++)
		m->report->cut += trace_reader_cut(m->source[i].reader);
	merge_error(m);
	merge_about(m, &about);
	put_of_job(m, 'i', JOB_ABOUT, "clocks", m->first_ns, 0, &about);
	m->form->end(m->state, &(struct trace_text){ about.s, about.len });
	m->state = NULL;
	str_free(&about);
	return 0;
}

int trace_merge(const char *out, const struct trace_input *in, size_t n,
		struct trace_report *report, struct err *e)
{
	size_t each = EVENT_BYTES_ALL / (n ? n : 1);
	struct merge *m;
	int rc = 0;

	if (each > EVENT_BYTES_MOST)
		each = EVENT_BYTES_MOST;
	if (each < EVENT_BYTES_LEAST)
		each = EVENT_BYTES_LEAST;
	*report = (struct trace_report){ 0 };
	if (n > TRACE_FILES_MOST)
		return err_set(e, E_TRACE_WRITE, out, "more than 4096 files");
	m = xcalloc(1, sizeof *m);
	m->report = report;
	m->source = xcalloc(n, sizeof *m->source);
	m->heap = xcalloc(n, sizeof *m->heap);
	while (m->n < n && !rc) {
		rc = trace_source_open(&m->source[m->n], &in[m->n], each, e);
		m->n++;
	}
	if (!rc)
		rc = trace_file_open(&m->file, out, e);
	if (!rc) {
		m->form = trace_file_ends(out, ".json") ||
					  trace_file_ends(out, ".json.gz")
				  ? &trace_json
				  : &trace_perfetto;
		m->state = m->form->begin(m->file);
		rc = merge_all(m, e);
		if (m->state)
			m->form->end(m->state, &(struct trace_text){ "{}", 2 });
		rc = trace_file_close(m->file, rc ? NULL : e) || rc ? -1 : 0;
	}
	trace_match_free(m->match);
	for (size_t i = 0; i < m->n; i++)
		trace_source_free(&m->source[i]);
	free(m->source);
	free(m->heap);
	free(m);
	return rc;
}

void trace_report_print(struct str *line, const struct trace_report *r)
{
	str_addf(line, "%llu slices, %llu collectives joined",
		 (unsigned long long)r->slices, (unsigned long long)r->joined);
	if (r->partial)
		str_addf(line, ", %llu without all their ranks",
			 (unsigned long long)r->partial);
	if (r->left_out)
		str_addf(line, ", %llu events left out",
			 (unsigned long long)r->left_out);
	if (r->cut)
		str_addf(line, ", %u file%s without an end", r->cut,
			 str_plural(r->cut));
	if (r->unaligned)
		str_addf(line, ", %u file%s with an unknown clock", r->unaligned,
			 str_plural(r->unaligned));
	if (r->error_ns < 0)
		str_add(line, "; the error of the clocks is not known");
	else
		str_addf(line, "; clocks are wrong by at most %lld us",
			 (long long)(r->error_ns + 999) / 1000);
}

int trace_merge_files(const struct strv *files, struct err *e)
{
	struct trace_input *in;
	struct trace_report report;
	struct str line = { 0 };
	struct stat old;
	bool is_new;
	int rc;

	if (files->n < 2)
		return err_set(e, E_TRACE_FILES);
	/* `--trace-merge *.json` would replace the first one */
	is_new = stat(files->v[0], &old);
	if (!is_new && S_ISREG(old.st_mode) && old.st_size)
		return err_set(e, E_TRACE_EXISTS, files->v[0]);
	in = xcalloc(files->n - 1, sizeof *in);
	for (size_t i = 1; i < files->n; i++)
		in[i - 1].path = files->v[i];
	rc = trace_merge(files->v[0], in, files->n - 1, &report, e);
	if (!rc) {
		trace_report_print(&line, &report);
		printf("%s: %s\n", files->v[0], str_text(&line));
	} else if (is_new) {
		unlink(files->v[0]);
	}
	str_free(&line);
	free(in);
	return rc;
}
