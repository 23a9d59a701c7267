#include "launcher/output/lines.h"

#include <stdlib.h>
#include <string.h>

enum {
	LINES_MAX_BYTES = 65536, /* a longer line is passed on in parts */
	SMALL_BYTES = 4096,
	DRAWN_MAX_BYTES = 32768 /* no line is wider, no table of --top larger */
};

#define ERASE "\r\x1b[K"
#define WRAP_OFF "\x1b[?7l"
#define WRAP_ON "\x1b[?7h"

static void put_text(struct lines *l, const char *text)
{
	buf_add(l->out, text, strlen(text));
}

/* ---- labels ---- */

/* Labels are made once.  snprintf() for each line took too much CPU time (12 % of all,
 * for one rank that wrote 80-byte lines through ssh). */
static size_t print_label(const struct lines *l, char *label, size_t bytes,
			  uint32_t index, const char *ranks)
{
	/* Each rank has one of these; red would look like an error. */
	static const char *const colours[] = { "36", "33", "32", "35", "34",
					       "96", "93", "92", "95", "94" };
	const unsigned rank = index / 2, err = index % 2;
	const char *colour =
		colours[rank % (unsigned)(sizeof colours / sizeof *colours)];
	const char *stream = l->tag_style == TAG_SHORT ? ""
			     : err                     ? "<stderr>:"
						       : "<stdout>:";

	return (size_t)snprintf(label, bytes, "%s%s%s%s[%s]%s%s%s",
				l->colour ? "\x1b[" : "", l->colour && err ? "7;" : "",
				l->colour ? colour : "", l->colour ? "m" : "", ranks,
				stream, l->colour ? "\x1b[0m" : "",
				l->tag_style == TAG_SHORT ? " " : "");
}

static void make_label(const struct lines *l, struct line_stream *s)
{
	char rank[16];

	snprintf(rank, sizeof rank, "%u", s->index / 2);
	s->label_bytes =
		(uint8_t)print_label(l, s->label, sizeof s->label, s->index, rank);
}

static void put_label(struct lines *l, struct line_stream *s)
{
	if (l->stamp_bytes)
		buf_add(l->out, l->stamp, l->stamp_bytes);
	if (l->tag_style == TAG_NONE)
		return;
	if (!s->label_bytes)
		make_label(l, s);
	buf_add(l->out, s->label, s->label_bytes);
}

unsigned lines_label_columns(enum tag_style style, bool stamped, uint32_t np)
{
	const struct lines l = { .tag_style = style };
	struct line_stream last = { .index = 2 * (np - 1) };

	if (style != TAG_NONE)
		make_label(&l, &last);
	return last.label_bytes + (stamped ? (unsigned)LINES_STAMP_COLUMNS : 0);
}

/* ---- the last line of the terminal, file or pipe ---- */

/* Make it an empty one. */
static void clear_line(struct lines *l)
{
	char up[32];

	if (l->drawn && l->drawn_above) {
		snprintf(up, sizeof up, "\r\x1b[%uA\x1b[J", l->drawn_above);
		put_text(l, up);
	} else if (l->drawn)
		put_text(l, ERASE);
	else if (l->open)
		put_text(l, "\n");
	l->drawn = false;
	l->drawn_above = 0;
	l->open = NULL;
}

/* ---- equal lines of several ranks ---- */

static void lines_put_equal_all(struct lines *l, struct coalesced *e)
{
	struct str ranks = { 0 };
	char *label;
	size_t bytes;

	clear_line(l);
	buf_add(l->out, e->stamp, e->stamp_bytes);
	if (l->tag_style != TAG_NONE) {
		rank_set_print(&ranks, &e->ranks);
		bytes = ranks.len + LINES_LABEL_BYTES;
		label = xmalloc(bytes);
		buf_add(l->out, label,
			print_label(l, label, bytes, e->index, str_text(&ranks)));
		free(label);
		str_free(&ranks);
	}
	buf_add(l->out, e->text, e->n);
	coalesced_free(e);
}

