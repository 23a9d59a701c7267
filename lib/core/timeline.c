#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/ours.h"
#include "lib/core/trace.h"

enum {
	BUFFER_BYTES = 65536,
	NAME_BYTES_MOST = 1024, /* of a row; what is the same so far shares it */
	ROWS_MOST = 65536,      /* further names share one */
	LINE_BYTES = 256 + 6 * NAME_BYTES_MOST
};

/* One for each name; the row with number I + FIRST_ROW. */
struct row {
	char *name;
	uint32_t hash;
};
enum { ROW_UNNAMED, ROW_OTHERS, FIRST_ROW };

static struct {
	pthread_mutex_t lock;
	int fd, why;  /* errno of the first write that failed */
	bool parents; /* this process was forked while its parent wrote one */
	unsigned rank;
	int64_t offset;
	char *path;
	size_t used;
	struct row *row;
	uint32_t *slot; /* of hashes: number of a row + 1, or 0; twice ROOM of them */
	size_t nrows, room;
	char buffer[BUFFER_BYTES];
} line = { .lock = PTHREAD_MUTEX_INITIALIZER };

_Atomic int timeline_runs;

/* ---- writing ---- */

static void timeline_flush(void)
{
	size_t done = 0;

	while (done < line.used && !line.why) {
		ssize_t n = write(line.fd, line.buffer + done, line.used - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			line.why = errno;
		else
			done += (size_t)n;
	}
	line.used = 0;
}

/* Whole events only, so that a file that is cut ends with one. */
static void timeline_add(const char *text, size_t bytes)
{
	if (line.used + bytes > BUFFER_BYTES)
		timeline_flush();
	memcpy(line.buffer + line.used, text, bytes);
	line.used += bytes;
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

static void name_row(size_t row, const char *name)
{
	char text[LINE_BYTES];
	size_t n = (size_t)snprintf(text, 256,
				    ",\n{\"name\":\"thread_name\",\"ph\":\"M\","
				    "\"pid\":%u,\"tid\":%zu,\"args\":{\"name\":\"",
				    line.rank, row);

	n += timeline_quote(text + n, name);
	n += (size_t)snprintf(text + n, 4, "\"}}");
	timeline_add(text, n);
}

static void timeline_begin(void)
{
	char text[256];
	int n = snprintf(text, sizeof text,
			 "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,"
			 "\"args\":{\"name\":\"rank %u\"}}",
			 line.rank, line.rank);

	timeline_add(text, (size_t)n);
	name_row(ROW_UNNAMED, "without a name");
	name_row(ROW_OTHERS, "others");
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
static uint32_t *slot_of(const char *name, size_t bytes, uint32_t hash)
{
	size_t mask = 2 * line.room - 1;

	for (size_t i = hash & mask;; i = (i + 1) & mask) {
		const struct row *r;

		if (!line.slot[i])
			return line.slot + i;
		r = &line.row[line.slot[i] - 1];
		if (r->hash == hash && strlen(r->name) == bytes &&
		    !memcmp(r->name, name, bytes))
			return line.slot + i;
	}
}

static bool timeline_make_room(void)
{
	size_t room = line.room ? 2 * line.room : 64;
	uint32_t *slot;
	struct row *row;

	if (line.nrows < line.room)
		return true;
	if (room > ROWS_MOST)
		return false;
	row = realloc(line.row, room * sizeof *row);
	if (row)
		line.row = row;
	slot = row ? calloc(2 * room, sizeof *slot) : NULL;
	if (!slot)
		return false;
	free(line.slot);
	line.slot = slot;
	line.room = room;
	for (size_t i = 0; i < line.nrows; i++)
		*slot_of(row[i].name, strlen(row[i].name), row[i].hash) =
			(uint32_t)i + 1;
	return true;
}

static size_t row_of(const char *name)
{
	size_t bytes = name ? strnlen(name, NAME_BYTES_MOST) : 0;
	uint32_t hash = hash_of(name, bytes), *slot;
	struct row *r;

	if (!bytes)
		return ROW_UNNAMED;
	if (line.room && *(slot = slot_of(name, bytes, hash)))
		return *slot - 1 + FIRST_ROW;
	if (!timeline_make_room())
		return ROW_OTHERS;
	r = line.row + line.nrows;
	*r = (struct row){ strndup(name, bytes), hash };
	if (!r->name)
		return ROW_OTHERS;
	*slot_of(name, bytes, hash) = (uint32_t)++line.nrows;
	name_row(line.nrows - 1 + FIRST_ROW, r->name);
	return line.nrows - 1 + FIRST_ROW;
}

/* ---- the whole ---- */

static void timeline_forget(void)
{
	for (size_t i = 0; i < line.nrows; i++)
		free(line.row[i].name);
	free(line.row);
	free(line.slot);
	free(line.path);
	line.row = NULL;
	line.slot = NULL;
	line.path = NULL;
	line.nrows = line.room = 0;
}

static berth_result timeline_start_file(const char *path, unsigned rank, int64_t offset,
					char *why, size_t why_bytes)
{
	char no[128];
	int n;

	if (line.parents) { /* perhaps to the same path */
		snprintf(why, why_bytes, "this process is a child of rank %u",
			 line.rank);
		return BERTH_STATE;
	}
	if (line.path) {
		snprintf(why, why_bytes, "a timeline is being written, \"%s\"",
			 line.path);
		return BERTH_STATE;
	}
	/* rank 0's has the plain name, as Horovod's one file */
	n = rank ? asprintf(&line.path, "%s.%u", path, rank)
		 : asprintf(&line.path, "%s", path);
	if (n < 0) {
		line.path = NULL;
		snprintf(why, why_bytes, "out of memory");
		return BERTH_MEMORY;
	}
	line.fd = ours_create(line.path, no, sizeof no);
	if (line.fd < 0) {
		snprintf(why, why_bytes, "the timeline \"%s\" can't be written: %s",
			 line.path, no);
		timeline_forget();
		return BERTH_SYSTEM;
	}
	line.rank = rank;
	line.offset = offset;
	line.why = 0;
	timeline_begin();
	return BERTH_OK;
}

/* Another thread may have been at it: only the descriptor is looked at. */
void timeline_in_child(void)
{
	int fd = line.path ? line.fd : -1;

	line.parents |= line.path != NULL;
	atomic_store(&timeline_runs, 0);
	pthread_mutex_init(&line.lock, NULL);
	line.path = NULL;
	line.row = NULL;
	line.slot = NULL;
	line.nrows = line.room = line.used = 0;
	if (fd >= 0)
		close(fd);
}

berth_result timeline_start(const char *path, unsigned rank, int64_t clock_offset_ns,
			    char *why, size_t why_bytes)
{
	berth_result rc;

	pthread_mutex_lock(&line.lock);
	rc = timeline_start_file(path, rank, clock_offset_ns, why, why_bytes);
	if (!rc)
		atomic_store(&timeline_runs, 1);
	pthread_mutex_unlock(&line.lock);
	return rc;
}

berth_result timeline_stop(char *why, size_t why_bytes)
{
	berth_result rc = BERTH_STATE;
	int fd;

	snprintf(why, why_bytes, "no timeline is written");
	pthread_mutex_lock(&line.lock);
	if (line.path) {
		rc = BERTH_OK;
		atomic_store(&timeline_runs, 0);
		timeline_add("\n]\n", 3);
		timeline_flush();
		fd = line.fd;
		line.fd = -1; /* a child that is forked from here on closes another */
		if (close(fd) && !line.why)
			line.why = errno;
		if (line.why) {
			snprintf(why, why_bytes,
				 "the timeline \"%s\" could not be written: %s",
				 line.path, strerror(line.why));
			rc = BERTH_SYSTEM;
		}
		timeline_forget();
	}
	pthread_mutex_unlock(&line.lock);
	return rc;
}

static int put_us(char *to, size_t bytes, int64_t ns)
{
	uint64_t n = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

	return snprintf(to, bytes, "%s%" PRIu64 ".%03u", ns < 0 ? "-" : "", n / 1000,
			(unsigned)(n % 1000));
}

void timeline_event(const char *name, const char *what, uint64_t begun_ns,
		    uint64_t ended_ns)
{
	char text[256], at[32], took[32];
	int n;

	if (!atomic_load_explicit(&timeline_runs, memory_order_relaxed))
		return;
	put_us(took, sizeof took,
	       ended_ns > begun_ns ? (int64_t)(ended_ns - begun_ns) : 0);
	pthread_mutex_lock(&line.lock);
	if (line.path && !line.why) {
		put_us(at, sizeof at, (int64_t)begun_ns + line.offset);
		n = snprintf(text, sizeof text,
			     ",\n{\"name\":\"%.64s\",\"ph\":\"X\",\"pid\":%u,\"tid\":"
			     "%zu,\"ts\":%s,\"dur\":%s}",
			     what, line.rank, row_of(name), at, took);
		timeline_add(text, (size_t)n);
	}
	pthread_mutex_unlock(&line.lock);
}
