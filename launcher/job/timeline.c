#include "launcher/job/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "launcher/trace/trace_merge.h"

/* The bytes of one life of a rank, or of runner. */
struct part {
	struct timeline *of;
	struct trace_input in; /* its strings are ours */
	uint32_t rank;
	uint64_t bytes;
	struct chunk {
		uint64_t at, n; /* in the file */
	} * v;
	size_t n;
	size_t next; /* chunk that is read, from DONE on */
	uint64_t done;
};

struct timeline {
	char *file;
	int fd;    /* what has come */
	int error; /* errno of the first write to it that failed */
	uint64_t end;
	bool grew;
	struct part **part; /* part[0]: runner */
	size_t n, room;
	struct part **now; /* of each rank; NULL: none yet */
	size_t ranks;
};

/* ---- parts ---- */

static struct part *part_new(struct timeline *t, const char *name, const char *host,
			     uint32_t epoch)
{
	struct part *p = xcalloc(1, sizeof *p);

	if (t->n == t->room) {
		t->room = t->room ? 2 * t->room : 64;
		t->part = xreallocarray(t->part, t->room, sizeof(struct part *));
	}
	p->of = t;
	p->in = (struct trace_input){ .path = xstrdup(name),
				      .host = host ? xstrdup(host) : NULL,
				      .ctx = p,
				      .epoch = epoch };
	t->part[t->n++] = p;
	return p;
}

/* The disk may be full: the rest of the job's timeline is lost then. */
static void part_add(struct part *p, const void *data, size_t n)
{
	struct timeline *t = p->of;
	ssize_t done = t->error ? -1 : pwrite(t->fd, data, n, (off_t)t->end);

	t->grew = true;
	if (done != (ssize_t)n) {
		if (!t->error)
			t->error = done < 0 ? errno : ENOSPC;
		return;
	}
	if (p->n && p->v[p->n - 1].at + p->v[p->n - 1].n == t->end) {
		p->v[p->n - 1].n += n;
	} else {
		if (!(p->n & (p->n - 1))) /* a power of two: all have a place */
			p->v = xreallocarray(p->v, p->n ? 2 * p->n : 1, sizeof *p->v);
		p->v[p->n++] = (struct chunk){ t->end, n };
	}
	t->end += n;
}

static ssize_t part_pull(void *ctx, void *to, size_t n)
{
	struct part *p = ctx;
	const struct chunk *c;
	ssize_t got;

	if (p->next == p->n)
		return 0;
	c = &p->v[p->next];
	if (n > c->n - p->done)
		n = c->n - p->done;
	got = pread(p->of->fd, to, n, (off_t)(c->at + p->done));
	if (got > 0)
		p->done += (uint64_t)got;
	if (p->done == c->n) {
		p->next++;
		p->done = 0;
	}
	return got;
}

/* ---- the job ---- */

/* The head of runner's own part: its clock is the job's. */
static void part_describe(struct part *p, const char *job)
{
	struct str s = { 0 };
	struct timespec wall;
	const uint64_t now = clock_ns();

	clock_gettime(CLOCK_REALTIME, &wall);
	str_addf(&s,
		 "[\n{\"name\":\"berth_timeline\",\"ph\":\"M\",\"pid\":0,\"args\":{"
		 "\"wall_ns\":%llu,\"job\":\"%s\"}},\n"
		 "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{"
		 "\"name\":\"events\"}}",
		 (unsigned long long)wall.tv_sec * 1000000000ull +
			 (unsigned long long)wall.tv_nsec - now,
		 job);
	part_add(p, s.s, s.len);
	str_free(&s);
}

/* A line of --events. */
static void timeline_line(void *timeline, const char *line, size_t n)
{
	const struct trace_text object = { line, n };
	struct timeline *t = timeline;
	struct trace_text key, value;
	struct str s = { 0 };
	const uint64_t now = clock_ns();

	while (n && line[n - 1] == '\n')
		n--;
	for (size_t at = 0; trace_member(&object, &at, &key, &value);)
		if (trace_is(&key, "event"))
			str_addf(&s,
				 ",\n{\"name\":\"%.*s\",\"ph\":\"i\",\"s\":\"t\","
				 "\"pid\":0,"
				 "\"tid\":0,\"ts\":%llu.%03u,\"args\":",
				 (int)value.n, value.s, (unsigned long long)now / 1000,
				 (unsigned)(now % 1000));
	if (s.len) {
		str_addn(&s, line, n);
		str_add(&s, "}");
		part_add(t->part[0], s.s, s.len);
	}
	str_free(&s);
}