int lines_put_equal(struct lines *l, bool all)
{
	struct coalesced e;
	uint64_t due_ms;

	if (!l->equal)
		return LINES_NEVER;
	while (coalesce_take(l->equal, all ? COALESCE_ALL : l->now_ms, &e))
		lines_put_equal_all(l, &e);
	due_ms = coalesce_due_ms(l->equal);
	return due_ms ? (int)(due_ms - l->now_ms) : LINES_NEVER;
}

/* Behind it stands text of S, or the label of S. */
static void begin_line(struct lines *l, struct line_stream *s)
{
	struct coalesced e;

	if (l->open == s)
		return;
	while (l->equal && coalesce_take_of(l->equal, s->index / 2, &e))
		lines_put_equal_all(l, &e);
	clear_line(l);
	put_label(l, s);
	l->open = s;
}

static bool no_text(const char *p, size_t n)
{
	return n == 0 || (n == 1 && *p == '\n') || (n == 2 && *p == '\r');
}

/* S's update as a line, with END. */
static void put_update(struct lines *l, struct line_stream *s, const char *end,
		       size_t n)
{
	begin_line(l, s);
	buf_add(l->out, s->update.s, s->update.len);
	buf_add(l->out, end, n);
	l->open = NULL;
	s->update.len = 0;
}

static void forget_update(struct lines *l, struct line_stream *s)
{
	s->update.len = 0;
	s->after_update = s->written = false;
	if (s->update.cap > SMALL_BYTES)
		str_free(&s->update);
	if (l->bar == s)
		l->bar = NULL;
}

/* ---- one line, one update ---- */

/* A line of S with its end.  SHOWN bytes of it are on the terminal. */
static void put_line(struct lines *l, struct line_stream *s, const char *p, size_t n,
		     size_t shown)
{
	if (shown && l->open != s && no_text(p + shown, n - shown))
		return; /* another line ended it */
	if (s->after_update) {
		bool ends_update = no_text(p, n);

		if (s->update.len && (ends_update || !l->drawing))
			put_update(l, s, ends_update ? p : "\n", ends_update ? n : 1);
		else
			ends_update &= s->written;
		forget_update(l, s);
		if (ends_update)
			return;
	}
	if (l->equal && l->open != s) {
		coalesce_add(l->equal, s->index, p + shown, n - shown, l->stamp,
			     l->stamp_bytes, l->now_ms);
		lines_put_equal(l, false);
		return;
	}
	begin_line(l, s);
	buf_add(l->out, p + shown, n - shown);
	l->open = NULL;
}

/* Nothing but blanks and sequences: a program erases its progress bar. */
static bool is_blank(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\x1b' && i + 1 < n && p[i + 1] == '[')
			for (i += 2; i < n && (p[i] < '@' || p[i] > '~');)
				i++;
		else if (p[i] != ' ')
			return false;
	}
	return true;
}

/* Takes the N bytes at P, which a '\r' follows.  SHOWN of them are on the terminal. */
static void take_update(struct lines *l, struct line_stream *s, const char *p, size_t n,
			size_t shown)
{
	s->after_update = true;
	if (l->open == s && !l->drawing) { /* its begin is a line already */
		buf_add(l->out, p + shown, n - shown);
		put_text(l, "\n");
		l->open = NULL;
		s->written = true;
		return;
	}
	if (l->open == s) { /* it is on the last line, and may be erased */
		l->open = NULL;
		l->drawn = true;
	}
	if (!n)
		return;
	s->written = false;
	s->update.len = 0;
	if (is_blank(p, n)) {
		if (l->bar == s)
			l->bar = NULL;
		return;
	}
	str_addn(&s->update, p, n);
	l->bar = s;
	l->drawn_new = true;
}

/* Put the whole lines of the N bytes at P, of whose first line SHOWN are on the
 * terminal.  Returns the bytes of these lines.  Each '\n' and '\r' is searched once. */
