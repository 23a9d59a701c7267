#include "launcher/output.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launcher/options.h"
#include "launcher/sink.h"

enum {
	LINE_MAX_BYTES = 65536, /* a longer line is passed on in pieces */
	PUSH_BYTES = 131072,    /* enough for one write(2) */
	DEBT_BYTES = 16384,     /* returned at once: small against the least window */
	TAIL_BYTES = 4096,
	TAIL_LINES = 10
};

/* Bytes of a host that have left once everything up to mark was written. */
struct debt {
	uint64_t mark;
	uint32_t host;
	size_t n;
};

/* One place where lines go: stdout, stderr, or both where they are the same file. */
struct lane {
	struct output *o;
	struct sink sink;
	uint64_t queued, written;
	struct debt *debt; /* ring: debt[first..first+n) of cap */
	size_t first, n, cap;
	int64_t open_line; /* stream whose unfinished line came last, -1: none */
};

struct stream {
	struct str line; /* bytes after the last whole line */
	char label[32];  /* made at the first line */
	size_t label_bytes;
	int fd; /* file, -1: none open */
};

struct output {
	struct lane lane[2], *err_lane;
	struct stream *stream; /* [2 * rank + (stream - 1)] */
	struct str *tail;      /* [rank]: stderr */
	uint64_t *spoke_ms;    /* [rank] */
	uint32_t np;
	bool tag, raw, timestamps, muted, disk_failed, keep_fds;
	const struct request *request;
	int rank_digits;
	char stamp[32];
	time_t stamp_s;
	struct event *flush;
	const struct output_events *events;
	void *ctx;
};

/* ---- credit ---- */

static void owe(struct lane *l, uint32_t host, size_t n)
{
	struct debt *last = l->n ? &l->debt[(l->first + l->n - 1) % l->cap] : NULL;

	if (last && last->host == host && last->n + n <= DEBT_BYTES) {
		last->mark = l->queued;
		last->n += n;
		return;
	}
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct debt *grown = xcalloc(cap, sizeof *grown);

		for (size_t i = 0; i < l->n; i++)
			grown[i] = l->debt[(l->first + i) % l->cap];
		free(l->debt);
		l->debt = grown;
		l->first = 0;
		l->cap = cap;
	}
	l->debt[(l->first + l->n++) % l->cap] = (struct debt){ l->queued, host, n };
}

static void pay(struct lane *l)
{
	while (l->n && l->debt[l->first].mark <= l->written) {
		struct debt d = l->debt[l->first];

		l->first = (l->first + 1) % l->cap;
		l->n--;
		l->o->events->left(l->o->ctx, d.host, d.n);
	}
}

static void on_written(void *ctx, size_t n)
{
	struct lane *l = ctx;

	l->written += n;
	pay(l);
}

static void on_broken(void *ctx, int error)
{
	struct lane *l = ctx;

	l->written = l->queued;
	pay(l);
	l->o->events->unread(l->o->ctx, l == &l->o->lane[0] ? "stdout" : "stderr",
			     error);
}

/* ---- lines ---- */

static const char *stamp(struct output *o)
{
	time_t now = time(NULL);
	struct tm tm;

	if (now != o->stamp_s) {
		localtime_r(&now, &tm);
		strftime(o->stamp, sizeof o->stamp, "%a %b %d %H:%M:%S %Y", &tm);
		o->stamp_s = now;
	}
	return o->stamp;
}

static void put(struct lane *l, const void *bytes, size_t n)
{
	buf_add(&l->sink.queue, bytes, n);
	l->queued += n;
}

/* Labels are made once: snprintf() for each line took 12 % of all CPU time when one
 * rank wrote 80-byte lines through ssh. */
static void put_label(struct output *o, struct lane *l, uint32_t rank, unsigned stream)
{
	struct stream *s = &o->stream[2 * rank + stream - 1];

	if (o->timestamps) {
		const char *text = stamp(o);

		put(l, text, strlen(text));
	}
	if (!o->tag) {
		put(l, ": ", o->timestamps ? 2 : 0);
		return;
	}
	if (!s->label_bytes)
		s->label_bytes =
			(size_t)snprintf(s->label, sizeof s->label, "[%u]<%s>:", rank,
					 stream == 1 ? "stdout" : "stderr");
	put(l, s->label, s->label_bytes);
}

