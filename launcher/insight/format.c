#include "launcher/insight/format.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/str.h"

void format_cut(struct str *out, const char *text)
{
	size_t n = strnlen(text, FORMAT_BYTES + 1);

	if (n <= FORMAT_BYTES) {
		str_addn(out, text, n);
		return;
	}
	for (n = FORMAT_BYTES; n && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
		;
	str_addn(out, text, n);
	str_add(out, " [cut here]");
}

void format_word(struct str *out, const struct strv *argv, size_t k)
{
	const char *word = argv->v[k], *option = k ? argv->v[k - 1] : "";
	struct str shown = { 0 };

	/* "--password X", but not "--use-key --fast" */
	if (*option == '-' && *word != '-' && !strchr(option, '='))
		str_add_value(&shown, option, word);
	if (shown.len && strcmp(shown.s, word) != 0)
		str_add(out, shown.s);
	else
		str_add_word(out, word, false);
	str_free(&shown);
}

void format_variable(struct str *name, struct str *value, const char *variable)
{
	const size_t n = strcspn(variable, "=");
	char *whole = xstrndup(variable, n);
	struct str shown = { 0 };

	str_add_value(&shown, whole, variable[n] ? variable + n + 1 : "");
	format_cut(name, whole);
	format_cut(value, str_text(&shown));
	str_free(&shown);
	free(whole);
}

void format_time(struct str *out, double s)
{
	const unsigned long whole = (unsigned long)(s < 0 ? 0 : s + 0.5);

	if (s < 59.95)
		str_addf(out, "%.1f s", s < 0 ? 0 : s);
	else if (whole < 600 && whole % 60)
		str_addf(out, "%lu min %lu s", whole / 60, whole % 60);
	else if (whole < 3600)
		str_addf(out, "%lu min", whole / 60);
	else
		str_addf(out, "%lu h %lu min", whole / 3600, whole / 60 % 60);
}

void format_date(struct str *out, double t)
{
	const time_t whole = (time_t)t;
	struct tm tm = { 0 };
	char text[40];

	gmtime_r(&whole, &tm);
	strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &tm);
	str_add(out, text);
}
