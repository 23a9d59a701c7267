#include "launcher/output/output.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/loop.h"
#include "common/wire.h"
#include "launcher/output/nccl_log.h"
#include "launcher/output/out_queue.h"
#include "launcher/output/spool.h"
#include "launcher/output/tail.h"

enum {
	HELD_MAX_BYTES = 4 << 20, /* in lines of all ranks that have no end yet */
	SLICE_BYTES = 16384,      /* labelled at a time: may become 40 times as much */
	PUSH_BYTES = 131072,      /* enough for one write(2) */
	SETTLE_MS = 5000
};

struct output {
	struct out_queue queue[2], *err_queue;
	struct line_stream own;     /* runner's status */
	struct line_stream *stream; /* [2 * rank + (stream - 1)] */
	struct tail **tail;         /* [rank]: stderr; NULL: it wrote nothing there */
	uint64_t *last_ms;          /* [rank]: when it wrote last; 0: never */
	uint32_t np;
	bool raw, timestamps, muted, finished;
	size_t held; /* bytes in the lines of all streams */
	const struct request *request;
	struct logfiles *files; /* NULL: none */
	struct spool *spool;    /* --sort-output, NULL: output is shown as it comes */
	bool spool_full;        /* what comes is shown at once */
	struct nccl_log *nccl;  /* --nccl-transports, or NULL */
	uint64_t came_ns;       /* of what is read from there; 0: now */
	time_t stamp_s;
	char stamp[24], zone[8]; /* of that second */
	struct event *flush, *later;
	uint64_t later_ms;                          /* when LATER comes */
	TAILQ_HEAD(line_streams, line_stream) wait; /* for LATER */
	const struct output_events *events;
	void *ctx;
};

static struct out_queue *queue_of(struct output *o, const struct line_stream *s)
{
	return s->index % 2 ? o->err_queue : &o->queue[0];
}

/* ---- lines ---- */

/* The time into Q's lines: ISO 8601, local, with milliseconds. */
static void stamp_lines(struct output *o, struct out_queue *q)
{
	struct lines *l = &q->lines;
	struct timespec now;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	if (o->came_ns)
		now = (struct timespec){ (time_t)(o->came_ns / 1000000000),
					 (long)(o->came_ns % 1000000000) };
	if (now.tv_sec != o->stamp_s) {
		o->stamp_s = now.tv_sec;
		localtime_r(&now.tv_sec, &tm);
		strftime(o->stamp, sizeof o->stamp, "%Y-%m-%dT%H:%M:%S", &tm);
		strftime(o->zone, sizeof o->zone, "%z", &tm); /* +hhmm */
	}
	l->stamp_bytes =
		(size_t)snprintf(l->stamp, sizeof l->stamp, "%s.%03ld%.3s:%s ",
				 o->stamp, now.tv_nsec / 1000000, o->zone, o->zone + 3);
}

/* LATER comes after MS at the latest. */
static void look_in(struct output *o, int ms)
{
	const uint64_t due = clock_ms() + (uint64_t)ms;

	if (event_pending(o->later, EV_TIMEOUT, NULL) && o->later_ms <= due)
		return;
	o->later_ms = due;
	loop_after_ms(o->later, (uint64_t)ms);
}

/* S may hold something that has to be shown later, or may not any more. */
static void output_watch(struct output *o, struct line_stream *s)
{
	int ms = lines_wait_ms(&queue_of(o, s)->lines, s);

	if (ms == LINES_NEVER && s->waits)
		TAILQ_REMOVE(&o->wait, s, next);
	if (ms != LINES_NEVER && !s->waits) {
		TAILQ_INSERT_TAIL(&o->wait, s, next);
		s->since_ms = clock_ms();
		look_in(o, ms);
	}
	s->waits = ms != LINES_NEVER;
}

/* Equal lines that need not wait any longer, or all, into Q. */
static void output_put_equal(struct output *o, struct out_queue *q, bool all)
{
	int ms;

	q->lines.now_ms = clock_ms();
	ms = lines_put_equal(&q->lines, all);
	if (ms != LINES_NEVER)
		look_in(o, ms > 0 ? ms : 1);
	event_active(o->flush, EV_TIMEOUT, 0);
}