/* One line or a piece of one; TERMINATED when it ends in '\n' or '\r'. */
static void put_piece(struct output *o, struct lane *l, uint32_t rank, unsigned stream,
		      const char *p, size_t n)
{
	int64_t self = 2 * (int64_t)rank + stream;

	if (!n)
		return;
	if (l->open_line != self) {
		if (l->open_line >= 0)
			put(l, "\n", 1);
		put_label(o, l, rank, stream);
	}
	put(l, p, n);
	l->open_line = p[n - 1] == '\n' || p[n - 1] == '\r' ? -1 : self;
}

/* Put the whole lines of the N bytes at P.  Returns what they take up.  Each '\n' and
 * '\r' is looked for once. */
static size_t put_whole(struct output *o, struct lane *l, uint32_t rank,
			unsigned stream, const char *p, size_t n)
{
	const char *at = p, *stop = p + n;
	const char *nl = memchr(p, '\n', n), *cr = memchr(p, '\r', n);

	for (;;) {
		const char *end = nl;

		if (cr && cr + 1 < stop && cr[1] != '\n' && (!nl || cr < nl))
			end = cr;
		if (!end)
			return (size_t)(at - p);
		put_piece(o, l, rank, stream, at, (size_t)(end + 1 - at));
		at = end + 1;
		if (nl && nl < at)
			nl = memchr(at, '\n', (size_t)(stop - at));
		if (cr && cr < at)
			cr = memchr(at, '\r', (size_t)(stop - at));
	}
}

/* A long line so far; a '\r' at its end stays, as a '\n' may follow. */
static void put_long(struct output *o, struct lane *l, uint32_t rank, unsigned stream,
		     struct str *held)
{
	size_t stays = held->s[held->len - 1] == '\r';

	put_piece(o, l, rank, stream, held->s, held->len - stays);
	held->s[0] = '\r';
	held->len = stays;
	held->s[stays] = '\0';
}

static void put_lines(struct output *o, struct lane *l, uint32_t rank, unsigned stream,
		      const char *p, size_t n)
{
	struct str *held = &o->stream[2 * rank + stream - 1].line;
	size_t whole;

	if (held->len) { /* finish the line that began in an earlier frame */
		const char *nl = memchr(p, '\n', n);
		size_t take = nl ? (size_t)(nl - p) + 1 : n;

		str_addn(held, p, take);
		p += take;
		n -= take;
		whole = put_whole(o, l, rank, stream, held->s, held->len);
		held->len -= whole;
		memmove(held->s, held->s + whole, held->len + 1);
	}
	whole = put_whole(o, l, rank, stream, p, n);
	str_addn(held, p + whole, n - whole);
	if (held->len > LINE_MAX_BYTES)
		put_long(o, l, rank, stream, held);
}

/* ---- files ---- */

static void disk_error(struct output *o, const char *path)
{
	if (!o->disk_failed)
		o->events->disk(o->ctx, path, errno);
	o->disk_failed = true;
}

static char *file_path(const struct output *o, uint32_t rank, unsigned stream)
{
	return xasprintf("%s/rank.%0*u/%s", o->request->output_dir, o->rank_digits,
			 rank, stream == 1 ? "stdout" : "stderr");
}

static void put_file(struct output *o, uint32_t rank, unsigned stream, const char *p,
		     size_t n)
{
	struct stream *s = &o->stream[2 * rank + stream - 1];
	char *path;
	int fd = s->fd;

	if (!o->request->output_dir || o->disk_failed)
		return;
	path = file_path(o, rank, stream);
	if (fd < 0)
		fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	while (n) {
		ssize_t done = fd < 0 ? -1 : write(fd, p, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			disk_error(o, path);
			break;
		}
		p += done;
		n -= (size_t)done;
	}
	if (o->keep_fds)
		s->fd = fd;
	else if (fd >= 0)
		close(fd);
	free(path);
}