int timeline_open(struct timeline **out, const char *file, struct events **ev,
		  const char *job, struct err *e)
{
	struct trace_file *f;
	struct timeline *t;
	int fd;

	*out = NULL;
	if (!file)
		return 0;
	if (trace_file_open(&f, file, e) || trace_file_close(f, e))
		return -1;
	fd = file_nameless();
	if (fd < 0)
		return err_set(e, E_TRACE_WRITE, file_tmp_folder(), strerror(errno));
	t = xcalloc(1, sizeof *t);
	t->fd = fd;
	t->file = xstrdup(file);
	part_describe(part_new(t, "runner", NULL, 0), job);
	t->part[0]->in.end_ns = 1; /* its clock is right */
	events_tap(ev, job, timeline_line, t);
	*out = t;
	return 0;
}

void timeline_begin(struct timeline *t, uint32_t epoch, uint32_t rank,
		    const struct host *h)
{
	char name[32];

	if (!t)
		return;
	if (rank >= t->ranks) {
		t->now = xreallocarray(t->now, rank + 1, sizeof(struct part *));
		while (t->ranks <= rank)
			t->now[t->ranks++] = NULL;
	}
	snprintf(name, sizeof name, "rank %u", rank);
	t->now[rank] = part_new(t, name, h->name, epoch);
	t->now[rank]->rank = rank;
}

bool timeline_data(struct timeline *t, uint32_t rank, const struct host *h,
		   const void *data, size_t n)
{
	const uint64_t now = clock_ns();
	struct part *p;

	if (!t || rank >= t->ranks || !t->now[rank])
		return false;
	p = t->now[rank];
	p->bytes += n;
	if (p->bytes > WIRE_TIMELINE_MAX + WIRE_DATA_MAX)
		return false;
	part_add(p, data, n);
	p->in.end_ns = (int64_t)now;
	if (!h->local) {
		p->in.end_offset_ns = -h->clock_offset_ns;
		p->in.error_ns = (int64_t)(h->clock_error_ns +
					   (now - h->clock_sampled_ns) / 10000);
	}
	return true;
}

/* One value of a counter of runner's. */
static void put_counter_of(struct str *s, const char *name, uint32_t rank,
			   int64_t at_ns, float value)
{
	str_addf(s,
		 ",\n{\"name\":\"rank %u: %s\",\"ph\":\"C\",\"pid\":0,\"tid\":0,"
		 "\"ts\":%lld.%03d,\"args\":{\"now\":%.3f}}",
		 rank, name, (long long)(at_ns / 1000), (int)(at_ns % 1000),
		 (double)value);
}

void timeline_sample(struct timeline *t, uint32_t rank, int64_t at_ns,
		     const struct point *p)
{
	struct str s = { 0 };

	if (!t || p->span_s <= 0)
		return;
	put_counter_of(&s, "CPUs", rank, at_ns, p->cpu + p->children);
	put_counter_of(&s, "part of time waiting for ranks", rank, at_ns, p->blocked);
	put_counter_of(&s, "memory, GiB", rank, at_ns, p->resident_gib);
	if (p->gpu >= 0)
		put_counter_of(&s, "GPU busy", rank, at_ns, p->gpu);
	part_add(t->part[0], s.s, s.len);
	str_free(&s);
}

bool timeline_grows(struct timeline *t)
{
	const bool grew = t && t->grew;

	if (t)
		t->grew = false;
	return grew;
}

/* Runner first, then the ranks in their order, then their lives. */
static int by_rank(const void *left, const void *right)
{
	const struct part *a = *(struct part *const *)left;
	const struct part *b = *(struct part *const *)right;

	if (a->in.host && b->in.host && a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (!a->in.host != !b->in.host)
		return a->in.host ? 1 : -1;
	return a->in.epoch < b->in.epoch ? -1 : a->in.epoch > b->in.epoch;
}

int timeline_write(struct timeline *t, struct str *line, struct err *e)
{
	struct trace_input *in = xcalloc(t->n, sizeof *in);
	struct trace_report report;
	int rc;

	part_add(t->part[0], "\n]\n", 3);
	qsort(t->part, t->n, sizeof(struct part *), by_rank);
	for (size_t i = 0; i < t->n; i++) {
		in[i] = t->part[i]->in;
		in[i].pull = part_pull;
	}
	rc = trace_merge(t->file, in, t->n, &report, e);
	free(in);
	if (rc)
		return -1;
	str_addf(line, "%s: ", t->file);
	trace_report_print(line, &report);
	if (t->error)
		str_addf(line, "; a part is lost: %s: %s", file_tmp_folder(),
			 strerror(t->error));
	return 0;
}

void timeline_free(struct timeline *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n; i++) {
		free((char *)t->part[i]->in.path);
		free((char *)t->part[i]->in.host);
		free(t->part[i]->v);
		free(t->part[i]);
	}
	free(t->part);
	free(t->now);
	free(t->file);
	close(t->fd);
	free(t);
}
