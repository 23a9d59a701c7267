#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lib/base/ours.h"
#include "lib/core/trace.h"

enum {
	BUFFER_BYTES = 65536,
	NAME_BYTES_MOST = 1024, /* of a row; what is the same so far shares it */
	ROWS_MOST = 65536,      /* further names share one */
	LINE_BYTES = 256 + 6 * NAME_BYTES_MOST,
	SEEN = 4096,  /* operations of a step that are told apart */
	PROBES = 8,   /* places of one of them */
	FLUSH_MS = 5, /* of the job's: a rank that is killed lacks no more */
	JOB_BYTES_MOST = 256 << 20
};

/* One for each name; the row with number I + FIRST_ROW. */
struct row {
	char *name;
	uint32_t hash;
};
enum { ROW_UNNAMED, ROW_OTHERS, FIRST_ROW };

struct line {
	int fd, why; /* errno of the first write that failed */
	unsigned rank;
	int64_t offset;
	char *path;           /* NULL: none is written */
	uint64_t first, last; /* steps */
	uint64_t written;     /* bytes of the file */
	uint64_t flushed_ns;
	size_t used;
	struct row *row;
	uint32_t *slot; /* of hashes: number of a row + 1, or 0; twice ROOM of them */
	size_t nrows, room;
	char buffer[BUFFER_BYTES];
};

/* The steps of this process: one begins with an operation that the step before it had,
 * too.  SEEN: the step in which an operation, by its hash, was last. */
static struct {
	uint64_t now;
	struct {
		uint64_t hash, step;
	} seen[SEEN];
} steps;

static pthread_mutex_t timeline_lock = PTHREAD_MUTEX_INITIALIZER;
static struct line lines[TIMELINES];
static bool parents; /* this process was forked while its parent wrote one */

_Atomic int timeline_runs;

/* ---- writing ---- */

static void timeline_flush(struct line *l)
{
	size_t done = 0;

	while (done < l->used && !l->why) {
		ssize_t n = write(l->fd, l->buffer + done, l->used - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			l->why = errno;
		else
			done += (size_t)n;
	}
	l->used = 0;
}

/* Whole events only, so that a file that is cut ends with one. */
static void timeline_add(struct line *l, const char *text, size_t bytes)
{
	if (l->used + bytes > BUFFER_BYTES)
		timeline_flush(l);
	memcpy(l->buffer + l->used, text, bytes);
	l->used += bytes;
	l->written += bytes;
}

/* Bytes of the UTF-8 sequence at S, which ends with a NUL; 0: it is none. */
static size_t timeline_utf8(const unsigned char *s)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : 4;
	uint32_t code = *s & (0xffu >> (n + 1));

	if (n == 1 || *s >> 3 > 30 || *s < 0xc0)
		return n == 1;
	for (size_t i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	return code < least[n] || code > 0x10ffff || code >> 11 == 27 ? 0 : n;
}

/* NAME as a text of JSON; TO has room for six times its bytes, and a NUL. */
static size_t timeline_quote(char *to, const char *name)
{
	const unsigned char *s = (const unsigned char *)name;
	char *t = to;

	while (*s) {
		size_t n = timeline_utf8(s);

		if (!n || *s < ' ' || *s == 127) {
			t += snprintf(t, 7, "\\u%04x", n ? *s : 0xfffdu);
			s++;
			continue;
		}
		if (*s == '"' || *s == '\\')
			*t++ = '\\';
		memcpy(t, s, n);
		t += n;
		s += n;
	}
	return (size_t)(t - to);
}

static void name_row(struct line *l, size_t row, const char *name)
{
	char text[LINE_BYTES];
	size_t n = (size_t)snprintf(text, 256,
				    ",\n{\"name\":\"thread_name\",\"ph\":\"M\","
				    "\"pid\":%u,\"tid\":%zu,\"args\":{\"name\":\"",
				    l->rank, row);

	n += timeline_quote(text + n, name);
	n += (size_t)snprintf(text + n, 4, "\"}}");
	timeline_add(l, text, n);
}

/* The file about itself: runner --trace-merge reads it. */
static void timeline_describe(struct line *l)
{
	const char *job = getenv("BERTH_JOB");
	char text[LINE_BYTES];
	struct utsname own;
	uint64_t now = clock_ns(), here = now + (uint64_t)l->offset;
	size_t n;

	n = (size_t)snprintf(text, 256,
			     "[\n{\"name\":\"berth_timeline\",\"ph\":\"M\",\"pid\":%u,"
			     "\"args\":{\"rank\":%u,\"wall_ns\":%" PRIu64
			     ",\"begun_ns\":%" PRIu64 ",\"offset_ns\":%" PRIu64
			     ",\"host\":\"",
			     l->rank, l->rank, clock_read(CLOCK_REALTIME) - here, here,
			     (uint64_t)l->offset);
	if (!uname(&own))
		n += timeline_quote(text + n, own.nodename);
	n += (size_t)snprintf(text + n, 16, "\",\"job\":\"");
	if (job && strlen(job) <= 64)
		n += timeline_quote(text + n, job);
	n += (size_t)snprintf(text + n, 8, "\"}},\n");
	timeline_add(l, text, n);
}

static void timeline_begin(struct line *l)
{
	char text[256];
	int n = snprintf(text, sizeof text,
			 "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,"
			 "\"args\":{\"name\":\"rank %u\"}}",
			 l->rank, l->rank);

	timeline_describe(l);
	timeline_add(l, text, (size_t)n);
	name_row(l, ROW_UNNAMED, "without a name");
	name_row(l, ROW_OTHERS, "others");
}

/* ---- rows ---- */

static uint32_t hash_of(const char *name, size_t bytes)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ (unsigned char)name[i]) * 16777619u;
	return h;
}

