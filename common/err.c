#include "common/err.h"

#include <stdarg.h>
#include <unistd.h>

#include "common/str.h"

static const struct {
	const char *name, *hint;
	int status;
} table[ERR_COUNT] = {
	[ERR_NONE] = { "ERR_NONE", "", 0 },
#define ERR(id, status, sentence, hint) [id] = { #id, hint, status },
#include "common/errors.def"
#undef ERR
};

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
		return; /* nowhere left to say it */
}