static size_t put_whole(struct lines *l, struct line_stream *s, const char *p, size_t n,
			size_t shown)
{
	const char *at = p, *stop = p + n;
	const char *nl = memchr(p, '\n', n), *cr = memchr(p, '\r', n);

	for (;;) {
		while (cr && cr + 1 < stop && cr[1] == '\n')
			cr = cr + 2 < stop
				     ? memchr(cr + 2, '\r', (size_t)(stop - cr - 2))
				     : NULL;
		if (cr && cr + 1 < stop && (!nl || cr < nl)) {
			take_update(l, s, at, (size_t)(cr - at), shown);
			at = cr + 1;
			cr = memchr(at, '\r', (size_t)(stop - at));
		} else if (nl) {
			put_line(l, s, at, (size_t)(nl + 1 - at), shown);
			at = nl + 1;
			nl = memchr(at, '\n', (size_t)(stop - at));
		} else {
			return (size_t)(at - p);
		}
		shown = 0;
	}
}

/* ---- what the caller calls ---- */

void lines_put(struct lines *l, struct line_stream *s, const char *p, size_t n)
{
	struct str *line = &s->line;
	size_t whole;

	if (line->len) { /* finish the line that began in an earlier frame */
		const char *nl = memchr(p, '\n', n);
		size_t take = nl ? (size_t)(nl - p) + 1 : n;

		str_addn(line, p, take);
		p += take;
		n -= take;
		whole = put_whole(l, s, line->s, line->len, s->shown);
		if (whole)
			s->shown = 0;
		line->len -= whole;
		memmove(line->s, line->s + whole, line->len + 1);
	}
	whole = put_whole(l, s, p, n, 0);
	str_addn(line, p + whole, n - whole);
	if (line->len > LINES_MAX_BYTES)
		lines_pass_on(l, s);
	if (!line->len && line->cap > SMALL_BYTES)
		str_free(line);
	if (l->drawing && line->len && !s->shown &&
	    (s->after_update || line->s[line->len - 1] == '\r')) {
		l->bar = s;
		l->drawn_new = true;
	}
}

void lines_put_raw(struct lines *l, const struct line_stream *s, const char *p,
		   size_t n)
{
	buf_add(l->out, p, n);
	if (n)
		l->open = p[n - 1] == '\n' ? NULL : s;
}

void lines_note(struct lines *l, const char *p, size_t n)
{
	lines_put_equal(l, true);
	clear_line(l);
	buf_add(l->out, p, n);
}

/* A '\r' at the end stays, as a '\n' may follow. */
void lines_pass_on(struct lines *l, struct line_stream *s)
{
	struct str *line = &s->line;
	size_t stays = line->len && line->s[line->len - 1] == '\r';

	if (s->update.len)
		put_update(l, s, "\n", 1);
	forget_update(l, s);
	if (line->len == stays)
		return;
	begin_line(l, s);
	buf_add(l->out, line->s + s->shown, line->len - stays - s->shown);
	s->shown = 0;
	line->s[0] = '\r';
	line->len = stays;
	line->s[stays] = '\0';
}

/* The bytes of S's line that end with a whole character. */
static size_t whole_characters(const struct line_stream *s)
{
	size_t n = s->line.len, first = n;

	while (first && n - first < 4 && (s->line.s[first - 1] & 0xc0) == 0x80)
		first--;
	if (first && (s->line.s[first - 1] & 0xc0) == 0xc0 &&
	    !str_utf8(s->line.s + first - 1))
		return first - 1;
	return n;
}

int lines_wait_ms(const struct lines *l, const struct line_stream *s)
{
	size_t n = s->line.len;
	bool update = n && s->line.s[n - 1] == '\r';

	if (!l->drawing && (s->update.len || update))
		return LINES_UPDATE_MS;
	if (l->drawing && update && s->shown)
		return LINES_PARTIAL_MS;
	if (l->terminal && !update && !s->after_update &&
	    whole_characters(s) > s->shown)
		return LINES_PARTIAL_MS;
	return LINES_NEVER;
}

