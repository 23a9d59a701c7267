#include "common/err.h"

#include <stdarg.h>
#include <unistd.h>

static const struct {
	const char *name, *hint;
	int status;
} table[ERR_COUNT] = {
	[ERR_NONE] = { "ERR_NONE", "", 0 },
#define ERR(id, status, sentence, hint) [id] = { #id, hint, status },
#include "common/errors.def"
#undef ERR
};

/* The shortest form only, no surrogate, nothing above U+10FFFF. */
size_t str_utf8(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n = *p < 0x80                 ? 1
		   : *p >= 0xc2 && *p < 0xe0 ? 2
		   : *p >= 0xe0 && *p < 0xf0 ? 3
		   : *p >= 0xf0 && *p < 0xf5 ? 4
					     : 0;

	if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] >= 0xa0) ||
	    (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] >= 0x90))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

char *str_plain(char *text)
{
	char *to = text;

	for (const char *from = text; *from;) {
		const unsigned char *p = (const unsigned char *)from;
		size_t n = str_utf8(from);

		/* C0 but tabs, DEL, and C1 as UTF-8 has it: U+0080 to U+009F */
		if (!n || (*p < 0x20 && *p != '\t') || *p == 0x7f ||
		    (*p == 0xc2 && p[1] < 0xa0)) {
			*to++ = '?';
		} else {
			memmove(to, from, n);
			to += n;
		}
		from += n ? n : 1;
	}
	*to = '\0';
	return text;
}

int err_set_text(struct err *e, enum err_id id, const char *sentence, ...)
{
	va_list ap;

	if (!e)
		return -1;
	e->id = id;
	va_start(ap, sentence);
	vsnprintf(e->text, sizeof e->text, sentence, ap);
	va_end(ap);
	str_plain(e->text);
	snprintf(e->hint, sizeof e->hint, "%s", table[id].hint);
	return -1;
}

int err_in(struct err *e, const char *where, ...)
{
	char old[sizeof e->text], head[256];
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, where);
	vsnprintf(head, sizeof head, where, ap);
	va_end(ap);
	str_plain(head);
	memcpy(old, e->text, sizeof old);
	if (snprintf(e->text, sizeof e->text, "%s: %s", head, old) >=
	    (int)sizeof e->text)
		memcpy(e->text + sizeof e->text - 4, "...", 4);
	return -1;
}

int err_hint(struct err *e, const char *hint, ...)
{
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, hint);
	vsnprintf(e->hint, sizeof e->hint, hint, ap);
	va_end(ap);
	str_plain(e->hint);
	return -1;
}

const char *err_row_hint(enum err_id id)
{
	return table[id].hint;
}

int err_status(enum err_id id)
{
	return id < ERR_COUNT ? table[id].status : EXIT_RUNNER;
}

const char *err_name(enum err_id id)
{
	return id < ERR_COUNT ? table[id].name : "?";
}

enum err_id err_by_name(const char *name)
{
	for (int id = ERR_NONE + 1; id < ERR_COUNT; id++)
		if (!strcmp(table[id].name, name))
			return (enum err_id)id;
	return ERR_NONE;
}

void err_print(const char *program, const struct err *e)
{
	char out[sizeof *e + 128];
	int n = snprintf(out, sizeof out, "%s: %s\n%s%s%s", program, e->text,
			 *e->hint ? "hint: " : "", e->hint, *e->hint ? "\n" : "");

	size_t len = n < 0 ? 0 : (size_t)n < sizeof out ? (size_t)n : sizeof out - 1;

	if (len && write(STDERR_FILENO, out, len) < 0)
		return; /* there is no other place for the message */
}