static void on_later(evutil_socket_t fd, short what, void *ctx)
{
	struct output *o = ctx;
	struct line_stream *s, *next;
	const uint64_t now = clock_ms();

	(void)fd;
	(void)what;
	for (s = TAILQ_FIRST(&o->wait); s; s = next) {
		struct out_queue *q = queue_of(o, s);
		int ms = lines_wait_ms(&q->lines, s);

		next = TAILQ_NEXT(s, next);
		if (q->sink.broken)
			continue;
		if (out_queue_is_full(q)) {
			look_in(o, LINES_PARTIAL_MS);
		} else if (now - s->since_ms < (uint64_t)ms) {
			look_in(o, (int)(s->since_ms + (uint64_t)ms - now));
		} else {
			o->held -= lines_held(s);
			lines_show(&q->lines, s);
			o->held += lines_held(s);
			output_watch(o, s);
			event_active(o->flush, EV_TIMEOUT, 0);
		}
	}
	for (int i = 0; i < 2; i++)
		if (o->queue[i].lines.equal && !o->queue[i].sink.broken)
			output_put_equal(o, &o->queue[i], false);
}

/* ---- from chunks to the queue ---- */

/* N bytes of chunk C.  Stream 0 is runner's own. */
static void put_slice(struct output *o, struct out_queue *q, const struct out_chunk *c,
		      const char *bytes, size_t n)
{
	struct line_stream *s;

	if (!c->stream) {
		lines_note(&q->lines, bytes, n);
		return;
	}
	s = &o->stream[2 * c->rank + c->stream - 1];
	if (o->raw) { /* a note of runner has to know whether it begins a line */
		lines_put_raw(&q->lines, s, bytes, n);
		return;
	}
	if (o->timestamps)
		stamp_lines(o, q);
	if (q->lines.equal)
		q->lines.now_ms = clock_ms();
	o->held -= lines_held(s);
	lines_put(&q->lines, s, bytes, n);
	o->held += lines_held(s);
	if (q->lines.equal)
		output_put_equal(o, q, false);
	while (o->held > HELD_MAX_BYTES) { /* many ranks, and no line has an end */
		struct line_stream *longest = o->stream;

		for (uint32_t i = 1; i < 2 * o->np; i++)
			if (lines_held(&o->stream[i]) > lines_held(longest))
				longest = &o->stream[i];
		o->held -= lines_held(longest);
		lines_pass_on(&queue_of(o, longest)->lines, longest);
		o->held += lines_held(longest);
	}
	output_watch(o, s);
}

/* Pass on what stream S still holds. */
static void finish_stream(struct output *o, struct line_stream *s)
{
	o->held -= lines_held(s);
	if (!o->muted)
		lines_finish(&queue_of(o, s)->lines, s);
	else
		s->line.len = s->update.len = 0;
	o->held += lines_held(s);
	output_watch(o, s);
}

/* The spool is read: the job has ended, or the file takes no more.  What comes then
 * waits behind it, else it would tear lines. */
static bool reads_spool(const struct output *o)
{
	return o->spool && (o->finished || o->spool_full) && !o->muted &&
	       spool_next(o->spool);
}

/* Read the spool as far as there is room: rank after rank, each with its last lines if
 * the job has ended. */
static void read_spool(struct output *o)
{
	char bytes[SLICE_BYTES];
	uint32_t rank = 0;
	size_t n;

	while (reads_spool(o)) {
		const struct spool_piece *p = spool_next(o->spool);
		const struct out_chunk c = { .rank = p->rank, .stream = p->stream };
		struct out_queue *q = p->stream == 1 ? &o->queue[0] : o->err_queue;

		if (!out_queue_has_room(q) && !q->sink.broken)
			return;
		o->came_ns = p->time_ns;
		for (; o->finished && !o->spool_full && rank < p->rank; rank++)
			for (uint32_t i = 2 * rank; i < 2 * rank + 2; i++)
				finish_stream(o, &o->stream[i]);
		if (spool_read(o->spool, bytes, sizeof bytes, &n))
			break; /* the file of a process that has it open alone */
		if (!q->sink.broken)
			put_slice(o, q, &c, bytes, n);
	}
	o->came_ns = 0;
}

/* Queue the chunks that waited, as far as there is room.  Behind the last one come the
 * lines that have no end. */
static void take_waiting(struct output *o, struct out_queue *q)
{
	struct out_chunk c;
	const char *bytes;

	while ((bytes = out_queue_first(q, &c))) {
		if (c.n > SLICE_BYTES)
			c.n = c.cost = SLICE_BYTES;
		put_slice(o, q, &c, bytes, c.n);
		out_queue_drop(q, &c);
		out_queue_credit(q, &c);
	}
	for (uint32_t i = 0; i < 2 * o->np && o->finished && !q->head; i++)
		if (queue_of(o, &o->stream[i]) == q)
			finish_stream(o, &o->stream[i]);
	if (q->lines.equal && o->finished && !q->head && !o->muted)
		output_put_equal(o, q, true);
	if (!q->head)
		event_active(o->flush, EV_TIMEOUT, 0);
}

