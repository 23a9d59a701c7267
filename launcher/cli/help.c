#include "launcher/cli/help.h"

#include <ctype.h>

#include "common/wire.h"
#include "launcher/cli/advice.h"
#include "launcher/cli/compat.h"

enum { COLUMNS = 78, HELP_COLUMN = 26, SEARCH_BYTES_LEAST = 3 };

static const struct {
	const char *name, *heading;
} topics[] = {
#define X(name, heading) { #name, heading },
	TOPICS(X)
#undef X
};

/* WORDS, indented and wrapped to COLUMNS. */
static void help_wrap(struct str *out, const char *indent, const char *words)
{
	size_t column = 0;

	while (*words) {
		size_t n = strcspn(words, " ");

		if (column && column + 1 + n > COLUMNS) {
			str_add(out, "\n");
			column = 0;
		}
		str_add(out, column ? " " : indent);
		str_addn(out, words, n);
		column += n + (column ? 1 : strlen(indent));
		words += n;
		words += strspn(words, " ");
	}
	str_add(out, "\n");
}

static void add_arg(struct str *out, const struct option *o)
{
	if (o->arg && o->flags & OPTION_OPTIONAL && !(o->flags & OPTION_PRINTS))
		str_addf(out, "[=%s]", o->arg);
	else if (o->arg)
		str_addf(out, " %s", o->arg);
}

/* One option on a line of --help: its first name, and the second one if that is the
 * long form of a short one: "-H, --hosts".  A long name has a line for itself. */
static void help_line(struct str *out, const struct option *o)
{
	const char *list = o->names, *name;
	size_t n = option_next_name(&list, &name), first = n;
	struct str left = { 0 };

	str_addn(&left, name, n);
	n = option_next_name(&list, &name);
	if (first == 2 && n && name[1] == '-')
		str_addf(&left, ", %.*s", (int)n, name);
	add_arg(&left, o);
	if (left.len + 4 > HELP_COLUMN)
		str_addf(out, "  %s\n%*s%s\n", left.s, HELP_COLUMN, "", o->help);
	else
		str_addf(out, "  %-*s%s\n", HELP_COLUMN - 2, left.s, o->help);
	str_free(&left);
}

static void help_topic(struct str *out, enum topic topic)
{
	str_addf(out, "%s (--help %s):\n", topics[topic].heading, topics[topic].name);
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].topic == topic &&
		    !(option_table[i].flags & OPTION_HIDDEN))
			help_line(out, &option_table[i]);
	for (size_t i = 0; i < advice_count; i++) {
		if (advice_table[i].topic != topic)
			continue;
		str_addf(out, "  %s\n", advice_table[i].what);
		help_wrap(out, "      ", advice_table[i].text);
	}
}

/* ---- what ranks are given ---- */

enum rule { IDENTITY, ALWAYS, DEFAULT, BEFORE };

#define NUMBER(field) "<" #field ">"
#define TEXT(field) "<" #field ">"
#define IN_SLURM(value) value
#define COMMON(value) value
#define WITH(other, value) value
#define SHOWN(text, value) text
#define VALUE(function) "<" #function ">"
#define CONSTANT(string) string
#define GIVEN(name, readers, rule, value) { name, rule, value },

static const struct {
	const char *name;
	enum rule rule;
	const char *value; /* <word_word> if each rank or host has its own */
} given[] = {
#include "common/given.def"
};

/* The variables of RULE on lines of their own, with their values if VALUES. */
static void help_rule(struct str *out, enum rule rule, bool values, const char *heading)
{
	struct str list = { 0 };

	for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
		if (given[i].rule != rule || !strcmp(given[i].value, "<never>"))
			continue;
		str_addf(&list, "%s%s", list.len ? ", " : "", given[i].name);
		if (values)
			str_addf(&list, "=%s", given[i].value);
	}
	for (char *p = list.s; values && (p = strchr(p, '<'));)
		for (; *p && *p != '>'; p++)
			*p = *p == '_' ? ' ' : *p;
	str_addf(out, "\n%s:\n", heading);
	help_wrap(out, "  ", str_text(&list));
	str_free(&list);
}