/* Where the row of that name is noted, or would be. */
static uint32_t *slot_of(struct line *l, const char *name, size_t bytes, uint32_t hash)
{
	size_t mask = 2 * l->room - 1;

	for (size_t i = hash & mask;; i = (i + 1) & mask) {
		const struct row *r;

		if (!l->slot[i])
			return l->slot + i;
		r = &l->row[l->slot[i] - 1];
		if (r->hash == hash && strlen(r->name) == bytes &&
		    !memcmp(r->name, name, bytes))
			return l->slot + i;
	}
}

static bool timeline_make_room(struct line *l)
{
	size_t room = l->room ? 2 * l->room : 64;
	uint32_t *slot;
	struct row *row;

	if (l->nrows < l->room)
		return true;
	if (room > ROWS_MOST)
		return false;
	row = realloc(l->row, room * sizeof *row);
	if (row)
		l->row = row;
	slot = row ? calloc(2 * room, sizeof *slot) : NULL;
	if (!slot)
		return false;
	free(l->slot);
	l->slot = slot;
	l->room = room;
	for (size_t i = 0; i < l->nrows; i++)
		*slot_of(l, row[i].name, strlen(row[i].name), row[i].hash) =
			(uint32_t)i + 1;
	return true;
}

static size_t row_of(struct line *l, const char *name)
{
	size_t bytes = name ? strnlen(name, NAME_BYTES_MOST) : 0;
	uint32_t hash = hash_of(name, bytes), *slot;
	struct row *r;

	if (!bytes)
		return ROW_UNNAMED;
	if (l->room && *(slot = slot_of(l, name, bytes, hash)))
		return *slot - 1 + FIRST_ROW;
	if (!timeline_make_room(l))
		return ROW_OTHERS;
	r = l->row + l->nrows;
	*r = (struct row){ strndup(name, bytes), hash };
	if (!r->name)
		return ROW_OTHERS;
	*slot_of(l, name, bytes, hash) = (uint32_t)++l->nrows;
	name_row(l, l->nrows - 1 + FIRST_ROW, r->name);
	return l->nrows - 1 + FIRST_ROW;
}

/* ---- the whole ---- */

static void timeline_forget(struct line *l)
{
	for (size_t i = 0; i < l->nrows; i++)
		free(l->row[i].name);
	free(l->row);
	free(l->slot);
	free(l->path);
	l->row = NULL;
	l->slot = NULL;
	l->path = NULL;
	l->nrows = l->room = 0;
}

