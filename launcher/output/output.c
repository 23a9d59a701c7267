#include "launcher/output/output.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>

#include "common/wire.h"
#include "launcher/output/out_queue.h"
#include "launcher/output/logfiles.h"

enum {
	LINE_MAX_BYTES = 65536,   /* a longer line is passed on in parts */
	HELD_MAX_BYTES = 4 << 20, /* in lines of all ranks that have no end yet */
	SMALL_BYTES = 4096,
	SLICE_BYTES = 16384, /* labelled at a time: may become 40 times as much */
	PUSH_BYTES = 131072, /* enough for one write(2) */
	BAR_MS = 100,        /* a '\n' would have followed by now */
	TAIL_BYTES = 4096,
	TAIL_LINES = 10
};

struct stream {
	struct out_queue *queue;
	uint32_t index;  /* 2 * rank + (stream - 1) */
	struct str line; /* bytes after the last whole line */
	char label[32];  /* made at the first line */
	size_t label_bytes;
	bool bar;         /* its last line ended in '\r': a progress bar */
	uint64_t came_ms; /* when LINE grew last */
};

struct output {
	struct out_queue queue[2], *err_queue;
	struct stream *stream; /* [index] */
	struct str *tail;      /* [rank]: stderr */
	uint64_t *last_ms;     /* [rank]: when it wrote last; 0: never */
	uint32_t np;
	bool tag, raw, timestamps, muted, finished;
	size_t held; /* bytes in the lines of all streams */
	const struct request *request;
	struct logfiles *files; /* NULL: none */
	char stamp[32];
	time_t stamp_s;
	struct event *flush, *bars;
	const struct output_events *events;
	void *ctx;
};

/* ---- lines ---- */

/* Labels are made once.  snprintf() for each line took too much CPU time (12 % of all,
 * for one rank that wrote 80-byte lines through ssh). */
static void put_label(struct output *o, struct stream *s)
{
	struct out_queue *q = s->queue;
	time_t now;
	struct tm tm;

	if (o->timestamps) {
		now = time(NULL);
		if (now != o->stamp_s) {
			localtime_r(&now, &tm);
			strftime(o->stamp, sizeof o->stamp, "%a %b %d %H:%M:%S %Y",
				 &tm);
			o->stamp_s = now;
		}
		out_queue_put(q, o->stamp, strlen(o->stamp));
		if (!o->tag)
			out_queue_put(q, ": ", 2);
	}
	if (!o->tag)
		return;
	if (!s->label_bytes)
		s->label_bytes = (size_t)snprintf(s->label, sizeof s->label,
						  "[%u]<%s>:", s->index / 2,
						  s->index % 2 ? "stderr" : "stdout");
	out_queue_put(q, s->label, s->label_bytes);
}

/* End the unfinished line of another stream in front of N bytes at P.  The next
 * progress bar overwrites one, as it would without labels. */
static void end_open_line(struct out_queue *q, const char *p, size_t n)
{
	if (q->open_line >= 0)
		out_queue_put(q, q->open_bar && p[n - 1] != '\n' ? "\r" : "\n", 1);
	q->open_line = -1;
}

/* One line of S, or a part of one. */
static void put_line(struct output *o, struct stream *s, const char *p, size_t n)
{
	struct out_queue *q = s->queue;

	if (!n)
		return;
	if (q->open_line != s->index) {
		end_open_line(q, p, n);
		put_label(o, s);
	}
	out_queue_put(q, p, n);
	q->open_bar = s->bar && q->terminal;
	q->open_line = s->index;
	if (p[n - 1] == '\n' || p[n - 1] == '\r') {
		q->open_line = -1;
		s->bar = p[n - 1] == '\r';
	}
}

/* Put the whole lines of the N bytes at P.  Returns the bytes of these lines.  Each
 * '\n' and '\r' is searched once. */
