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
	LINE_MAX_BYTES = 65536,    /* a longer line is passed on in pieces */
	HELD_MOST_BYTES = 4 << 20, /* in lines of all ranks that have no end yet */
	SMALL_BYTES = 4096,
	SLICE_BYTES = 16384, /* labelled at a time: may become 40 times as much */
	PUSH_BYTES = 131072, /* enough for one write(2) */
	BAR_MS = 100,        /* a '\n' would have followed by now */
	TAIL_BYTES = 4096,
	TAIL_LINES = 10
};

struct stream {
	struct str line; /* bytes after the last whole line */
	char label[32];  /* made at the first line */
	size_t label_bytes;
	bool bar;         /* its last line ended in '\r': a progress bar */
	uint64_t came_ms; /* when LINE grew last */
};

struct output {
	struct out_queue lane[2], *err_lane;
	struct stream *stream; /* [2 * rank + (stream - 1)] */
	struct str *tail;      /* [rank]: stderr */
	uint64_t *spoke_ms;    /* [rank] */
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

/* Labels are made once: snprintf() for each line took 12 % of all CPU time when one
 * rank wrote 80-byte lines through ssh. */
static void put_label(struct output *o, struct out_queue *l, uint32_t rank,
		      unsigned stream)
{
	struct stream *s = &o->stream[2 * rank + stream - 1];

	if (o->timestamps) {
		const char *text = stamp(o);

		out_queue_put(l, text, strlen(text));
	}
	if (!o->tag) {
		out_queue_put(l, ": ", o->timestamps ? 2 : 0);
		return;
	}
	if (!s->label_bytes)
		s->label_bytes =
			(size_t)snprintf(s->label, sizeof s->label, "[%u]<%s>:", rank,
					 stream == 1 ? "stdout" : "stderr");
	out_queue_put(l, s->label, s->label_bytes);
}

/* What parts an unfinished line of another stream from N bytes at P: a progress bar is
 * written over by the next, as it would be by itself. */
static void part_lines(struct out_queue *l, const char *p, size_t n)
{
	if (l->open_line >= 0)
		out_queue_put(l, l->open_bar && p[n - 1] != '\n' ? "\r" : "\n", 1);
	l->open_line = -1;
}

/* One line or a piece of one; TERMINATED when it ends in '\n' or '\r'. */
static void put_piece(struct output *o, struct out_queue *l, uint32_t rank,
		      unsigned stream, const char *p, size_t n)
{
	int64_t self = 2 * (int64_t)rank + stream;
	struct stream *s = &o->stream[2 * rank + stream - 1];

	if (!n)
		return;
	if (l->open_line != self) {
		part_lines(l, p, n);
		put_label(o, l, rank, stream);
	}
	out_queue_put(l, p, n);
	l->open_bar = s->bar && l->terminal;
	l->open_line = p[n - 1] == '\n' || p[n - 1] == '\r' ? -1 : self;
	if (l->open_line < 0)
		s->bar = p[n - 1] == '\r';
}

/* Put the whole lines of the N bytes at P.  Returns what they take up.  Each '\n' and
 * '\r' is looked for once. */
static size_t put_whole(struct output *o, struct out_queue *l, uint32_t rank,
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
static void put_long(struct output *o, struct out_queue *l, uint32_t rank,
		     unsigned stream, struct str *held)
{
	size_t stays = held->s[held->len - 1] == '\r';

	put_piece(o, l, rank, stream, held->s, held->len - stays);
	o->held -= held->len - stays;
	held->s[0] = '\r';
	held->len = stays;
	held->s[stays] = '\0';
}

static struct out_queue *out_queue_of(struct output *o, unsigned stream)
{
	return stream == 1 ? &o->lane[0] : o->err_lane;
}

/* Ranks without end whose lines have none: the longest is passed on in pieces. */
static void bound_held(struct output *o)
{
	while (o->held > HELD_MOST_BYTES) {
		uint32_t longest = 0;

		for (uint32_t i = 1; i < 2 * o->np; i++)
			if (o->stream[i].line.len > o->stream[longest].line.len)
				longest = i;
		put_long(o, out_queue_of(o, longest % 2 + 1), longest / 2,
			 longest % 2 + 1, &o->stream[longest].line);
	}
}

static void put_lines(struct output *o, struct out_queue *l, uint32_t rank,
		      unsigned stream, const char *p, size_t n)
{
	struct str *held = &o->stream[2 * rank + stream - 1].line;
	size_t whole, before = held->len;

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
	o->held += held->len - before;
	if (held->len > LINE_MAX_BYTES)
		put_long(o, l, rank, stream, held);
	if (!held->len && held->cap > SMALL_BYTES)
		str_free(held);
	bound_held(o);
}

/* ---- progress bars ---- */

/* Text that waits for its end in vain: "50%\r", when no '\n' follows; "50%" of a
 * stream whose last line ended in '\r', which ends when the next update comes, to a
 * terminal. */
static bool is_bar(struct output *o, uint32_t i)
{
	const struct stream *s = &o->stream[i];

	return s->line.len && (s->line.s[s->line.len - 1] == '\r' ||
			       (s->bar && out_queue_of(o, i % 2 + 1)->terminal));
}

static void drop_line(struct output *o, struct str *line)
{
	o->held -= line->len;
	line->len = 0;
}

static void watch_bar(struct output *o, uint32_t i)
{
	o->stream[i].came_ms = clock_ms();
	if (is_bar(o, i) && !event_pending(o->bars, EV_TIMEOUT, NULL))
		event_add(o->bars, &(struct timeval){ .tv_usec = BAR_MS * 1000 });
}

static void on_bars(evutil_socket_t fd, short what, void *ctx)
{
	struct output *o = ctx;
	uint64_t now = clock_ms();

	(void)fd;
	(void)what;
	for (uint32_t i = 0; i < 2 * o->np; i++) {
		struct stream *s = &o->stream[i];
		struct out_queue *l = out_queue_of(o, i % 2 + 1);

		if (!is_bar(o, i) || l->sink.broken)
			continue;
		if (out_queue_is_full(l) || now - s->came_ms < BAR_MS) {
			event_add(o->bars,
				  &(struct timeval){ .tv_usec = BAR_MS * 1000 });
			continue;
		}
		put_piece(o, l, i / 2, i % 2 + 1, s->line.s, s->line.len);
		drop_line(o, &s->line);
		sink_push(&l->sink);
	}
}

/* ---- the whole ---- */

static bool shown(const struct output *o, uint32_t rank, unsigned stream)
{
	return (stream == 2 && o->request->show_errors) ||
	       rank_set_has(&o->request->show, rank);
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
static void put_raw(struct out_queue *l, const char *p, size_t n)
{
	out_queue_put(l, p, n);
	if (n)
		l->open_line = p[n - 1] == '\n' ? -1 : 0;
}

/* Stream 0 is runner's own. */
static void put_some(struct output *o, struct out_queue *l,
		     const struct out_queue_piece *p, const char *bytes, size_t n)
{
	if (!p->stream) {
		part_lines(l, "\n", 1);
		out_queue_put(l, bytes, n);
	} else if (o->raw) {
		put_raw(l, bytes, n);
	} else {
		put_lines(o, l, p->rank, p->stream, bytes, n);
		watch_bar(o, 2 * p->rank + p->stream - 1);
	}
}

/* The last lines may have no end. */
static void put_rest(struct output *o, struct out_queue *l)
{
	for (uint32_t i = 0; i < 2 * o->np; i++) {
		struct str *line = &o->stream[i].line;

		if (line->len && out_queue_of(o, i % 2 + 1) == l && !o->muted)
			put_piece(o, l, i / 2, i % 2 + 1, line->s, line->len);
		if (out_queue_of(o, i % 2 + 1) == l)
			drop_line(o, line);
	}
}

/* What waited, as far as there is room. */
static void on_room(struct out_queue *l)
{
	struct output *o = l->ctx;
	struct out_queue_piece p;
	const char *bytes;

	while ((bytes = out_queue_first(l, &p))) {
		if (p.n > SLICE_BYTES)
			p.n = p.cost = SLICE_BYTES;
		put_some(o, l, &p, bytes, p.n);
		out_queue_took(l, &p);
		out_queue_owe(l, &p);
	}
	if (o->finished && !l->head)
		put_rest(o, l);
}

static void on_left(struct out_queue *l, uint32_t host, size_t n)
{
	struct output *o = l->ctx;

	o->events->left(o->ctx, host, n);
}

static void on_broken(struct out_queue *l, int error)
{
	struct output *o = l->ctx;

	if (l->terminal && error == EIO) /* it was closed */
		error = EPIPE;
	o->events->unread(o->ctx, l == &o->lane[0] ? "stdout" : "stderr", error);
}

static void schedule(struct output *o, struct out_queue *l)
{
	if (l->sink.queue.len >= PUSH_BYTES)
		sink_push(&l->sink);
	else if (l->sink.queue.len)
		event_active(o->flush, EV_TIMEOUT, 0);
}

/* Straight into the queue, if it is short; the rest waits. */
static void take_in(struct output *o, struct out_queue *l, struct out_queue_piece p,
		    const char *bytes)
{
	while (p.n && !out_queue_is_full(l)) {
		struct out_queue_piece part = p;

		if (p.n > SLICE_BYTES)
			part.n = part.cost = SLICE_BYTES;
		put_some(o, l, &part, bytes, part.n);
		out_queue_owe(l, &part);
		bytes += part.n;
		p.n -= part.n;
		p.cost -= part.cost;
	}
	out_queue_keep(l, &p, bytes);
	schedule(o, l);
}

void output_data(struct output *o, uint32_t host, uint32_t rank, unsigned stream,
		 const void *data, size_t n)
{
	size_t cost = n + WIRE_OUTPUT_HEAD_BYTES;
	struct out_queue *l = stream == 1 ? &o->lane[0] : o->err_lane;

	if (rank >= o->np || stream < 1 || stream > 2)
		return;
	o->spoke_ms[rank] = clock_ms();
	logfiles_write(o->files, rank, stream, data, n);
	if (stream == 2)
		keep_tail(&o->tail[rank], data, n);
	if (!n || o->muted || l->sink.broken || !shown(o, rank, stream))
		o->events->left(o->ctx, host, cost);
	else
		take_in(o, l,
			(struct out_queue_piece){ host, rank, stream, (uint32_t)n,
						  (uint32_t)cost },
			data);
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
	o->finished = true;
	for (int i = 0; i < 2; i++)
		if (!o->lane[i].sink.broken)
			on_room(&o->lane[i]);
	on_flush(-1, 0, o);
}

void output_restart(struct output *o)
{
	o->finished = false;
	for (uint32_t i = 0; i < o->np; i++)
		str_free(&o->tail[i]);
	memset(o->spoke_ms, 0, o->np * sizeof *o->spoke_ms);
}

size_t output_waiting(const struct output *o)
{
	return o->lane[0].sink.queue.len + o->lane[0].waiting +
	       o->lane[1].sink.queue.len + o->lane[1].waiting;
}

void output_mute(struct output *o)
{
	o->muted = true;
}

void output_note(struct output *o, const char *format, ...)
{
	struct out_queue *l = o->err_lane;
	struct out_queue_piece p = { 0 };
	struct str s = { 0 };
	va_list ap;
	char *text;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	str_addf(&s, "%s\n", text);
	free(text);
	p.n = p.cost = (uint32_t)s.len;
	if (!l->sink.broken) {
		take_in(o, l, p, s.s);
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
	static const struct out_queue_events events = { on_left, on_room, on_broken };

	for (int i = 0; i < 2; i++)
		out_queue_open(&o->lane[i], base, i + 1, &events, o);
	o->err_lane = same_file(1, 2) ? &o->lane[0] : &o->lane[1];
	o->flush = event_new(base, -1, 0, on_flush, o);
	o->bars = event_new(base, -1, 0, on_bars, o);
}

int output_open(struct output **out, struct event_base *base, const struct request *r,
		uint32_t np, const struct output_events *events, void *ctx,
		struct err *e)
{
	struct output *o = xcalloc(1, sizeof *o);

	*o = (struct output){ .np = np, .request = r, .events = events, .ctx = ctx };
	o->tag = r->tag;
	o->timestamps = r->timestamps;
	o->raw = np == 1 && !o->tag && !o->timestamps;
	o->stream = xcalloc(2 * (size_t)np, sizeof *o->stream);
	o->tail = xcalloc(np, sizeof *o->tail);
	o->spoke_ms = xcalloc(np, sizeof *o->spoke_ms);
	open_lanes(o, base);
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
		out_queue_free(&o->lane[i]);
	event_free(o->flush);
	event_free(o->bars);
	free(o->stream);
	free(o->tail);
	free(o->spoke_ms);
	free(o);
}