static berth_result timeline_start_file(struct line *l, const char *path, unsigned rank,
					char *why, size_t why_bytes)
{
	char no[128];
	int n;

	if (parents) { /* perhaps to the same path */
		snprintf(why, why_bytes, "this process is a child of rank %u", l->rank);
		return BERTH_STATE;
	}
	if (l->path) {
		snprintf(why, why_bytes, "a timeline is being written, \"%s\"",
			 l->path);
		return BERTH_STATE;
	}
	/* rank 0's has the plain name, as Horovod's one file */
	n = rank ? asprintf(&l->path, "%s.%u", path, rank)
		 : asprintf(&l->path, "%s", path);
	if (n < 0) {
		l->path = NULL;
		snprintf(why, why_bytes, "out of memory");
		return BERTH_MEMORY;
	}
	l->fd = ours_create(l->path, no, sizeof no);
	if (l->fd < 0) {
		snprintf(why, why_bytes, "the timeline \"%s\" can't be written: %s",
			 l->path, no);
		timeline_forget(l);
		return BERTH_SYSTEM;
	}
	return BERTH_OK;
}

/* Its first event.  The lock is held. */
static void timeline_go(enum timeline_of which, unsigned rank, int64_t offset)
{
	struct line *l = &lines[which];

	l->rank = rank;
	l->offset = offset;
	l->why = 0;
	l->written = 0;
	timeline_begin(l);
	atomic_fetch_or(&timeline_runs, 1 << which);
}

/* Another thread may have been at it: only the descriptor is looked at. */
void timeline_in_child(void)
{
	atomic_store(&timeline_runs, 0);
	pthread_mutex_init(&timeline_lock, NULL);
	for (int i = 0; i < TIMELINES; i++) {
		struct line *l = &lines[i];
		int fd = l->path ? l->fd : -1;

		parents |= l->path != NULL;
		l->path = NULL;
		l->row = NULL;
		l->slot = NULL;
		l->nrows = l->room = l->used = 0;
		if (fd >= 0)
			close(fd);
	}
}

berth_result timeline_start(const char *path, unsigned rank, int64_t clock_offset_ns,
			    char *why, size_t why_bytes)
{
	berth_result rc;

	pthread_mutex_lock(&timeline_lock);
	rc = timeline_start_file(&lines[TIMELINE_CALLER], path, rank, why, why_bytes);
	if (!rc)
		timeline_go(TIMELINE_CALLER, rank, clock_offset_ns);
	pthread_mutex_unlock(&timeline_lock);
	return rc;
}

/* The file that the agent made: it has no name, so that nothing is left of it. */
static int job_open(const char *path)
{
	const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	    st.st_uid == geteuid() && !st.st_nlink)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

bool timeline_start_job(const char *given, unsigned rank, int64_t clock_offset_ns)
{
	struct line *l = &lines[TIMELINE_JOB];
	uint64_t first, last;
	int at = 0;

	if (sscanf(given, "%" SCNu64 "-%" SCNu64 ":%n", &first, &last, &at) != 2 || !at)
		return false;
	pthread_mutex_lock(&timeline_lock);
	if (!l->path && !parents && (l->fd = job_open(given + at)) >= 0) {
		l->path = strdup(given + at);
		if (!l->path)
			close(l->fd);
	}
	if (l->path && !(timeline_runs & 1 << TIMELINE_JOB)) {
		l->first = first;
		l->last = last;
		timeline_go(TIMELINE_JOB, rank, clock_offset_ns);
		timeline_flush(l);
	}
	at = l->path != NULL;
	pthread_mutex_unlock(&timeline_lock);
	return at;
}

/* The lock is held. */
static berth_result timeline_end(enum timeline_of which, char *why, size_t why_bytes)
{
	struct line *l = &lines[which];
	berth_result rc = BERTH_OK;
	int fd;

	atomic_fetch_and(&timeline_runs, ~(1 << which));
	timeline_add(l, "\n]\n", 3);
	timeline_flush(l);
	fd = l->fd;
	l->fd = -1; /* a child that is forked from here on closes another */
	if (close(fd) && !l->why)
		l->why = errno;
	if (l->why) {
		snprintf(why, why_bytes, "the timeline \"%s\" could not be written: %s",
			 l->path, strerror(l->why));
		rc = BERTH_SYSTEM;
	}
	timeline_forget(l);
	return rc;
}

berth_result timeline_stop(enum timeline_of which, char *why, size_t why_bytes)
{
	berth_result rc = BERTH_STATE;

	snprintf(why, why_bytes, "no timeline is written");
	pthread_mutex_lock(&timeline_lock);
	if (lines[which].path)
		rc = timeline_end(which, why, why_bytes);
	pthread_mutex_unlock(&timeline_lock);
	return rc;
}

/* ---- events ---- */