static int make_dir(const char *path, struct err *e)
{
	char *copy = xstrdup(path);
	int rc = 0;

	for (char *p = copy + 1; rc == 0 && p; p++) {
		p = strchr(p, '/');
		if (p)
			*p = '\0';
		if (mkdir(copy, 0777) && errno != EEXIST)
			rc = err_set(e, E_LOG_DIR, path, strerror(errno));
		if (!p)
			break;
		*p = '/';
	}
	free(copy);
	return rc;
}

static int make_files(struct output *o, struct err *e)
{
	for (uint32_t rank = 0; rank < o->np; rank++) {
		char *dir = xasprintf("%s/rank.%0*u", o->request->output_dir,
				      o->rank_digits, rank);
		int rc = make_dir(dir, e);

		free(dir);
		for (unsigned s = 1; !rc && s <= 2; s++) {
			char *path = file_path(o, rank, s);
			int fd = open(path,
				      O_WRONLY | O_CREAT | O_TRUNC | O_APPEND |
					      O_CLOEXEC,
				      0666);

			if (fd < 0)
				rc = err_set(e, E_LOG_DIR, path, strerror(errno));
			else if (o->keep_fds)
				o->stream[2 * rank + s - 1].fd = fd;
			else
				close(fd);
			free(path);
		}
		if (rc)
			return -1;
	}
	return 0;
}

/* ---- the whole ---- */

static bool shown(const struct output *o, uint32_t rank, unsigned stream)
{
	return (stream == 2 && o->request->show_errors) ||
	       options_shows(&o->request->show, rank);
}

static void keep_tail(struct str *tail, const char *p, size_t n)
{
	if (n > TAIL_BYTES) {
		p += n - TAIL_BYTES;
		n = TAIL_BYTES;
	}
	str_addn(tail, p, n);
	if (tail->len > 2 * TAIL_BYTES) {
		memmove(tail->s, tail->s + tail->len - TAIL_BYTES, TAIL_BYTES + 1);
		tail->len = TAIL_BYTES;
	}
}

/* As it comes; only a note of ours has to know whether it begins a line. */
static void put_raw(struct lane *l, const char *p, size_t n)
{
	put(l, p, n);
	if (n)
		l->open_line = p[n - 1] == '\n' ? -1 : 0;
}

static void schedule(struct output *o, struct lane *l)
{
	if (l->sink.queue.len >= PUSH_BYTES)
		sink_push(&l->sink);
	else if (l->sink.queue.len)
		event_active(o->flush, EV_TIMEOUT, 0);
}

void output_data(struct output *o, uint32_t host, uint32_t rank, unsigned stream,
		 const void *data, size_t n)
{
	struct lane *l = stream == 1 ? &o->lane[0] : o->err_lane;

	if (rank >= o->np || stream < 1 || stream > 2)
		return;
	o->spoke_ms[rank] = clock_ms();
	put_file(o, rank, stream, data, n);
	if (stream == 2)
		keep_tail(&o->tail[rank], data, n);
	if (o->muted || l->sink.broken || !shown(o, rank, stream)) {
		o->events->left(o->ctx, host, n);
		return;
	}
	if (o->raw)
		put_raw(l, data, n);
	else
		put_lines(o, l, rank, stream, data, n);
	owe(l, host, n);
	if (l->queued == l->written)
		pay(l);
	schedule(o, l);
}

static void on_flush(evutil_socket_t fd, short what, void *ctx)
{
	struct output *o = ctx;

	(void)fd;
	(void)what;
	sink_push(&o->lane[0].sink);
	sink_push(&o->lane[1].sink);
}

void output_finish(struct output *o)
{
	for (uint32_t i = 0; i < 2 * o->np; i++) {
		struct str *line = &o->stream[i].line;
		struct lane *l = i % 2 ? o->err_lane : &o->lane[0];

		if (line->len && !o->muted && !l->sink.broken)
			put_piece(o, l, i / 2, i % 2 + 1, line->s, line->len);
		line->len = 0;
	}
	on_flush(-1, 0, o);
}