static void help_given(struct str *out)
{
	help_rule(out, DEFAULT, true, "Ranks get these, unless a variable has a value");
	help_wrap(out, "",
		  "To change one: export NCCL_DEBUG=INFO here, or give -x "
		  "NCCL_DEBUG=INFO, "
		  "or "
		  "write that line into the file of --env-file.");
	help_rule(out, BEFORE, false,
		  "To these, ranks get more in front, if --horovod is given");
	help_rule(out, ALWAYS, false,
		  "Ranks always get these, and only -x changes them");
	help_rule(out, IDENTITY, false,
		  "Ranks always get these, and nothing changes them");
	help_wrap(out, "",
		  "Some of them are for GPUs, libberth or Slurm only. runner(1) names "
		  "the "
		  "readers of each.");
}

static void help_common(struct str *out)
{
	struct str names = { 0 };

	str_add(out,
		"usage: runner [option ...] program [argument ...] [: ...]\n"
		"Start a parallel program on many machines, every rank next to its "
		"GPU.\n\n"
		"  runner -np 4 python train.py                    on this machine\n"
		"  runner -np 16 -H ip1:8,ip2:8 python train.py    8 ranks on each of "
		"two\n"
		"  runner --plan -np 16 -H ip1:8,ip2:8             what would run "
		"where, and why\n\n");
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].flags & OPTION_COMMON)
			help_line(out, &option_table[i]);
	for (size_t i = 0; i < TOPIC_COUNT; i++)
		str_addf(&names, "%s%s", i ? ", " : "", topics[i].name);
	str_addf(&names, ".");
	str_add(out, "\nMore: runner --help all, --help --map-by (any option), or "
		     "--help TOPIC:\n");
	help_wrap(out, "", str_text(&names));
	str_free(&names);
}

static void help_option(struct str *out, const struct option *o)
{
	const char *list = o->names, *name, *comma = "";
	struct str names = { 0 };
	size_t n;

	while ((n = option_next_name(&list, &name))) {
		str_addf(&names, "%s%.*s", comma, (int)n, name);
		comma = ", ";
	}
	add_arg(&names, o);
	help_wrap(out, "", str_text(&names));
	help_wrap(out, "    ", o->text);
	if (o->key)
		str_addf(out, "    config key: %s\n", o->key);
	if (o->env)
		str_addf(out, "    variable:   %s\n", o->env);
	str_free(&names);
}

/* ---- a word that is neither topic nor option ---- */

/* Whether TEXT has WORD, of either case and with any dashes. */
static bool cli_help_mentions(const char *text, const char *word)
{
	for (; *text; text++) {
		const char *t = text, *w = word;

		for (;; t++, w++) {
			w += strspn(w, "-_");
			t += *w ? strspn(t, "-_") : 0;
			if (!*w ||
			    tolower((unsigned char)*t) != tolower((unsigned char)*w))
				break;
		}
		if (!*w)
			return true;
	}
	return false;
}

/* All that has WORD in its name, or, with TEXTS, in its text. */
static void help_mentions(struct str *out, const char *word, bool texts)
{
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &option_table[i];

		if (!(o->flags & OPTION_HIDDEN) &&
		    cli_help_mentions(texts ? o->text : o->names, word))
			help_line(out, o);
	}
	for (size_t i = 0; i < advice_count; i++) {
		const struct advice *a = &advice_table[i];

		if (cli_help_mentions(texts ? a->text : a->what, word))
			str_addf(out, "  --help %-*s%s\n", HELP_COLUMN - 9,
				 topics[a->topic].name, a->what);
	}
	for (size_t i = 0; i < compat_count; i++) {
		const struct compat *c = &compat_table[i];
		struct str line = { 0 };

		if (!cli_help_mentions(texts ? c->text : c->names, word))
			continue;
		str_addf(&line, "%s (%s, %s)", c->names, c->tool, compat_fate(c));
		help_wrap(out, "  ", str_text(&line));
		str_free(&line);
	}
}

/* False: no name and no text has WORD. */
static bool help_search(struct str *out, const char *word)
{
	struct str found = { 0 };

	if (strlen(word) < SEARCH_BYTES_LEAST || !word[strspn(word, "-_")])
		return false;
	help_mentions(&found, word, false);
	if (!found.len)
		help_mentions(&found, word, true);
	if (found.len)
		str_addf(out, "No topic or option is '%s'. It is in:\n%s", word,
			 found.s);
	str_free(&found);
	return out->len;
}