/* The spool first, which has pieces for both queues. */
static void on_room(struct out_queue *q)
{
	struct output *o = q->ctx;
	const bool reads = reads_spool(o);

	read_spool(o);
	if (reads_spool(o)) {
		event_active(o->flush, EV_TIMEOUT, 0);
		return; /* the rest comes when there is room again */
	}
	for (int i = 0; i < 2; i++)
		if ((&o->queue[i] == q || reads) && !o->queue[i].sink.broken)
			take_waiting(o, &o->queue[i]);
}

static void output_on_left(struct out_queue *q, uint32_t host, size_t n)
{
	struct output *o = q->ctx;

	o->events->left(o->ctx, host, n);
}

static void output_on_broken(struct out_queue *q, int error)
{
	struct output *o = q->ctx;

	if (q->lines.terminal && error == EIO) /* it was closed */
		error = EPIPE;
	o->events->unread(o->ctx, q == &o->queue[0] ? "stdout" : "stderr", error);
}

/* Queue chunk C as far as there is room, and keep the rest. */
static void add_chunk(struct output *o, struct out_queue *q, struct out_chunk c,
		      const char *bytes)
{
	while (c.n && !out_queue_is_full(q) && !reads_spool(o)) {
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
	else if (q->sink.queue.len || q->lines.bar)
		event_active(o->flush, EV_TIMEOUT, 0);
}

/* ---- what the job calls ---- */

static bool is_shown(const struct output_look *look, uint32_t rank, unsigned stream)
{
	return rank_set_has(&look->show, rank) || (stream == 2 && look->show_errors);
}

bool output_is_live(const struct output *o, uint32_t rank)
{
	return o->err_queue->lines.terminal && !o->muted && !o->spool &&
	       is_shown(&o->request->output, rank, 2);
}

/* Into the spool, if there is one and it takes it. */
static bool is_spooled(struct output *o, uint32_t rank, unsigned stream,
		       const void *data, size_t n)
{
	struct spool_piece p = { .rank = rank, .stream = stream, .n = (uint32_t)n };
	struct timespec now;
	struct err e;
	int error;

	if (!o->spool || o->spool_full)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	p.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	error = spool_add(o->spool, &p, data);
	o->spool_full = error != 0;
	if (error) {
		err_set(&e, E_SORT_FILE, file_tmp_folder(), strerror(error));
		output_note(
			o, "runner: warning: %s; output is shown as it comes\nhint: %s",
			e.text, e.hint);
	}
	return !error;
}

/* N bytes of RANK, of which COST is to be given back to HOST: keep and show them. */
static void take_data(struct output *o, uint32_t host, uint32_t rank, unsigned stream,
		      const void *data, size_t n, size_t cost)
{
	struct out_queue *q = stream == 1 ? &o->queue[0] : o->err_queue;

	o->last_ms[rank] = clock_ms();
	logfiles_write(o->files, rank, stream, data, n);
	if (stream == 2) {
		if (!o->tail[rank])
			o->tail[rank] = xcalloc(1, sizeof *o->tail[rank]);
		tail_add(o->tail[rank], data, n);
	}
	if (!n || o->muted || q->sink.broken ||
	    !is_shown(&o->request->output, rank, stream))
		o->events->left(o->ctx, host, cost);
	else if (is_spooled(o, rank, stream, data, n))
		o->events->left(o->ctx, host, cost);
	else
		add_chunk(o, q,
			  (struct out_chunk){ host, rank, stream, (uint32_t)n,
					      (uint32_t)cost },
			  data);
	if (reads_spool(o))
		on_room(q);
}

void output_data(struct output *o, uint32_t host, uint32_t rank, unsigned stream,
		 const void *data, size_t n)
{
	const size_t cost = n + WIRE_OUTPUT_HEAD_BYTES;
	struct str show = { 0 };

	if (rank >= o->np || stream < WIRE_STDOUT ||
	    stream > (o->nccl ? WIRE_NCCL_LOG : WIRE_STDERR))
		return;
	if (o->nccl)
		nccl_log_put(o->nccl, rank, stream, o->events->host_name(o->ctx, host),
			     data, n, stream == WIRE_NCCL_LOG ? &show : NULL);
	if (stream != WIRE_NCCL_LOG) {
		take_data(o, host, rank, stream, data, n, cost);
		return;
	}
	o->events->left(o->ctx, host, cost);
	if (show.len)
		take_data(o, host, rank, WIRE_STDOUT, show.s, show.len, 0);
	str_free(&show);
}

static void on_flush(evutil_socket_t fd, short what, void *ctx)
{
	struct output *o = ctx;

	(void)fd;
	(void)what;
	for (int i = 0; i < 2; i++) {
		struct out_queue *q = &o->queue[i];

		/* A slow terminal gets only the updates for which it has room. */
		if (q->sink.queue.len < PUSH_BYTES && !q->sink.broken && !q->head)
			lines_draw(&q->lines);
		sink_push(&q->sink);
	}
}

void output_finish(struct output *o)
{
	o->finished = true;
	for (int i = 0; i < 2; i++)
		if (!o->queue[i].sink.broken)
			on_room(&o->queue[i]);
	on_flush(-1, 0, o);
}

static void forget_tail(struct output *o, uint32_t rank)
{
	if (o->tail[rank])
		tail_free(o->tail[rank]);
	free(o->tail[rank]);
	o->tail[rank] = NULL;
}

static void forget_tails(struct output *o)
{
	for (uint32_t i = 0; i < o->np; i++)
		forget_tail(o, i);
}

static void say_old_files(struct output *o, struct str *note)
{
	if (note->len && o->request->verbosity >= 0)
		output_note(o, "runner: --output-filename: %s", note->s);
	str_free(note);
}

int output_rank_again(struct output *o, uint32_t rank, struct err *e)
{
	struct str note = { 0 };
	int rc;

	for (uint32_t i = 2 * rank; i < 2 * rank + 2; i++) {
		struct line_stream *s = &o->stream[i];
		struct lines *l = &queue_of(o, s)->lines;

		o->held -= lines_held(s);
		if (!o->muted && !o->raw && (s->line.len || l->open == s))
			lines_put(l, s, "\n", 1);
		o->held += lines_held(s);
		output_watch(o, s);
	}
	forget_tail(o, rank);
	if (o->nccl)
		nccl_log_again(o->nccl, rank);
	rc = logfiles_rank_again(o->files, rank, &note, e);
	say_old_files(o, &note);
	return rc;
}

int output_restart(struct output *o, uint32_t epoch, struct err *e)
{
	struct str note = { 0 };
	int rc = logfiles_restart(o->files, epoch, &note, e);

	say_old_files(o, &note);
	o->finished = false;
	forget_tails(o);
	memset(o->last_ms, 0, o->np * sizeof *o->last_ms);
	if (o->spool)
		spool_empty(o->spool);
	o->spool_full = false;
	if (o->nccl) {
		nccl_log_free(o->nccl);
		o->nccl = nccl_log_open(o->np);
	}
	return rc;
}

size_t output_waiting(const struct output *o)
{
	return (reads_spool(o) ? spool_left(o->spool) : 0) +
	       o->queue[0].sink.queue.len + o->queue[0].waiting +
	       o->queue[1].sink.queue.len + o->queue[1].waiting;
}

const struct nccl_pairs *output_nccl(const struct output *o)
{
	return o->nccl ? nccl_log_pairs(o->nccl) : NULL;
}

void output_mute(struct output *o)
{
	o->muted = true;
}

/* The N bytes of a whole line of runner itself. */
static void add_own_line(struct output *o, struct out_queue *q, const char *line,
			 size_t n)
{
	const struct out_chunk c = { .n = (uint32_t)n, .cost = (uint32_t)n };

	if (q->sink.broken)
		return;
	add_chunk(o, q, c, line);
	sink_push(&q->sink);
}

void output_note(struct output *o, const char *format, ...)
{
	va_list ap;
	char *text, *line;

	va_start(ap, format);
	text = xvasprintf(format, ap);
	va_end(ap);
	line = xasprintf("%s\n", text);
	add_own_line(o, o->err_queue, line, strlen(line));
	free(text);
	free(line);
}

bool output_shows_status(const struct output *o, size_t *width, size_t *rows)
{
	const struct lines *l = &o->err_queue->lines;
	struct winsize size = { 0 };

	if (!l->drawing || o->muted || o->err_queue->sink.broken)
		return false;
	if (ioctl(o->err_queue->sink.fd, TIOCGWINSZ, &size) || !size.ws_col)
		size = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	*width = size.ws_col;
	*rows = size.ws_row;
	return true;
}

void output_status(struct output *o, const char *text)
{
	/* a terminal that is slow, or stopped by ^S, gets no new one */
	if (text && o->err_queue->sink.queue.len)
		return;
	lines_status(&o->err_queue->lines, &o->own, text);
	event_active(o->flush, EV_TIMEOUT, 0);
}

void output_line(struct output *o, const char *line, size_t n)
{
	add_own_line(o, &o->queue[0], line, n);
}

void output_settle(struct output *o)
{
	const uint64_t until = clock_ms() + SETTLE_MS;
	struct sink *s = &o->queue[0].sink;
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };

	for (sink_push(s); s->queue.len && !s->broken && clock_ms() < until;
	     sink_push(s))
		poll(&p, 1, 100);
}

