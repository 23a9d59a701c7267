#include "launcher/job/shell.h"

#include <ctype.h>

enum { WORDS_MAX = 4096 };

struct reader {
	const struct shell *sh;
	const char *p;
	size_t shifted; /* args that `shift` dropped */
	char *dir;      /* or NULL */
	struct strv words;
	struct str word;
	bool in_word; /* even if word is empty: '' */
	bool skip;    /* the next word is the target of a redirection */
	bool here;    /* the next word ends a here-document */
	char *until; /* a here-document begins at the next line, and ends at this one */
};

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static void end_word(struct reader *r)
{
	if (r->in_word && r->here) {
		free(r->until);
		r->until = xstrdup(str_text(&r->word));
	} else if (r->in_word && !r->skip && r->words.n < WORDS_MAX) {
		strv_add(&r->words, str_text(&r->word));
	}
	if (r->in_word)
		r->skip = r->here = false;
	r->in_word = false;
	str_free(&r->word);
}

static void add_char(struct reader *r, char c)
{
	str_addn(&r->word, &c, 1);
	r->in_word = true;
}

/* What an expansion gave: split at blanks unless quoted; an empty one is no word. */
static void add_text(struct reader *r, const char *text, bool quoted)
{
	r->in_word = r->in_word || quoted;
	for (; *text; text++) {
		if (!quoted && isspace((unsigned char)*text))
			end_word(r);
		else
			add_char(r, *text);
	}
}

/* "$@": each argument a word of its own. */
static void add_args(struct reader *r)
{
	for (size_t i = r->shifted; i < r->sh->nargs; i++) {
		if (i > r->shifted)
			end_word(r);
		add_text(r, r->sh->args[i], true);
	}
}

static void add_script_dir(struct reader *r, bool quoted)
{
	const char *slash = r->sh->script ? strrchr(r->sh->script, '/') : NULL;
	char *dir = slash ? xstrndup(r->sh->script, (size_t)(slash - r->sh->script))
			  : xstrdup(".");

	add_text(r, dir, quoted);
	free(dir);
}

/* Behind "$(" or "`": skip to its END, and give what we know of it. */
static void skip_command(struct reader *r, char end, bool quoted)
{
	const char *start = r->p;
	char *inner;
	int depth = 1;

	for (; *r->p; r->p++) {
		depth += end == ')' && *r->p == '(';
		if (*r->p == end && --depth == 0)
			break;
	}
	inner = xstrndup(start, (size_t)(r->p - start));
	if (strstr(inner, "dirname"))
		add_script_dir(r, quoted);
	free(inner);
	r->p += *r->p != '\0';
}

static void add_variable(struct reader *r, const char *name, const char *otherwise,
			 bool quoted)
{
	const char *value;
	long n;

	if (!strcmp(name, "@") || !strcmp(name, "*")) {
		add_args(r);
		return;
	}
	if (!strcmp(name, "0") || !strcmp(name, "BASH_SOURCE"))
		value = r->sh->script;
	else if (isdigit((unsigned char)*name)) {
		bool good = !str_to_long(&n, name, 1, WORDS_MAX, NULL) &&
			    (size_t)n + r->shifted <= r->sh->nargs;

		value = good ? r->sh->args[(size_t)n + r->shifted - 1] : NULL;
	} else {
		value = strv_env_get(r->sh->env, name);
	}
	add_text(r, value ? value : otherwise, quoted);
}

/* "${NAME}", "${NAME:-default}", "${NAME%...}"; p is behind the brace. */
static void read_braces(struct reader *r, bool quoted)
{
	size_t n = strspn(r->p, "@*"), len = strcspn(r->p, "}");
	char *name, *otherwise;
	const char *op;

	while (n < len && is_name_char(r->p[n]))
		n++;
	name = xstrndup(r->p, n);
	op = r->p + n;
	op += *op == ':';
	otherwise = *op == '-' && op < r->p + len
			    ? xstrndup(op + 1, (size_t)(r->p + len - op - 1))
			    : xstrdup("");
	add_variable(r, name, otherwise, quoted);
	free(name);
	free(otherwise);
	r->p += len;
	r->p += *r->p != '\0';
}

/* p is behind a '$'. */
static void read_dollar(struct reader *r, bool quoted)
{
	size_t n = 0;
	char *name;

	if (*r->p == '(') {
		r->p++;
		skip_command(r, ')', quoted);
		return;
	}
	if (*r->p == '{') {
		r->p++;
		read_braces(r, quoted);
		return;
	}
	if (*r->p && strchr("@*0123456789#?$!-", *r->p))
		n = 1;
	else
		while (is_name_char(r->p[n]))
			n++;
	if (n == 0) {
		add_char(r, '$');
		return;
	}
	name = xstrndup(r->p, n);
	r->p += n;
	add_variable(r, name, "", quoted);
	free(name);
}

/* p is behind a '"'. */
static void read_double(struct reader *r)
{
	/* "$@" without arguments is no word; "" is one. */
	r->in_word = r->in_word || strncmp(r->p, "$@\"", 3) != 0;
	while (*r->p && *r->p != '"') {
		char c = *r->p++;

		if (c == '$')
			read_dollar(r, true);
		else if (c == '`')
			skip_command(r, '`', true);
		else if (c == '\\' && *r->p == '\n')
			r->p++;
		else if (c == '\\' && *r->p && strchr("$`\"\\", *r->p))
			add_char(r, *r->p++);
		else
			add_char(r, c);
	}
	r->p += *r->p == '"';
}