int help_print(struct str *out, const char *topic, struct err *e)
{
	const char *names[TOPIC_COUNT], *near;
	bool all = topic && !strcmp(topic, "all"), no;
	const struct compat *c;
	const struct option *o;

	if (!topic) {
		help_common(out);
		return 0;
	}
	for (size_t i = 0; i < TOPIC_COUNT; i++) {
		names[i] = topics[i].name;
		if (all ? i > TOPIC_other : strcmp(topic, names[i]) != 0)
			continue;
		help_topic(out, (enum topic)i);
		if (!all && i == TOPIC_environment)
			help_given(out);
		if (!all)
			return 0;
		str_add(out, i < TOPIC_other ? "\n" : "");
	}
	if (all)
		return 0;
	o = option_find(topic, &no);
	c = compat_find(topic);
	if (o && !(o->flags & OPTION_HIDDEN)) {
		help_option(out, o);
	} else if (c) {
		str_addf(out, "%s (%s)\n    %s%s%s\n", c->names, c->tool,
			 compat_fate(c), *c->text ? ": " : "", c->text);
	} else {
		near = str_nearest(topic, names, TOPIC_COUNT);
		if (!near && help_search(out, topic))
			return 0;
		err_set(e, E_HELP, topic);
		return near ? err_hint(e, "did you mean '%s'?", near) : -1;
	}
	return 0;
}

/* ---- tables ---- */

static const char *or_empty(const char *text)
{
	return text ? text : "";
}

static void option_row(struct str *out, const struct option *o)
{
	/* How a value is given: as the next word, only behind "=", or either. */
	const char *form = !o->arg                         ? ""
			   : !(o->flags & OPTION_OPTIONAL) ? "word"
			   : o->flags & OPTION_PRINTS      ? "maybe"
							   : "tied";

	str_addf(out, "option\t%s\t%s\t%s\t%s\t%s\t", o->names, or_empty(o->arg), form,
		 or_empty(o->key), or_empty(o->env));
	for (size_t i = 0; o->choices && o->choices[i]; i++)
		str_addf(out, "%s%s", i ? " " : "", o->choices[i]);
	if (!o->choices && o->flags & (OPTION_FILE | OPTION_DIR))
		str_add(out, o->flags & OPTION_FILE ? "-f" : "-d");
	if (o->flags & OPTION_PRINTS && o->flags & OPTION_OPTIONAL) {
		str_add(out, "all");
		for (size_t i = 0; i < TOPIC_COUNT; i++)
			str_addf(out, " %s", topics[i].name);
	}
	str_addf(out, "\t%s\t%s\n", o->text, o->help);
}

void help_tables(struct str *out)
{
#define X(name, status, meaning) { status, meaning },
	static const struct {
		int status;
		const char *meaning;
	} exits[] = { EXITS(X) };
#undef X
#define ERR(id, status, sentence, hint) { status, sentence, hint },
	static const struct {
		int status;
		const char *sentence, *hint;
	} errors[] = {
#include "common/errors.def"
	};
#undef ERR

	for (size_t t = 0; t <= TOPIC_other; t++) {
		str_addf(out, "topic\t%s\n", topics[t].heading);
		for (size_t i = 0; i < option_count; i++)
			if (option_table[i].topic == t &&
			    !(option_table[i].flags & OPTION_HIDDEN))
				option_row(out, &option_table[i]);
	}
	for (size_t i = 0; i < advice_count; i++)
		str_addf(out, "advice\t%s\t%s\t%s\n",
			 topics[advice_table[i].topic].heading, advice_table[i].what,
			 advice_table[i].text);
	for (size_t i = 0; i < compat_count; i++) {
		const struct compat *c = &compat_table[i];

		str_addf(out, "compat\t%s\t%s\t%s\t%s\n", c->names, c->tool,
			 compat_fate(c), c->text);
	}
	for (size_t i = 0; i < sizeof exits / sizeof *exits; i++)
		str_addf(out, "exit\t%d\t%s\n", exits[i].status, exits[i].meaning);
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		str_addf(out, "error\t%d\t%s\t%s\n", errors[i].status,
			 errors[i].sentence, errors[i].hint);
}