const char *output_tail(const struct output *o, uint32_t rank)
{
	return o->tail[rank] ? tail_lines(o->tail[rank]) : "";
}

const char *output_reason(const struct output *o, uint32_t rank, bool *gap)
{
	return o->tail[rank] ? tail_reason(o->tail[rank], gap) : NULL;
}

long output_quiet_ms(const struct output *o, uint32_t rank)
{
	return o->last_ms[rank] ? (long)(clock_ms() - o->last_ms[rank]) : -1;
}

void output_typed(struct output *o)
{
	struct termios t;

	if (tcgetattr(STDIN_FILENO, &t) || !(t.c_lflag & ECHO))
		return;
	for (int i = 0; i < 2; i++)
		if (o->queue[i].lines.terminal)
			lines_typed(&o->queue[i].lines);
}

/* The queue of stdout or stderr: FD. */
static void open_queue(struct output *o, struct event_base *base, int fd)
{
	static const struct out_queue_events events = { output_on_left, on_room,
							output_on_broken };
	struct out_queue *q = &o->queue[fd - 1];
	struct lines *l = &q->lines;
	const struct output_look *look = &o->request->output;
	const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");

	out_queue_open(q, base, fd, &events, o);
	l->drawing = l->terminal && term && *term && strcmp(term, "dumb");
	l->tag_style = look->tag_style;
	if (look->coalesce)
		l->equal = coalesce_open(o->np);
	l->colour = look->colour == COLOUR_ALWAYS ||
		    (look->colour == COLOUR_AUTO && l->drawing &&
		     !(no_colour && *no_colour));
}