static size_t put_whole(struct output *o, struct stream *s, const char *p, size_t n)
{
	const char *at = p, *stop = p + n;
	const char *nl = memchr(p, '\n', n), *cr = memchr(p, '\r', n);

	for (;;) {
		const char *end = nl;

		if (cr && cr + 1 < stop && cr[1] != '\n' && (!nl || cr < nl))
			end = cr;
		if (!end)
			return (size_t)(at - p);
		put_line(o, s, at, (size_t)(end + 1 - at));
		at = end + 1;
		if (nl && nl < at)
			nl = memchr(at, '\n', (size_t)(stop - at));
		if (cr && cr < at)
			cr = memchr(at, '\r', (size_t)(stop - at));
	}
}

/* Put the line of S that has no end yet.  A '\r' at its end stays, as a '\n' may
 * follow. */
static void put_long(struct output *o, struct stream *s)
{
	struct str *line = &s->line;
	size_t stays = line->s[line->len - 1] == '\r';

	put_line(o, s, line->s, line->len - stays);
	o->held -= line->len - stays;
	line->s[0] = '\r';
	line->len = stays;
	line->s[stays] = '\0';
}

static void put_lines(struct output *o, struct stream *s, const char *p, size_t n)
{
	struct str *line = &s->line;
	size_t whole, before = line->len;

	if (line->len) { /* finish the line that began in an earlier frame */
		const char *nl = memchr(p, '\n', n);
		size_t take = nl ? (size_t)(nl - p) + 1 : n;

		str_addn(line, p, take);
		p += take;
		n -= take;
		whole = put_whole(o, s, line->s, line->len);
		line->len -= whole;
		memmove(line->s, line->s + whole, line->len + 1);
	}
	whole = put_whole(o, s, p, n);
	str_addn(line, p + whole, n - whole);
	o->held += line->len - before;
	if (line->len > LINE_MAX_BYTES)
		put_long(o, s);
	if (!line->len && line->cap > SMALL_BYTES)
		str_free(line);
	while (o->held > HELD_MAX_BYTES) { /* many ranks, and no line has an end */
		struct stream *longest = o->stream;

		for (uint32_t i = 1; i < 2 * o->np; i++)
			if (o->stream[i].line.len > longest->line.len)
				longest = &o->stream[i];
		put_long(o, longest);
	}
}

/* ---- progress bars ---- */

/* Whether the line of S waits for an end that does not come.  "50%\r" does, if no '\n'
 * follows.  On a terminal "50%" does, if the last line ended in '\r': its own end comes
 * with the next update. */
static bool is_bar(const struct stream *s)
{
	return s->line.len &&
	       (s->line.s[s->line.len - 1] == '\r' || (s->bar && s->queue->terminal));
}

static void drop_line(struct output *o, struct stream *s)
{
	o->held -= s->line.len;
	s->line.len = 0;
}

static void on_bars(evutil_socket_t fd, short what, void *ctx)
{
	const struct timeval next = { .tv_usec = BAR_MS * 1000 };
	struct output *o = ctx;
	uint64_t now = clock_ms();

	(void)fd;
	(void)what;
	for (uint32_t i = 0; i < 2 * o->np; i++) {
		struct stream *s = &o->stream[i];
		struct out_queue *q = s->queue;

		if (!is_bar(s) || q->sink.broken)
			continue;
		if (out_queue_is_full(q) || now - s->came_ms < BAR_MS) {
			event_add(o->bars, &next);
			continue;
		}
		put_line(o, s, s->line.s, s->line.len);
		drop_line(o, s);
		sink_push(&q->sink);
	}
}

/* ---- from chunks to the queue ---- */