void lines_show(struct lines *l, struct line_stream *s)
{
	size_t n = s->line.len;

	if (n && s->line.s[n - 1] == '\r') {
		take_update(l, s, s->line.s, n - 1, s->shown);
		s->line.len = s->shown = 0;
	} else if (lines_wait_ms(l, s) == LINES_PARTIAL_MS) {
		n = whole_characters(s);
		begin_line(l, s);
		buf_add(l->out, s->line.s + s->shown, n - s->shown);
		s->shown = n;
	}
	if (s->update.len && !l->drawing) {
		put_update(l, s, "\n", 1);
		s->written = true;
	}
}

void lines_typed(struct lines *l)
{
	l->open = NULL;
	l->drawn = false;
}

void lines_finish(struct lines *l, struct line_stream *s)
{
	struct str *line = &s->line;
	size_t n = line->len;
	bool update = n && line->s[n - 1] == '\r';

	if (update || (n && s->after_update)) {
		take_update(l, s, line->s, n - update, s->shown);
		line->len = n = 0;
	}
	if (s->update.len)
		put_update(l, s, "\n", 1);
	if (n) {
		begin_line(l, s);
		buf_add(l->out, line->s + s->shown, n - s->shown);
	}
	forget_update(l, s);
	line->len = s->shown = 0;
}

/* ---- the update on the terminal ---- */

/* Append the N bytes at P without the sequences that move the cursor. */
static void add_drawable(struct str *out, const char *p, size_t n)
{
	for (size_t i = 0; i < n && out->len < DRAWN_MAX_BYTES; i++) {
		size_t end = i;

		if (p[i] != '\x1b') { /* a '\n' is in runner's own table alone */
			if (((unsigned char)p[i] >= ' ' && p[i] != 0x7f) ||
			    p[i] == '\n')
				str_addn(out, p + i, 1);
			continue;
		}
		if (i + 1 < n && p[i + 1] == '[')
			for (end = i + 2; end < n && (p[end] < '@' || p[end] > '~');)
				end++;
		if (end > i && end < n && p[end] == 'm')
			str_addn(out, p + i, end - i + 1);
		i = end > i ? end : i + 1;
	}
}

void lines_status(struct lines *l, struct line_stream *own, const char *text)
{
	if (!l->drawing || (l->bar && l->bar != own && lines_held(l->bar)))
		return;
	if (!own->label_bytes)
		own->label_bytes =
			(uint8_t)snprintf(own->label, sizeof own->label, "runner: ");
	own->update.len = 0;
	str_add(&own->update, text ? text : "");
	l->bar = own->update.len ? own : NULL;
	l->drawn_new = true;
}

void lines_draw(struct lines *l)
{
	struct line_stream *s = l->bar;
	struct str text = { 0 };
	size_t n;
	bool end;

	if (!l->drawing || l->open || (s && l->drawn && !l->drawn_new))
		return;
	clear_line(l);
	l->drawn_new = false;
	if (!s)
		return;
	n = s->line.len;
	end = n && s->line.s[n - 1] == '\r';
	if (!is_blank(str_text(&s->line), n - end))
		add_drawable(&text, s->line.s, n - end);
	else if (n - end == 0 || !end)
		add_drawable(&text, str_text(&s->update), s->update.len);
	if (text.len) {
		put_text(l, WRAP_OFF);
		put_label(l, s);
		buf_add(l->out, text.s, text.len);
		for (size_t i = 0; i < text.len; i++)
			l->drawn_above += text.s[i] == '\n';
		if (memchr(text.s, '\x1b', text.len))
			put_text(l, "\x1b[0m");
		put_text(l, WRAP_ON);
		l->drawn = true;
	}
	str_free(&text);
}

void lines_free_stream(struct line_stream *s)
{
	str_free(&s->line);
	str_free(&s->update);
}