static int open_files(struct output *o, const struct log_rank *rank, const char *job,
		      struct err *e)
{
	struct log_names names = { o->request->output.dir, job, o->np,
				   xcalloc(o->np, sizeof *names.rank), 1 };
	struct str note = { 0 };
	int rc;

	memcpy(names.rank, rank, o->np * sizeof *rank);
	rc = logfiles_open(&o->files, &names, &note, o->events->disk, o->ctx, e);
	say_old_files(o, &note);
	return rc;
}

int output_open(struct output **out, struct event_base *base, const struct request *r,
		uint32_t np, const struct log_rank *rank, const char *job,
		const struct output_events *events, void *ctx, struct err *e)
{
	struct output *o = xcalloc(1, sizeof *o);
	struct stat x, y;
	bool same = !fstat(1, &x) && !fstat(2, &y) && x.st_dev == y.st_dev &&
		    x.st_ino == y.st_ino && x.st_rdev == y.st_rdev;

	*o = (struct output){ .np = np, .request = r, .events = events, .ctx = ctx };
	o->timestamps = r->output.timestamps;
	o->raw = np == 1 && r->output.tag_style == TAG_NONE && !r->output.timestamps;
	o->stream = xcalloc(2 * (size_t)np, sizeof *o->stream);
	o->tail = xcalloc(np, sizeof *o->tail);
	o->last_ms = xcalloc(np, sizeof *o->last_ms);
	for (int i = 0; i < 2; i++)
		open_queue(o, base, i + 1);
	o->err_queue = same ? &o->queue[0] : &o->queue[1];
	for (uint32_t i = 0; i < 2 * np; i++)
		o->stream[i].index = i;
	TAILQ_INIT(&o->wait);
	o->flush = event_new(base, -1, 0, on_flush, o);
	o->later = event_new(base, -1, 0, on_later, o);
	*out = o;
	if (r->insight.nccl_transports)
		o->nccl = nccl_log_open(np);
	if (r->output.sort && spool_open(&o->spool, np, e))
		return -1;
	return r->output.dir ? open_files(o, rank, job, e) : 0;
}

void output_free(struct output *o)
{
	if (!o)
		return;
	logfiles_free(o->files);
	spool_free(o->spool);
	nccl_log_free(o->nccl);
	for (uint32_t i = 0; i < 2 * o->np; i++)
		lines_free_stream(&o->stream[i]);
	lines_free_stream(&o->own);
	forget_tails(o);
	for (int i = 0; i < 2; i++) {
		coalesce_free(o->queue[i].lines.equal);
		out_queue_free(&o->queue[i]);
	}
	event_free(o->flush);
	event_free(o->later);
	free(o->stream);
	free(o->tail);
	free(o->last_ms);
	free(o);
}