/* N bytes of chunk C.  Stream 0 is runner's own. */
static void put_slice(struct output *o, struct out_queue *q, const struct out_chunk *c,
		      const char *bytes, size_t n)
{
	struct stream *s;

	if (!c->stream) {
		end_open_line(q, "\n", 1);
		out_queue_put(q, bytes, n);
		return;
	}
	if (o->raw) { /* a note of runner has to know whether it begins a line */
		out_queue_put(q, bytes, n);
		if (n)
			q->open_line = bytes[n - 1] == '\n' ? -1 : 0;
		return;
	}
	s = &o->stream[2 * c->rank + c->stream - 1];
	put_lines(o, s, bytes, n);
	s->came_ms = clock_ms();
	if (is_bar(s) && !event_pending(o->bars, EV_TIMEOUT, NULL))
		event_add(o->bars, &(struct timeval){ .tv_usec = BAR_MS * 1000 });
}

/* Queue the chunks that waited, as far as there is room.  Behind the last one come the
 * lines that have no end. */
static void on_room(struct out_queue *q)
{
	struct output *o = q->ctx;
	struct out_chunk c;
	const char *bytes;

	while ((bytes = out_queue_first(q, &c))) {
		if (c.n > SLICE_BYTES)
			c.n = c.cost = SLICE_BYTES;
		put_slice(o, q, &c, bytes, c.n);
		out_queue_drop(q, &c);
		out_queue_credit(q, &c);
	}
	for (uint32_t i = 0; i < 2 * o->np && o->finished && !q->head; i++) {
		struct stream *s = &o->stream[i];

		if (s->queue != q)
			continue;
		if (s->line.len && !o->muted)
			put_line(o, s, s->line.s, s->line.len);
		drop_line(o, s);
	}
}

static void on_left(struct out_queue *q, uint32_t host, size_t n)
{
	struct output *o = q->ctx;

	o->events->left(o->ctx, host, n);
}

static void on_broken(struct out_queue *q, int error)
{
	struct output *o = q->ctx;

	if (q->terminal && error == EIO) /* it was closed */
		error = EPIPE;
	o->events->unread(o->ctx, q == &o->queue[0] ? "stdout" : "stderr", error);
}

/* Queue chunk C as far as there is room, and keep the rest. */
static void add_chunk(struct output *o, struct out_queue *q, struct out_chunk c,
		      const char *bytes)
{
	while (c.n && !out_queue_is_full(q)) {
		struct out_chunk part = c;

		if (c.n > SLICE_BYTES)
			part.n = part.cost = SLICE_BYTES;
		put_slice(o, q, &part, bytes, part.n);
		out_queue_credit(q, &part);
		bytes += part.n;
		c.n -= part.n;
		c.cost -= part.cost;
	}
	out_queue_keep(q, &c, bytes);
	if (q->sink.queue.len >= PUSH_BYTES)
		sink_push(&q->sink);
	else if (q->sink.queue.len)
		event_active(o->flush, EV_TIMEOUT, 0);
}

/* ---- what the job calls ---- */

static bool is_shown(const struct output *o, uint32_t rank, unsigned stream)
{
	return rank_set_has(&o->request->show, rank) ||
	       (stream == 2 && o->request->show_errors);
}

bool output_is_live(const struct output *o, uint32_t rank)
{
	return o->err_queue->terminal && !o->muted && is_shown(o, rank, 2);
}

void output_data(struct output *o, uint32_t host, uint32_t rank, unsigned stream,
		 const void *data, size_t n)
{
	size_t cost = n + WIRE_OUTPUT_HEAD_BYTES;
	struct out_queue *q = stream == 1 ? &o->queue[0] : o->err_queue;

	if (rank >= o->np || stream < 1 || stream > 2)
		return;
	o->last_ms[rank] = clock_ms();
	logfiles_write(o->files, rank, stream, data, n);
	if (stream == 2) {
		struct str *tail = &o->tail[rank];
		size_t part = n < TAIL_BYTES ? n : TAIL_BYTES;

		str_addn(tail, (const char *)data + n - part, part);
		if (tail->len > 2 * TAIL_BYTES) {
			memmove(tail->s, tail->s + tail->len - TAIL_BYTES,
				TAIL_BYTES + 1);
			tail->len = TAIL_BYTES;
		}
	}
	if (!n || o->muted || q->sink.broken || !is_shown(o, rank, stream))
		o->events->left(o->ctx, host, cost);
	else
		add_chunk(o, q,
			  (struct out_chunk){ host, rank, stream, (uint32_t)n,
					      (uint32_t)cost },
			  data);
}

