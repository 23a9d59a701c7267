#include "launcher/cli/exports.h"

#include <ctype.h>

#include "launcher/cli/values.h"

int exports_refuse(const char *word, struct err *e)
{
	struct str shown = { 0 };

	str_add_word(&shown, word, true);
	err_set(e, E_EXPORT, str_text(&shown));
	str_free(&shown);
	return -1;
}

/* NAME, NAME=VALUE or PREFIX*: no space, comma or quote in a name. */
static bool is_variable(const char *word)
{
	size_t n = strcspn(word, "=");
	bool valid = n && !isdigit((unsigned char)*word);

	for (size_t i = 0; i < n; i++)
		if (isspace((unsigned char)word[i]) || strchr(",;'\"$/:", word[i]) ||
		    (word[i] == '*' && (i + 1 < n || word[n] || !i)))
			valid = false;
	return valid;
}

int value_export(const struct setting *s, const char *value, struct err *e)
{
	struct strv *list =
		s->source == FROM_LINE ? &s->app->export : &s->r->env.export;

	if (!is_variable(value))
		return exports_refuse(value, e);
	strv_add(list, value);
	return 0;
}

/* The next entry of --export, cut out of *REST; NULL at the end.  An entry with an open
 * quote is refused later: no name has a quote, and *OPEN says that a value has one. */
static char *next_entry(char **rest, bool *open)
{
	char *entry = *rest, *p = entry, quote = '\0';

	if (!entry)
		return NULL;
	for (; *p && (quote || *p != ','); p++) {
		if (quote && *p == quote)
			quote = '\0';
		else if (!quote && (*p == '\'' || *p == '"'))
			quote = *p;
	}
	*open = quote;
	*rest = *p ? p + 1 : NULL;
	*p = '\0';
	if (p - entry > 1 && (*entry == '\'' || *entry == '"') && p[-1] == *entry) {
		p[-1] = '\0';
		entry++;
	}
	return entry;
}

int value_forward(const struct setting *s, const char *value, struct err *e)
{
	char *copy = xstrdup(value), *rest = copy, *entry;
	struct strv list = { 0 };
	bool all = false, none = false, open = false;
	int rc = *value ? 0 : err_set(e, E_OPTION_EMPTY);

	while (!rc && !none && (entry = next_entry(&rest, &open))) {
		none = !strcasecmp(entry, "none") || !strcasecmp(entry, "nil");
		if (!strcasecmp(entry, "all"))
			all = true;
		else if (open || (*entry && !none && !is_variable(entry)))
			rc = exports_refuse(entry, e);
		else if (*entry && !none)
			strv_add(&list, entry);
	}
	free(copy);
	if (rc) {
		strv_free(&list);
		return -1;
	}
	strv_free(&s->r->env.forward);
	s->r->env.forward = list;
	s->r->env.forward_listed = !all;
	return 0;
}

/* A name that has no value is no error: command lines are copied from one machine to
 * another. */
static void warn_of_unset(struct strv *notes, const char *option,
			  const struct strv *list, const struct strv *own)
{
	struct err e;

	for (size_t i = 0; i < list->n; i++) {
		const char *word = list->v[i];

		if (strpbrk(word, "=*") || strv_env_get(own, word))
			continue;
		err_set(&e, E_EXPORT_UNSET, option, word);
		err_hint(&e, "give it a value: -x %s=VALUE", word);
		value_warn(notes, &e);
	}
}

void exports_settle(struct request *r, struct strv *notes, char *const *env)
{
	struct strv own = { (char **)env, 0 };

	while (env && env[own.n])
		own.n++;
	for (size_t i = 0; i < r->env.forward.n && !r->env.forward_listed; i++) {
		char *word = r->env.forward.v[i], *equals = strchr(word, '=');
		const char *here;
		struct err e;

		if (!equals)
			continue;
		*equals = '\0';
		here = strv_env_get(&own, word);
		if (here && strcmp(here, equals + 1) != 0) {
			err_set(&e, E_EXPORT_ALL, word);
			err_hint(&e, "to change it, use -x %s=VALUE", word);
			value_warn(notes, &e);
		}
		if (!here)
			*equals = '=';
	}
	warn_of_unset(notes, "--export", &r->env.forward, &own);
	warn_of_unset(notes, "-x", &r->env.export, &own);
	for (size_t i = 0; i < r->napp; i++)
		warn_of_unset(notes, "-x", &r->app[i].export, &own);
}
