#include "launcher/output/tail.h"

#include <ctype.h>
#include <string.h>

static bool ends_with(const char *p, size_t n, const char *end)
{
	const size_t len = strlen(end);

	return n >= len && !memcmp(p + n - len, end, len);
}

/* The bytes of "[rank12]: " at P, or 0. */
static size_t torch_label(const char *p, size_t n)
{
	size_t i = 5;

	if (n < 9 || memcmp(p, "[rank", 5) != 0)
		return 0;
	while (i < n && isdigit((unsigned char)p[i]))
		i++;
	return i > 5 && n - i >= 3 && !memcmp(p + i, "]: ", 3) ? i + 3 : 0;
}

/* The line of N bytes at P names an exception. */
static bool names_exception(const char *p, size_t n)
{
	const size_t label = torch_label(p, n);
	size_t i = 0;

	p += label;
	n -= label;
	if (!n || !(isalpha((unsigned char)*p) || *p == '_'))
		return false;
	while (i < n && (isalnum((unsigned char)p[i]) || p[i] == '_' || p[i] == '.'))
		i++;
	if (i < n && (n - i < 2 || memcmp(p + i, ": ", 2) != 0))
		return false;
	return ends_with(p, i, "Error") || ends_with(p, i, "Exception") ||
	       ends_with(p, i, "Interrupt") || ends_with(p, i, "Exit");
}

/* The line of N bytes at P has ended. */
static void end_line(struct tail *t, const char *p, size_t n)
{
	if (names_exception(p, n)) {
		t->reason.len = 0;
		str_addn(&t->reason, p, n < TAIL_REASON_BYTES ? n : TAIL_REASON_BYTES);
		t->since = 1;
	} else if (t->since) {
		t->since++;
	}
}

static void look_at_lines(struct tail *t, const char *p, size_t n)
{
	const char *end;

	for (; (end = memchr(p, '\n', n)); n -= (size_t)(end + 1 - p), p = end + 1) {
		const size_t part = (size_t)(end - p);
		const size_t room = TAIL_REASON_BYTES - t->line.len;

		if (!t->line.len) {
			end_line(t, p, part);
			continue;
		}
		str_addn(&t->line, p, part < room ? part : room);
		end_line(t, t->line.s, t->line.len);
		t->line.len = 0;
	}
	if (n > TAIL_REASON_BYTES - t->line.len)
		n = TAIL_REASON_BYTES - t->line.len;
	str_addn(&t->line, p, n);
}

void tail_add(struct tail *t, const char *p, size_t n)
{
	const size_t part = n < TAIL_BYTES ? n : TAIL_BYTES;

	look_at_lines(t, p, n);
	t->cut |= part < n;
	if (part < n)
		t->bytes.len = 0;
	str_addn(&t->bytes, p + n - part, part);
	if (t->bytes.len > 2 * (size_t)TAIL_BYTES) {
		memmove(t->bytes.s, t->bytes.s + t->bytes.len - TAIL_BYTES,
			TAIL_BYTES + 1);
		t->bytes.len = TAIL_BYTES;
		t->cut = true;
	}
}

const char *tail_lines(const struct tail *t)
{
	const char *p;
	int lines = 0;

	if (!t->bytes.len)
		return "";
	for (p = t->bytes.s + t->bytes.len - 1; p > t->bytes.s; p--)
		if (p[-1] == '\n' && ++lines == TAIL_LINES)
			break;
	return p;
}

const char *tail_reason(const struct tail *t, bool *gap)
{
	const char *shown = tail_lines(t);
	const bool whole = shown != t->bytes.s || !t->cut; /* its first line is */
	size_t lines = 0;

	for (const char *p = shown; *p; p++)
		lines += *p == '\n';
	if (!t->since || t->since > TAIL_WINDOW ||
	    t->since <= lines - (!whole && lines > 0))
		return NULL;
	*gap = !whole || t->since > lines + 1;
	return t->reason.s;
}

void tail_free(struct tail *t)
{
	str_free(&t->bytes);
	str_free(&t->line);
	str_free(&t->reason);
	*t = (struct tail){ 0 };
}
