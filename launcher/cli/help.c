#include "launcher/cli/help.h"

#include <ctype.h>

#include "launcher/cli/compat.h"
#include "launcher/cli/values.h"

enum { COLUMNS = 78, HELP_COLUMN = 26, MDOC_COLUMNS = 78 };

static const struct {
	const char *name, *heading;
} topics[] = {
#define X(name, heading) { #name, heading },
	TOPICS(X)
#undef X
};

/* ---- text ---- */

/* Whether a line may break in front of the blank at P because a sentence ends there. */
static bool sentence_ends(const char *text, const char *p)
{
	return p > text && p[-1] == '.' && *p == ' ';
}

/* WORDS, wrapped to WIDTH and indented; with SENTENCES a sentence begins a new line. */
static void wrap(struct str *out, const char *indent, size_t width, bool sentences,
		 const char *words)
{
	const char *text = words;
	size_t column = 0;

	while (*words) {
		size_t n = strcspn(words, " ");
		bool fresh =
			sentences && words > text && sentence_ends(text, words - 1);

		if (column && (fresh || column + 1 + n > width)) {
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

/* The first name, and the second where it is the long form of a short one: "-H,
 * --hosts". */
static void add_short_names(struct str *out, const struct option *o)
{
	const char *list = o->names, *name;
	size_t n = option_next_name(&list, &name), first = n;

	str_addn(out, name, n);
	n = option_next_name(&list, &name);
	if (first == 2 && n && name[1] == '-')
		str_addf(out, ", %.*s", (int)n, name);
	add_arg(out, o);
}

static void add_all_names(struct str *out, const struct option *o)
{
	const char *list = o->names, *name, *comma = "";
	size_t n;

	while ((n = option_next_name(&list, &name))) {
		str_addf(out, "%s%.*s", comma, (int)n, name);
		comma = ", ";
	}
	add_arg(out, o);
}

/* One option on a line of --help; a long name has a line for itself. */
static void help_line(struct str *out, const struct option *o)
{
	struct str left = { 0 };

	add_short_names(&left, o);
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
}

static void help_common(struct str *out)
{
	str_add(out,
		"usage: runner [option ...] program [argument ...] [: ...]\n"
		"Start a parallel program on many machines, every rank next to its "
		"GPU.\n\n"
		"  runner -np 4 python train.py                    on this machine\n"
		"  runner -np 16 -H ip1:8,ip2:8 python train.py    8 ranks on each of "
		"two\n"
		"  runner --plan -np 16 -H ip1:8,ip2:8             who would run "
		"where, and why\n\n");
	for (size_t i = 0; i < option_count; i++)
		if (option_table[i].flags & OPTION_COMMON)
			help_line(out, &option_table[i]);
	str_add(out, "\nMore: runner --help all, --help --map-by (any option), or "
		     "--help TOPIC:\n");
	for (size_t i = 0; i < TOPIC_COUNT; i++)
		str_addf(out, "%s%s", i ? ", " : "", topics[i].name);
	str_add(out, ".\n");
}

static void help_option(struct str *out, const struct option *o)
{
	struct str names = { 0 };

	add_all_names(&names, o);
	wrap(out, "", COLUMNS, false, str_text(&names));
	wrap(out, "    ", COLUMNS, false, o->text);
	if (o->key)
		str_addf(out, "    config key: %s\n", o->key);
	if (o->env)
		str_addf(out, "    variable:   %s\n", o->env);
	str_free(&names);
}

static void help_foreign(struct str *out, const struct compat *f)
{
	str_addf(out, "%s (%s)\n    %s%s%s\n", f->names, f->tool, compat_fate(f),
		 *f->text ? ": " : "", f->text);
}

static int unknown_topic(const char *word, struct err *e)
{
	const char *names[TOPIC_COUNT], *near;

	for (size_t i = 0; i < TOPIC_COUNT; i++)
		names[i] = topics[i].name;
	near = str_nearest(word, names, TOPIC_COUNT);
	err_set(e, E_HELP, word);
	if (near)
		err_hint(e, "did you mean '%s'?", near);
	return -1;
}

int help_print(struct str *out, const char *topic, struct err *e)
{
	const struct compat *f;
	const struct option *o;
	bool no;

	if (!topic) {
		help_common(out);
		return 0;
	}
	for (size_t i = 0; i < TOPIC_COUNT; i++) {
		if (strcmp(topic, "all") && strcmp(topic, topics[i].name))
			continue;
		help_topic(out, (enum topic)i);
		if (strcmp(topic, "all"))
			return 0;
		str_add(out, i + 1 < TOPIC_COUNT ? "\n" : "");
	}
	if (!strcmp(topic, "all"))
		return 0;
	o = option_find(topic, &no);
	f = compat_find(topic);
	if (o && !(o->flags & OPTION_HIDDEN))
		help_option(out, o);
	else if (f)
		help_foreign(out, f);
	else
		return unknown_topic(topic, e);
	return 0;
}

/* ---- mdoc ---- */

/* TEXT with roff's own characters escaped; an option's hyphens stay hyphens. */
static char *mdoc_text(const char *text)
{
	struct str out = { 0 };
	bool option = false;

	for (const char *p = text; *p; p++) {
		bool word = p == text || p[-1] == ' ';
		bool start = word || strchr("'(`,", p[-1]);

		if (start)
			option = *p == '-' &&
				 isalpha((unsigned char)p[1 + (p[1] == '-')]);
		if (*p == '\\')
			str_add(&out, "\\e");
		else if (*p == '-' && option)
			str_add(&out, "\\-");
		else if (word && (*p == '.' || *p == '\''))
			str_addf(&out, "\\&%c", *p);
		else
			str_addn(&out, p, 1);
	}
	return str_take(&out);
}

static void mdoc_wrap(struct str *out, const char *text)
{
	char *safe = mdoc_text(text);

	wrap(out, "", MDOC_COLUMNS, true, safe);
	free(safe);
}

/* "Fl \-num\-proc" for the N bytes at NAME; Fl itself gives the first dash. */
static void mdoc_flag(struct str *out, const char *name, size_t n)
{
	str_add(out, "Fl ");
	for (size_t i = 1; i < n; i++)
		str_addf(out, "%s%c", name[i] == '-' ? "\\" : "", name[i]);
}

static void mdoc_arg(struct str *out, const struct option *o)
{
	if (o->arg && o->flags & OPTION_OPTIONAL && !(o->flags & OPTION_PRINTS))
		str_addf(out, " Ns Oo = Ns Ar %s Oc", o->arg);
	else if (o->arg)
		str_addf(out, " Ar %s", o->arg);
}

static void mdoc_option(struct str *out, const struct option *o)
{
	const char *list = o->names, *name, *before = ".It ";
	size_t n;

	while ((n = option_next_name(&list, &name))) {
		str_add(out, before);
		mdoc_flag(out, name, n);
		mdoc_arg(out, o);
		before = " , ";
	}
	str_add(out, "\n");
	mdoc_wrap(out, o->text);
	if (o->key && o->env)
		str_addf(out, ".Pq Cm %s , Ev %s\n", o->key, o->env);
	else if (o->key)
		str_addf(out, ".Pq Cm %s\n", o->key);
	else if (o->env)
		str_addf(out, ".Pq Ev %s\n", o->env);
}

static void print_man(struct str *out)
{
	for (size_t t = 0; t < TOPIC_COUNT; t++) {
		str_addf(out, ".Ss %s\n.Bl -tag -width Ds\n", topics[t].heading);
		for (size_t i = 0; i < option_count; i++)
			if (option_table[i].topic == t &&
			    !(option_table[i].flags & OPTION_HIDDEN))
				mdoc_option(out, &option_table[i]);
		str_add(out, ".El\n");
	}
}

static void print_environment(struct str *out)
{
	for (size_t i = 0; i < option_count; i++) {
		const char *list = option_table[i].names, *name;
		size_t n = option_next_name(&list, &name);

		if (!option_table[i].env)
			continue;
		str_addf(out, ".It Ev %s\nAs\n.", option_table[i].env);
		mdoc_flag(out, name, n);
		str_add(out, " .\n");
	}
}

static void print_variables(struct str *out)
{
	size_t n;
	const char *const *names = options_env_names(&n);

	for (size_t i = 0; i < n; i++)
		str_addf(out, "%s\n", names[i]);
}

static void print_compat(struct str *out)
{
	for (size_t i = 0; i < compat_count; i++) {
		const struct compat *f = &compat_table[i];
		const char *list = f->names, *name, *before = ".It ";
		char *line;
		size_t n;

		while ((n = option_next_name(&list, &name))) {
			str_add(out, before);
			mdoc_flag(out, name, n);
			before = " , ";
		}
		line = xasprintf("%s, %s%s%s", f->tool, compat_fate(f),
				 *f->text ? ": " : "", f->text);
		str_add(out, "\n");
		mdoc_wrap(out, line);
		free(line);
	}
}

static void print_exits(struct str *out)
{
	static const struct {
		int status;
		const char *meaning;
	} table[] = {
#define X(name, status, meaning) { status, meaning },
		EXITS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		str_addf(out, ".It %d\n", table[i].status);
		mdoc_wrap(out, table[i].meaning);
	}
}

/* A sentence as the man page shows it: "..." and N where printf puts values. */
static char *sentence_shape(const char *sentence)
{
	struct str out = { 0 };
	const char *p = sentence;

	while (*p) {
		size_t n = strcspn(p, "%");

		str_addn(&out, p, n);
		p += n;
		if (!*p)
			break;
		p++;
		p += strspn(p, "-+ #0123456789.*lzhjt");
		str_add(&out, *p == '%' ? "%" : *p == 's' ? "..." : "N");
		p += *p != '\0';
	}
	return str_take(&out);
}

static void print_errors(struct str *out)
{
	static const struct {
		int status;
		const char *sentence, *hint;
	} table[] = {
#define ERR(id, status, sentence, hint) { status, sentence, hint },
#include "common/errors.def"
#undef ERR
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		char *shape = sentence_shape(table[i].sentence);
		char *hint = sentence_shape(table[i].hint);
		char *safe = mdoc_text(shape);

		str_addf(out, ".It \"%s\"\n", safe);
		if (*hint)
			mdoc_wrap(out, hint);
		str_addf(out, ".Pq exit status %d\n", table[i].status);
		free(shape);
		free(hint);
		free(safe);
	}
}

/* ---- completion ---- */

/* The names of O as a pattern of bash's case. */
static void case_names(struct str *out, const struct option *o)
{
	const char *list = o->names, *name, *bar = "";
	size_t n;

	while ((n = option_next_name(&list, &name))) {
		str_addf(out, "%s%.*s", bar, (int)n, name);
		bar = " | ";
	}
}

static void case_value(struct str *out, const struct option *o)
{
	if (!(o->choices || o->flags & (OPTION_FILE | OPTION_DIR)))
		return;
	str_add(out, "\t");
	case_names(out, o);
	str_add(out, ")\n\t\tmapfile -t COMPREPLY < <(compgen ");
	if (o->choices) {
		str_add(out, "-W \"");
		for (size_t i = 0; o->choices[i]; i++)
			str_addf(out, "%s%s", i ? " " : "", o->choices[i]);
		str_add(out, "\"");
	} else {
		str_add(out, o->flags & OPTION_FILE ? "-f" : "-d");
	}
	str_add(out, " -- \"$cur\")\n\t\treturn ;;\n");
}

static bool takes_word(const struct option *o)
{
	return o->arg && !(o->flags & (OPTION_OPTIONAL | OPTION_HIDDEN));
}

static void print_completion(struct str *out)
{
	const char *bar = "";

	str_add(out, "# bash completion for runner; made from its option table\n"
		     "_runner()\n{\n"
		     "\tlocal cur=${COMP_WORDS[COMP_CWORD]}\n"
		     "\tlocal prev=${COMP_WORDS[COMP_CWORD - 1]} i=1\n\n"
		     "\twhile ((i < COMP_CWORD)); do\n"
		     "\t\tcase ${COMP_WORDS[i]} in\n\t\t");
	for (size_t i = 0; i < option_count; i++) {
		if (!takes_word(&option_table[i]))
			continue;
		str_add(out, bar);
		case_names(out, &option_table[i]);
		bar = " | \\\n\t\t\t";
	}
	str_add(out, ")\n\t\t\t((i += 2)) ;;\n"
		     "\t\t-*)\n\t\t\t((i += 1)) ;;\n"
		     "\t\t*)\n\t\t\treturn ;; # the program's own words: files\n"
		     "\t\tesac\n\tdone\n\n"
		     "\t((i == COMP_CWORD)) || case $prev in\n");
	for (size_t i = 0; i < option_count; i++)
		if (takes_word(&option_table[i]))
			case_value(out, &option_table[i]);
	str_add(out, "\t*)\n\t\treturn ;;\n\tesac\n"
		     "\tif [[ $cur != -* ]]; then\n"
		     "\t\tmapfile -t COMPREPLY < <(compgen -c -- \"$cur\")\n"
		     "\t\treturn\n\tfi\n"
		     "\tmapfile -t COMPREPLY < <(compgen -W \"");
	for (size_t i = 0; i < option_count; i++)
		if (!(option_table[i].flags & OPTION_HIDDEN))
			str_addf(out, "%s%s", i ? "\n\t\t" : "", option_table[i].names);
	str_add(out, "\" -- \"$cur\")\n}\ncomplete -o default -F _runner runner\n");
}

int help_generate(struct str *out, const char *form, struct err *e)
{
	static const char *const names[] = { "man",       "environment", "compat",
					     "exits",     "errors",      "completion",
					     "variables", NULL };
	static void (*const print[])(struct str *) = {
		print_man,    print_environment, print_compat,    print_exits,
		print_errors, print_completion,  print_variables,
	};

	for (size_t i = 0; names[i]; i++) {
		if (strcmp(form, names[i]))
			continue;
		print[i](out);
		return 0;
	}
	return value_none_of(form, names, e);
}
