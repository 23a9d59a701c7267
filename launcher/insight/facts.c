#include "launcher/insight/facts.h"

#include <string.h>
#include <time.h>

#include "common/str.h"

void facts_cut(struct str *out, const char *text)
{
	size_t n = strnlen(text, FACTS_TEXT_BYTES + 1);

	if (n <= FACTS_TEXT_BYTES) {
		str_addn(out, text, n);
		return;
	}
	for (n = FACTS_TEXT_BYTES; n && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
		;
	str_addn(out, text, n);
	str_add(out, " [cut here]");
}

void facts_word(struct str *out, const struct strv *argv, size_t k)
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

void facts_variable(struct str *name, struct str *value, const char *variable)
{
	const size_t n = strcspn(variable, "=");
	char *whole = xstrndup(variable, n);
	struct str shown = { 0 };

	str_add_value(&shown, whole, variable[n] ? variable + n + 1 : "");
	facts_cut(name, whole);
	facts_cut(value, str_text(&shown));
	str_free(&shown);
	free(whole);
}

bool facts_odd(const struct facts *f, uint32_t rank)
{
	bool named = false;

	for (size_t i = 0; i < f->verdict->n; i++)
		named |= rank_set_has(&f->verdict->v[i].ranks, rank);
	return named || f->rank[rank].failed;
}

void facts_findings(struct str *out, const struct facts *f, uint32_t rank)
{
	const char *comma = "";

	for (size_t i = 0; i < f->verdict->n; i++) {
		if (!rank_set_has(&f->verdict->v[i].ranks, rank))
			continue;
		str_addf(out, "%s%s", comma, f->verdict->v[i].rule);
		comma = ", ";
	}
}

struct columns facts_columns(const struct facts *f)
{
	const uint32_t n = f->record->nranks;

	return columns_of(f->record, f->wall_s,
			  n <= 512    ? COLUMNS_MOST
			  : n <= 2048 ? COLUMNS_MOST / 2
				      : COLUMNS_MOST / 4);
}

void facts_time(struct str *out, double s)
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

void facts_date(struct str *out, double t)
{
	const time_t whole = (time_t)t;
	struct tm tm = { 0 };
	char text[40];

	gmtime_r(&whole, &tm);
	strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &tm);
	str_add(out, text);
}