/* p is behind a '\''. */
static void read_single(struct reader *r)
{
	size_t n = strcspn(r->p, "'");

	str_addn(&r->word, r->p, n);
	r->in_word = true;
	r->p += n;
	r->p += *r->p == '\'';
}

/* ---- commands ---- */

static void change_dir(struct reader *r, const char *to)
{
	char *dir;

	if (!strcmp(to, "."))
		return;
	dir = *to == '/' || !r->dir ? xstrdup(to) : xasprintf("%s/%s", r->dir, to);
	free(r->dir);
	r->dir = dir;
}

static bool assign(struct reader *r, const char *word)
{
	size_t n = 0;
	char *name;

	while (is_name_char(word[n]))
		n++;
	if (n == 0 || word[n] != '=' || isdigit((unsigned char)*word))
		return false;
	name = xstrndup(word, n);
	strv_env_set(r->sh->env, name, word + n + 1);
	free(name);
	return true;
}

/* Commands of the shell itself that matter to us; false for all others. */
static bool run_own(struct reader *r, char *const *w, size_t n)
{
	static const char *const setting[] = { "export", "declare", "local", "readonly",
					       "typeset" };

	if (!strcmp(w[0], "cd")) {
		if (n > 1 && *w[n - 1])
			change_dir(r, w[n - 1]);
		return true;
	}
	if (!strcmp(w[0], "shift")) {
		long by = 1;

		if (n > 1 && str_to_long(&by, w[1], 0, WORDS_MAX, NULL))
			by = 1;
		r->shifted += (size_t)by;
		return true;
	}
	for (size_t k = 0; k < sizeof setting / sizeof *setting; k++)
		if (!strcmp(w[0], setting[k])) {
			for (size_t i = 1; i < n; i++)
				assign(r, w[i]);
			return true;
		}
	return false;
}

/* The words make a command: hand it out.  True if that ends it all. */
static bool end_command(struct reader *r)
{
	static const char *const before[] = { "if",    "then", "else", "elif", "while",
					      "until", "do",   "!",    "{" };
	size_t i = 0;
	bool done = false;

	end_word(r);
	r->skip = r->here = false;
	while (i < r->words.n) {
		bool keyword = false;

		for (size_t k = 0; k < sizeof before / sizeof *before; k++)
			keyword = keyword || !strcmp(r->words.v[i], before[k]);
		if (!keyword && !assign(r, r->words.v[i]))
			break;
		i++;
	}
	if (i < r->words.n && !run_own(r, r->words.v + i, r->words.n - i))
		done = r->sh->command(r->sh->ctx, r->words.v + i, r->words.n - i,
				      r->dir);
	strv_free(&r->words);
	return done;
}

/* p is behind a '<' or '>'. */
static void read_redirection(struct reader *r)
{
	bool here = r->p[-1] == '<' && r->p[0] == '<' && r->p[1] != '<';

	if (r->in_word && r->word.len == 1 && isdigit((unsigned char)*r->word.s)) {
		str_free(&r->word); /* the 2 of "2>" */
		r->in_word = false;
	}
	end_word(r);
	r->p += strspn(r->p, here ? "<-" : "<>&|");
	r->skip = true;
	r->here = here;
}

/* A here-document begins at p, the line behind "<<END". */
static void skip_document(struct reader *r)
{
	while (*r->p) {
		size_t n = strcspn(r->p, "\n"), tabs = strspn(r->p, "\t");
		bool end = tabs <= n && strlen(r->until) == n - tabs &&
			   !memcmp(r->p + tabs, r->until, n - tabs);

		r->p += n;
		r->p += *r->p == '\n';
		if (end)
			break;
	}
	free(r->until);
	r->until = NULL;
}

/* One character C, p behind it.  True if a command ended it all. */
static bool read_char(struct reader *r, char c)
{
	bool done = false;

	if (c == '\'')
		read_single(r);
	else if (c == '"')
		read_double(r);
	else if (c == '$')
		read_dollar(r, false);
	else if (c == '`')
		skip_command(r, '`', false);
	else if (c == '\\' && *r->p == '\n')
		r->p++;
	else if (c == '\\' && *r->p)
		add_char(r, *r->p++);
	else if (c == '#' && !r->in_word)
		r->p += strcspn(r->p, "\n");
	else if (c == '<' || c == '>')
		read_redirection(r);
	else if (strchr("\n;&|()", c))
		done = end_command(r);
	else if (isspace((unsigned char)c))
		end_word(r);
	else
		add_char(r, c);
	if (c == '\n' && r->until)
		skip_document(r);
	return done;
}

bool shell_read(const struct shell *sh, const char *text)
{
	struct reader r = {
		.sh = sh,
		.p = text,
		.dir = sh->dir ? xstrdup(sh->dir) : NULL,
	};
	bool done = false;

	while (!done && *r.p) {
		char c = *r.p++;

		done = read_char(&r, c);
	}
	done = done || end_command(&r);
	end_word(&r);
	strv_free(&r.words);
	free(r.until);
	free(r.dir);
	return done;
}
