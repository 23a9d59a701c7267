#include "launcher/trace/trace_read.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "common/str.h"

enum {
	FIRST_BYTES = 8192, /* of memory, at first */
	DEEPEST = 64,       /* objects and lists in one another */
	GZ_BYTES = 16384,
	NUMBER_BYTES = 64 /* behind which what is none cannot become one */
};

/* A value: all of it is there, not all yet, or it is none. */
enum scan { SCAN_OK, SCAN_MORE, SCAN_BAD };

struct trace_reader {
	char *name;
	gzFile gz; /* NULL: PULL */
	trace_pull *pull;
	void *ctx;
	char *buf; /* one byte more than ROOM: a NUL behind what was read */
	size_t at, len, room, most;
	uint64_t base; /* place of buf[0] in the file */
	bool end;      /* of the file: no more comes */
	bool object, closed, over, cut;
	const char *why; /* of SCAN_BAD */
	const char *bad; /* where */
};

/* ---- bytes ---- */

int trace_reader_open(struct trace_reader **r, const char *path, size_t most,
		      struct err *e)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	gzFile gz = fd >= 0 ? gzdopen(fd, "rb") : NULL;

	if (!gz) {
		err_set(e, E_TRACE_READ, path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	gzbuffer(gz, GZ_BYTES);
	trace_reader_from(r, path, NULL, NULL, most);
	(*r)->gz = gz;
	return 0;
}

void trace_reader_from(struct trace_reader **r, const char *name, trace_pull *pull,
		       void *ctx, size_t most)
{
	struct trace_reader *t = xcalloc(1, sizeof *t);

	*t = (struct trace_reader){ .name = xstrdup(name),
				    .pull = pull,
				    .ctx = ctx,
				    .most = most,
				    .room = most < FIRST_BYTES ? most : FIRST_BYTES };
	t->buf = xmalloc(t->room + 1);
	t->buf[0] = '\0';
	*r = t;
}

void trace_reader_free(struct trace_reader *r)
{
	if (!r)
		return;
	if (r->gz)
		gzclose_r(r->gz);
	free(r->buf);
	free(r->name);
	free(r);
}

/* A gzip file that ends early has what it has. */
static ssize_t read_bytes(struct trace_reader *r, char *to, size_t n)
{
	int got, error;

	if (!r->gz)
		return r->pull(r->ctx, to, n);
	got = gzread(r->gz, to, (unsigned)n);
	if (got >= 0)
		return got;
	gzerror(r->gz, &error);
	if (error == Z_BUF_ERROR)
		return 0;
	if (error != Z_ERRNO)
		errno = EBADMSG;
	return -1;
}

/* Read more behind what has not been used.  1; 0: the file is at its end, or nothing
 * more has room; -1 with E. */
static int read_more(struct trace_reader *r, struct err *e)
{
	ssize_t n;

	if (r->end)
		return 0;
	memmove(r->buf, r->buf + r->at, r->len - r->at);
	r->base += r->at;
	r->len -= r->at;
	r->at = 0;
	if (r->len == r->room && r->room < r->most) {
		r->room = 2 * r->room < r->most ? 2 * r->room : r->most;
		r->buf = xrealloc(r->buf, r->room + 1);
	}
	if (r->len == r->room)
		return 0;
	n = read_bytes(r, r->buf + r->len, r->room - r->len);
	if (n < 0)
		return err_set(e, E_TRACE_READ, r->name,
			       errno == EBADMSG ? "its gzip data are damaged"
						: strerror(errno));
	r->end = !n;
	r->len += (size_t)n;
	r->buf[r->len] = '\0';
	return n > 0;
}

/* ---- values ---- */

/* A part of the text that was read: [p, end), and a NUL there. */
struct scan_at {
	const char *p, *end;
	const char *why;
};

static enum scan scan_bad(struct scan_at *s, const char *why)
{
	s->why = why;
	return s->p < s->end ? SCAN_BAD : SCAN_MORE;
}

static bool scan_is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static enum scan scan_blank(struct scan_at *s)
{
	while (s->p < s->end && scan_is_blank(*s->p))
		s->p++;
	return s->p < s->end ? SCAN_OK : SCAN_MORE;
}

static enum scan scan_escape(struct scan_at *s)
{
	if (s->end - s->p < 6 && (s->end - s->p < 2 || s->p[1] == 'u')) {
		s->p = s->end;
		return SCAN_MORE;
	}
	if (!strchr("\"\\/bfnrtu", s->p[1]) || !s->p[1])
		return scan_bad(s, "an escape that there is not");
	if (s->p[1] == 'u')
		for (int i = 2; i < 6; i++)
			if (!isxdigit((unsigned char)s->p[i]))
				return scan_bad(s, "an escape that there is not");
	s->p += s->p[1] == 'u' ? 6 : 2;
	return SCAN_OK;
}

/* The string at S into T, without its quotes. */
static enum scan scan_string(struct scan_at *s, struct trace_text *t)
{
	enum scan found;

	if (*s->p != '"')
		return scan_bad(s, "no string");
	s->p++;
	t->s = s->p;
	while (s->p < s->end) {
		const unsigned char c = (unsigned char)*s->p;
		size_t n;

		if (c == '"') {
			t->n = (size_t)(s->p++ - t->s);
			return SCAN_OK;
		}
		if (c == '\\') {
			found = scan_escape(s);
			if (found != SCAN_OK)
				return found;
			continue;
		}
		if (c < ' ')
			return scan_bad(s, "a control character in a string");
		n = c < 0x80 ? 1 : str_utf8(s->p);
		if (!n && s->end - s->p < 4)
			break; /* perhaps the rest of it comes */
		if (!n)
			return scan_bad(s, "a string that is not UTF-8");
		s->p += n;
	}
	s->p = s->end;
	return SCAN_MORE;
}

/* The key of a member, up to its value. */
static enum scan scan_key(struct scan_at *s, struct trace_text *key)
{
	enum scan found = scan_string(s, key);

	found = found != SCAN_OK ? found : scan_blank(s);
	if (found != SCAN_OK)
		return found;
	if (*s->p != ':')
		return scan_bad(s, "no ':' behind a key");
	s->p++;
	return scan_blank(s);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Behind the digits at P; NULL: there are none, or the text ends. */
static const char *skip_digits(const char *p)
{
	const char *begin = p;

	while (is_digit(*p))
		p++;
	return p > begin ? p : NULL;
}

/* A number, or a word, at S.  The byte behind it is there, too. */
static enum scan scan_word(struct scan_at *s)
{
	static const char *const words[] = { "true", "false", "null" };
	const char *p = s->p;
	size_t n;

	for (size_t i = 0; i < 3; i++)
		if (*p == *words[i]) {
			n = strlen(words[i]);
			if ((size_t)(s->end - p) < n + 1) {
				s->p = s->end;
				return SCAN_MORE;
			}
			if (memcmp(p, words[i], n) != 0)
				return scan_bad(s, "no value");
			s->p += n;
			return SCAN_OK;
		}
	p = skip_digits(p + (*p == '-'));
	if (p && *p == '.')
		p = skip_digits(p + 1);
	if (p && (*p | 32) == 'e')
		p = skip_digits(p + (p[1] == '-' || p[1] == '+' ? 2 : 1));
	if (!p && s->end - s->p > NUMBER_BYTES)
		return scan_bad(s, "no value");
	if (!p || p == s->end) {
		/* it may go on, unless it is none already */
		if (!strchr("-0123456789", *s->p))
			return scan_bad(s, "no value");
		s->p = s->end;
		return SCAN_MORE;
	}
	s->p = p;
	return SCAN_OK;
}

static enum scan scan_value(struct scan_at *s, int depth);

/* The members of an object or a list, up to its last bracket. */
static enum scan scan_inside(struct scan_at *s, int depth)
{
	const char close = *s->p++ == '{' ? '}' : ']';
	struct trace_text key;
	bool first = true;
	enum scan found;

	if (!depth) {
		s->p--;
		return scan_bad(s, "too many objects in one another");
	}
	while ((found = scan_blank(s)) == SCAN_OK) {
		if (*s->p == close && first) {
			s->p++;
			return SCAN_OK;
		}
		if (close == '}') {
			found = scan_key(s, &key);
		}
		found = found != SCAN_OK ? found : scan_value(s, depth - 1);
		found = found != SCAN_OK ? found : scan_blank(s);
		if (found != SCAN_OK)
			return found;
		if (*s->p != ',' && *s->p != close)
			return scan_bad(s, "no ',' behind a value");
		if (*s->p++ == close)
			return SCAN_OK;
		first = false;
	}
	return found;
}

static enum scan scan_value(struct scan_at *s, int depth)
{
	struct trace_text t;

	if (*s->p == '"')
		return scan_string(s, &t);
	if (*s->p == '{' || *s->p == '[')
		return scan_inside(s, depth);
	return scan_word(s);
}

/* The value at S into T: a string without its quotes, or any other as it is. */
static enum scan scan_text(struct scan_at *s, struct trace_text *t)
{
	enum scan found;

	if (*s->p == '"')
		return scan_string(s, t);
	t->s = s->p;
	found = scan_value(s, DEEPEST);
	t->n = (size_t)(s->p - t->s);
	return found;
}

bool trace_is(const struct trace_text *t, const char *text)
{
	return t->n == strlen(text) && !memcmp(t->s, text, t->n);
}

bool trace_member(const struct trace_text *object, size_t *at, struct trace_text *key,
		  struct trace_text *value)
{
	struct scan_at s = { NULL, NULL, NULL };

	if (!object->n || (!*at && *object->s != '{'))
		return false;
	s.p = object->s + *at + !*at;
	s.end = object->s + object->n;
	while (s.p < s.end && (scan_is_blank(*s.p) || *s.p == ','))
		s.p++;
	if (s.p >= s.end || *s.p == '}' || scan_string(&s, key) != SCAN_OK)
		return false;
	while (s.p < s.end && (scan_is_blank(*s.p) || *s.p == ':'))
		s.p++;
	if (s.p >= s.end || scan_text(&s, value) != SCAN_OK)
		return false;
	*at = (size_t)(s.p - object->s);
	return true;
}

bool trace_number(const struct trace_text *t, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < t->n; i++) {
		if (!is_digit(t->s[i]) || v > (UINT64_MAX - 9) / 10)
			return false;
		v = 10 * v + (uint64_t)(t->s[i] - '0');
	}
	*out = v;
	return t->n > 0;
}

/* Numbers with an exponent, which few files have. */
static bool number_by_strtod(const struct trace_text *t, int64_t *out)
{
	char text[64], *end;
	double v;

	if (t->n >= sizeof text)
		return false;
	memcpy(text, t->s, t->n);
	text[t->n] = '\0';
	v = strtod(text, &end) * 1000;
	if (*end || end == text || !(v > -9e18 && v < 9e18))
		return false;
	*out = (int64_t)v;
	return true;
}

bool trace_thousandths(const struct trace_text *t, int64_t *out)
{
	const char *p = t->s, *end = t->s + t->n;
	const bool minus = t->n && *p == '-';
	int64_t v = 0;
	int digits = 3;

	p += minus;
	if (p == end || !is_digit(*p))
		return false;
	for (; p < end && is_digit(*p); p++) {
		v = 10 * v + (*p - '0');
		if (v > INT64_MAX / 20000)
			return false;
	}
	if (p < end && *p == '.')
		p++;
	for (; p < end && is_digit(*p) && digits; p++, digits--)
		v = 10 * v + (*p - '0');
	while (p < end && is_digit(*p))
		p++;
	if (p < end)
		return number_by_strtod(t, out);
	for (; digits; digits--)
		v *= 10;
	*out = minus ? -v : v;
	return true;
}

/* ---- an event ---- */

/* "pid" and "tid" are numbers, or strings. */
static void take_id(const struct trace_text *t, int64_t *number,
		    struct trace_text *text)
{
	uint64_t hash = 14695981039346656037u;

	if (t->n && t->s[-1] != '"' && trace_thousandths(t, number)) {
		*number /= 1000;
		return;
	}
	for (size_t i = 0; i < t->n; i++)
		hash = (hash ^ (unsigned char)t->s[i]) * 1099511628211u;
	*number = (int64_t)(hash >> 33);
	*text = *t;
}

static void take_member(struct trace_event *ev, const struct trace_text *key,
			const struct trace_text *v)
{
	const bool string = v->s[-1] == '"';

	if (trace_is(key, "ts"))
		ev->timed = trace_thousandths(v, &ev->ts_ns);
	else if (trace_is(key, "dur"))
		trace_thousandths(v, &ev->dur_ns);
	else if (trace_is(key, "ph"))
		ev->ph = string && v->n == 1 ? *v->s : '\0';
	else if (trace_is(key, "pid"))
		take_id(v, &ev->pid, &ev->pid_text);
	else if (trace_is(key, "tid"))
		take_id(v, &ev->tid, &ev->tid_text);
	else if (trace_is(key, "name") && string)
		ev->name = *v;
	else if (trace_is(key, "cat") && string)
		ev->cat = *v;
	else if (trace_is(key, "args") && *v->s == '{' && !string)
		ev->args = *v;
	else if (trace_is(key, "id") || trace_is(key, "id2"))
		ev->id = *v;
	else if (trace_is(key, "bp") && string)
		ev->bp = *v;
	else if (trace_is(key, "s") && string)
		ev->scope = *v;
}

/* The object at S into EV. */
static enum scan scan_event(struct scan_at *s, struct trace_event *ev)
{
	struct trace_text key, value;
	bool first = true;
	enum scan found;

	*ev = (struct trace_event){ 0 };
	if (*s->p != '{')
		return scan_bad(s, "no event");
	s->p++;
	while ((found = scan_blank(s)) == SCAN_OK) {
		if (*s->p == '}' && first) {
			s->p++;
			return SCAN_OK;
		}
		found = scan_key(s, &key);
		found = found != SCAN_OK ? found : scan_text(s, &value);
		found = found != SCAN_OK ? found : scan_blank(s);
		if (found != SCAN_OK)
			return found;
		take_member(ev, &key, &value);
		if (*s->p != ',' && *s->p != '}')
			return scan_bad(s, "no ',' behind a value");
		if (*s->p++ == '}')
			return SCAN_OK;
		first = false;
	}
	return found;
}

/* ---- the file ---- */

static int reader_bad(struct trace_reader *r, size_t at, const char *why, struct err *e)
{
	char *text =
		xasprintf("byte %llu: %s", (unsigned long long)(r->base + at), why);

	err_set(e, E_TRACE_FORM, r->name, text);
	free(text);
	return -1;
}

/* After FOUND at S: whether to scan again.  1; 0: the file ends here; -1 with E. */
static int reader_again(struct trace_reader *r, enum scan found,
			const struct scan_at *s, struct err *e)
{
	int more;

	if (found == SCAN_BAD)
		return reader_bad(r, (size_t)(s->p - r->buf), s->why, e);
	more = read_more(r, e);
	if (!more && !r->end)
		return reader_bad(r, r->at, "too much memory for one event or value",
				  e);
	return more;
}

static struct scan_at reader_at(const struct trace_reader *r)
{
	return (struct scan_at){ r->buf + r->at, r->buf + r->len, NULL };
}

/* The next byte that is not blank is there.  1; 0: the file ends; -1 with E. */
static int reader_blank(struct trace_reader *r, struct err *e)
{
	int more = 1;

	while (more > 0) {
		struct scan_at s = reader_at(r);
		const enum scan found = scan_blank(&s);

		r->at = (size_t)(s.p - r->buf);
		if (found == SCAN_OK)
			return 1;
		more = read_more(r, e);
	}
	return more;
}

static void take_head(struct trace_head *h, const struct trace_text *key,
		      const struct trace_text *value)
{
	struct trace_text k, v;
	uint64_t n;

	if (trace_is(key, "baseTimeNanoseconds") && trace_number(value, &n) &&
	    n < INT64_MAX / 2)
		h->base_ns = (int64_t)n;
	if (!trace_is(key, "distributedInfo"))
		return;
	for (size_t at = 0; trace_member(value, &at, &k, &v);)
		if (trace_is(&k, "rank") && trace_number(&v, &n) && n < INT32_MAX)
			h->rank = (long)n;
}

/* A member of the file's object.  1: it was "traceEvents", whose list begins; 0: the
 * object or the file ends; 2: it was another one; -1 with E. */
static int reader_member(struct trace_reader *r, struct trace_head *h, struct err *e)
{
	int more = reader_blank(r, e);

	while (more > 0) {
		struct scan_at s = reader_at(r);
		struct trace_text key, value = { 0 };
		enum scan found;

		if (*s.p == '}') {
			r->at++;
			return 0;
		}
		if (*s.p == ',')
			s.p++;
		found = scan_blank(&s);
		found = found != SCAN_OK ? found : scan_string(&s, &key);
		found = found != SCAN_OK ? found : scan_blank(&s);
		if (found == SCAN_OK && *s.p != ':')
			found = scan_bad(&s, "no ':' behind a key");
		s.p += found == SCAN_OK;
		found = found != SCAN_OK ? found : scan_blank(&s);
		if (found == SCAN_OK && *s.p == '[' && trace_is(&key, "traceEvents")) {
			r->at = (size_t)(s.p + 1 - r->buf);
			return 1;
		}
		found = found != SCAN_OK ? found : scan_text(&s, &value);
		if (found == SCAN_OK) {
			r->at = (size_t)(s.p - r->buf);
			take_head(h, &key, &value);
			return 2;
		}
		more = reader_again(r, found, &s, e);
	}
	r->cut = more == 0;
	return more;
}

int trace_reader_begin(struct trace_reader *r, struct trace_head *h, struct err *e)
{
	int more;

	*h = (struct trace_head){ .rank = -1 };
	more = reader_blank(r, e);
	if (more < 0)
		return -1;
	r->over = more == 0;
	if (r->over) {
		r->cut = true;
		return 0;
	}
	if (r->buf[r->at] != '[' && r->buf[r->at] != '{')
		return reader_bad(r, r->at, "neither a list nor an object", e);
	h->object = r->object = r->buf[r->at++] == '{';
	while (r->object && (more = reader_member(r, h, e)) == 2)
		;
	r->over = more <= 0;
	return more < 0 ? -1 : 0;
}

int trace_reader_next(struct trace_reader *r, struct trace_event *ev, struct err *e)
{
	struct trace_head ignored;
	int more;

	if (r->over)
		return 0;
	do {
		struct scan_at s;
		enum scan found;

		more = reader_blank(r, e);
		if (more > 0 && r->buf[r->at] == ',') {
			r->at++;
			continue;
		}
		if (more > 0 && r->buf[r->at] == ']') {
			r->at++;
			r->closed = true;
			if (!r->object)
				continue;
			r->over = true;
			while ((more = reader_member(r, &ignored, e)) == 2)
				;
			return more <= 0 ? more
					 : reader_bad(r, r->at,
						      "a second list of events", e);
		}
		if (more > 0 && r->closed && r->buf[r->at] == '[') {
			r->at++; /* a rank may be several programs */
			r->closed = false;
			continue;
		}
		if (more <= 0)
			break;
		s = reader_at(r);
		found = scan_event(&s, ev);
		if (found == SCAN_OK) {
			r->at = (size_t)(s.p - r->buf);
			return 1;
		}
		more = reader_again(r, found, &s, e);
	} while (more > 0);
	r->over = true;
	r->cut = more == 0 && !r->closed;
	return more;
}

bool trace_reader_cut(const struct trace_reader *r)
{
	return r->cut;
}