/* The step of an operation that begins now, and is known by HASH. */
static uint64_t step_of(uint64_t hash)
{
	size_t i = hash % SEEN, most = i + PROBES, free = SEEN;

	steps.now += !steps.now;
	for (; i < most; i++) {
		const size_t at = i % SEEN;

		if (steps.seen[at].step && steps.seen[at].hash == hash) {
			steps.now += steps.seen[at].step == steps.now;
			steps.seen[at].step = steps.now;
			return steps.now;
		}
		if (free == SEEN && steps.seen[at].step < steps.now)
			free = at;
	}
	if (free < SEEN) {
		steps.seen[free].hash = hash;
		steps.seen[free].step = steps.now;
	}
	return steps.now;
}

static int put_us(char *to, size_t bytes, int64_t ns)
{
	uint64_t n = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

	return snprintf(to, bytes, "%s%" PRIu64 ".%03u", ns < 0 ? "-" : "", n / 1000,
			(unsigned)(n % 1000));
}

static void put_event(struct line *l, const char *name, const char *what,
		      uint64_t begun_ns, uint64_t ended_ns, const char *args)
{
	char text[512], at[32], took[32];
	int n;

	put_us(took, sizeof took,
	       ended_ns > begun_ns ? (int64_t)(ended_ns - begun_ns) : 0);
	put_us(at, sizeof at, (int64_t)begun_ns + l->offset);
	n = snprintf(text, sizeof text,
		     ",\n{\"name\":\"%.64s\",\"ph\":\"X\",\"pid\":%u,\"tid\":"
		     "%zu,\"ts\":%s,\"dur\":%s%s}",
		     what, l->rank, row_of(l, name), at, took, args);
	timeline_add(l, text, (size_t)n);
}

/* The job's has its steps alone, and ends behind them, or when it is too large. */
static bool job_wants(struct line *l)
{
	char why[128];

	if (steps.now > l->last || l->written > JOB_BYTES_MOST) {
		timeline_end(TIMELINE_JOB, why, sizeof why);
		return false;
	}
	return steps.now >= l->first;
}

static void put_in_all(const char *name, const char *what, uint64_t begun_ns,
		       uint64_t ended_ns, const char *args)
{
	for (int i = 0; i < TIMELINES; i++) {
		struct line *l = &lines[i];

		if (!l->path || l->why || (i == TIMELINE_JOB && !job_wants(l)))
			continue;
		put_event(l, name, what, begun_ns, ended_ns, args);
		if (i == TIMELINE_JOB &&
		    ended_ns - l->flushed_ns > FLUSH_MS * 1000000ull) {
			timeline_flush(l);
			l->flushed_ns = ended_ns;
		}
	}
}

void timeline_event(const char *name, const char *what, uint64_t begun_ns,
		    uint64_t ended_ns)
{
	if (!atomic_load_explicit(&timeline_runs, memory_order_relaxed))
		return;
	pthread_mutex_lock(&timeline_lock);
	put_in_all(name, what, begun_ns, ended_ns, "");
	pthread_mutex_unlock(&timeline_lock);
}

void timeline_operation(const char *name, const char *what, uint64_t begun_ns,
			uint64_t ended_ns, const struct timeline_op *op)
{
	const size_t bytes = name ? strnlen(name, NAME_BYTES_MOST) : 0;
	const uint64_t hash = bytes ? hash_of(name, bytes) : op->like + 1;
	char args[256], waited[32];

	if (!atomic_load_explicit(&timeline_runs, memory_order_relaxed))
		return;
	put_us(waited, sizeof waited,
	       op->called_ns && op->called_ns < begun_ns
		       ? (int64_t)(begun_ns - op->called_ns)
		       : 0);
	pthread_mutex_lock(&timeline_lock);
	snprintf(args, sizeof args,
		 ",\"args\":{\"set\":%u,\"seq\":%u,\"part\":%u,\"of\":%u,"
		 "\"world\":%" PRIu64 ",\"step\":%" PRIu64
		 ",\"waited\":%s,\"bytes\":%" PRIu64 "}",
		 op->set, op->seq, op->part, op->of, op->world,
		 step_of((hash ^ (uint64_t)op->set << 32) * 0x9e3779b97f4a7c15u >> 8),
		 waited, op->bytes);
	put_in_all(name, what, begun_ns, ended_ns, args);
	pthread_mutex_unlock(&timeline_lock);
}