void output_restart(struct output *o)
{
	for (uint32_t i = 0; i < o->np; i++)
		str_free(&o->tail[i]);
	memset(o->spoke_ms, 0, o->np * sizeof *o->spoke_ms);
}

size_t output_waiting(const struct output *o)
{
	return o->lane[0].sink.queue.len + o->lane[1].sink.queue.len;
}

void output_mute(struct output *o)
{
	o->muted = true;
}

void output_note(struct output *o, const char *format, ...)
{
	struct lane *l = o->err_lane;
	struct str s = { 0 };
	char *text = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) < 0)
		text = NULL;
	va_end(ap);
	str_addf(&s, "%s%s\n", l->open_line >= 0 ? "\n" : "", text ? text : "");
	free(text);
	l->open_line = -1;
	if (!l->sink.broken) {
		put(l, s.s, s.len);
		sink_push(&l->sink);
	}
	str_free(&s);
}

const char *output_tail(const struct output *o, uint32_t rank)
{
	const struct str *t = &o->tail[rank];
	const char *p;
	int lines = 0;

	if (!t->len)
		return "";
	for (p = t->s + t->len - 1; p > t->s; p--)
		if (p[-1] == '\n' && ++lines == TAIL_LINES)
			break;
	return p;
}

long output_quiet_ms(const struct output *o, uint32_t rank)
{
	return o->spoke_ms[rank] ? (long)(clock_ms() - o->spoke_ms[rank]) : -1;
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino && x.st_rdev == y.st_rdev;
}

static void open_lanes(struct output *o, struct event_base *base)
{
	static const struct sink_events events = { on_written, on_broken };

	for (int i = 0; i < 2; i++) {
		o->lane[i].o = o;
		o->lane[i].open_line = -1;
		sink_open(&o->lane[i].sink, base, i + 1, &events, &o->lane[i]);
	}
	o->err_lane = same_file(1, 2) ? &o->lane[0] : &o->lane[1];
	o->flush = event_new(base, -1, 0, on_flush, o);
}

static int digits(uint32_t n)
{
	int d = 1;

	while (n >= 10) {
		n /= 10;
		d++;
	}
	return d;
}

int output_open(struct output **out, struct event_base *base, const struct request *r,
		uint32_t np, const struct output_events *events, void *ctx,
		struct err *e)
{
	struct output *o = xcalloc(1, sizeof *o);
	struct rlimit files = { 0 };

	*o = (struct output){ .np = np, .request = r, .events = events, .ctx = ctx };
	o->tag = r->tag != TRI_NO;
	o->timestamps = r->timestamps;
	o->raw = np == 1 && !o->tag && !o->timestamps;
	o->rank_digits = digits(np - 1);
	o->stream = xcalloc(2 * (size_t)np, sizeof *o->stream);
	o->tail = xcalloc(np, sizeof *o->tail);
	o->spoke_ms = xcalloc(np, sizeof *o->spoke_ms);
	for (uint32_t i = 0; i < 2 * np; i++)
		o->stream[i].fd = -1;
	getrlimit(RLIMIT_NOFILE, &files);
	o->keep_fds = 2 * (rlim_t)np + 256 < files.rlim_cur;
	open_lanes(o, base);
	*out = o;
	return r->output_dir ? make_files(o, e) : 0;
}

void output_free(struct output *o)
{
	if (!o)
		return;
	for (uint32_t i = 0; i < 2 * o->np; i++) {
		str_free(&o->stream[i].line);
		if (o->stream[i].fd >= 0)
			close(o->stream[i].fd);
	}
	for (uint32_t i = 0; i < o->np; i++)
		str_free(&o->tail[i]);
	for (int i = 0; i < 2; i++) {
		sink_free(&o->lane[i].sink);
		free(o->lane[i].debt);
	}
	event_free(o->flush);
	free(o->stream);
	free(o->tail);
	free(o->spoke_ms);
	free(o);
}