static void on_flush(evutil_socket_t fd, short what, void *ctx)
{
	struct output *o = ctx;

	(void)fd;
	(void)what;
	sink_push(&o->queue[0].sink);
	sink_push(&o->queue[1].sink);
}

void output_finish(struct output *o)
{
	o->finished = true;
	for (int i = 0; i < 2; i++)
		if (!o->queue[i].sink.broken)
			on_room(&o->queue[i]);
	on_flush(-1, 0, o);
}

void output_restart(struct output *o)
{
	o->finished = false;
	for (uint32_t i = 0; i < o->np; i++)
		str_free(&o->tail[i]);
	memset(o->last_ms, 0, o->np * sizeof *o->last_ms);
}

size_t output_waiting(const struct output *o)
{
	return o->queue[0].sink.queue.len + o->queue[0].waiting +
	       o->queue[1].sink.queue.len + o->queue[1].waiting;
}

void output_mute(struct output *o)
{
	o->muted = true;
}

void output_note(struct output *o, const char *format, ...)
{
	struct out_queue *q = o->err_queue;
	struct out_chunk c = { 0 };
	va_list ap;
	char *text, *line;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	line = xasprintf("%s\n", text);
	c.n = c.cost = (uint32_t)strlen(line);
	if (!q->sink.broken) {
		add_chunk(o, q, c, line);
		sink_push(&q->sink);
	}
	free(text);
	free(line);
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
	return o->last_ms[rank] ? (long)(clock_ms() - o->last_ms[rank]) : -1;
}

int output_open(struct output **out, struct event_base *base, const struct request *r,
		uint32_t np, const struct output_events *events, void *ctx,
		struct err *e)
{
	static const struct out_queue_events of_queue = { on_left, on_room, on_broken };
	struct output *o = xcalloc(1, sizeof *o);
	struct stat x, y;
	bool same = !fstat(1, &x) && !fstat(2, &y) && x.st_dev == y.st_dev &&
		    x.st_ino == y.st_ino && x.st_rdev == y.st_rdev;

	*o = (struct output){ .np = np, .request = r, .events = events, .ctx = ctx };
	o->tag = r->tag;
	o->timestamps = r->timestamps;
	o->raw = np == 1 && !o->tag && !o->timestamps;
	o->stream = xcalloc(2 * (size_t)np, sizeof *o->stream);
	o->tail = xcalloc(np, sizeof *o->tail);
	o->last_ms = xcalloc(np, sizeof *o->last_ms);
	for (int i = 0; i < 2; i++)
		out_queue_open(&o->queue[i], base, i + 1, &of_queue, o);
	o->err_queue = same ? &o->queue[0] : &o->queue[1];
	for (uint32_t i = 0; i < 2 * np; i++) {
		o->stream[i].index = i;
		o->stream[i].queue = i % 2 ? o->err_queue : &o->queue[0];
	}
	o->flush = event_new(base, -1, 0, on_flush, o);
	o->bars = event_new(base, -1, 0, on_bars, o);
	*out = o;
	if (!r->output_dir)
		return 0;
	return logfiles_open(&o->files, r->output_dir, np, events->disk, ctx, e);
}

void output_free(struct output *o)
{
	if (!o)
		return;
	logfiles_free(o->files);
	for (uint32_t i = 0; i < 2 * o->np; i++)
		str_free(&o->stream[i].line);
	for (uint32_t i = 0; i < o->np; i++)
		str_free(&o->tail[i]);
	for (int i = 0; i < 2; i++)
		out_queue_free(&o->queue[i]);
	event_free(o->flush);
	event_free(o->bars);
	free(o->stream);
	free(o->tail);
	free(o->last_ms);
	free(o);
}
