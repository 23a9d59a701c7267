#include "launcher/job/gpu_visible.h"

#include <ctype.h>
#include <fnmatch.h>
#include <unistd.h>

#include "common/file.h"

enum {
	FILES_MAX = 16,   /* a shell script may name any number of them */
	NESTING_MAX = 16, /* f-strings inside f-strings */
	NAMES_MAX = 32,
	PASSES = 4,    /* to collect names that get their value from one another */
	SPAN_MAX = 128 /* tokens of one expression: the time stays linear */
};

/* ---- what is looked for ---- */

/* Programs that use a local rank as a device.  The first row that matches decides. */
static const struct pattern {
	const char *word; /* for fnmatch() */
	enum {
		CALL,   /* WORD( */
		METHOD, /* .WORD( */
		VALUE,  /* WORD= */
		ANY,    /* also as the beginning of a string */
		IMPORT  /* in an import statement */
	} where;
	enum {
		RANK,  /* if the arguments, or the value, hold a local rank */
		ITEM,  /* the same, or a list of one variable */
		ALWAYS /* the library does it by itself */
	} when;
} patterns[] = {
	{ "cuda:", ANY, RANK },
	{ "to", METHOD, RANK },
	{ "cuda", METHOD, RANK },
	{ "*[dD]evice*", CALL, RANK },
	{ "device_ids", VALUE, ITEM },
	{ "device_i*", VALUE, RANK },
	{ "device", VALUE, RANK },
	{ "*_device", VALUE, RANK },
	{ "local_device_ids", VALUE, RANK },
	{ "visible_device_list", VALUE, RANK },
	{ "Accelerator", CALL, ALWAYS },
	{ "PartialState", CALL, ALWAYS },
	{ "launch_from_torch", CALL, ALWAYS },
	{ "*TrainingArguments", ANY, ALWAYS },
	{ "trl", IMPORT, ALWAYS },
	{ "lightning*", IMPORT, ALWAYS },
	{ "pytorch_lightning", IMPORT, ALWAYS },
	{ "deepspeed", IMPORT, ALWAYS },
};

enum program { UNKNOWN, PYTHON, SHELL, PYTHON_FILE, SHELL_FILE, LAUNCHER, WRAPPER };

/* For fnmatch(), without directories. */
static const char *const programs[][32] = {
	[PYTHON] = { "python", "python[0-9]*" },
	[SHELL] = { "sh", "bash", "dash", "zsh", "ksh" },
	[PYTHON_FILE] = { "*.py" },
	[SHELL_FILE] = { "*.sh", "*.bash" },
	/* Programs that these start use all GPUs, or a local rank that they set. */
	[LAUNCHER] = { "torchrun", "accelerate", "deepspeed", "torch.distributed.run",
		       "torch.distributed.launch" },
	/* These run the command that follows their options: programs, Python modules,
	 * words of the shell. */
	[WRAPPER] = { "apptainer", "env",    "nice",        "nohup",  "nsys",
		      "numactl",   "setsid", "singularity", "stdbuf", "taskset",
		      "timeout",   "uv",     "cProfile",    "pdb",    "exec",
		      "time",      "if",     "then",        "else",   "do",
		      "{",         "!" },
};

/* Names of a variable, attribute or function that is a local rank, or a rank: as a
 * device the two mean the same if there is one host. */
static const char *const rank_names[] = {
	"rank",       "get_rank",     "global_rank",   "world_rank",     "*local_rank",
	"*localrank", "*localrankid", "*local_rankid", "*slurm_localid", NULL
};

static bool visible_any(const char *word, const char *const *list)
{
	while (*list && strcmp(word, *list))
		list++;
	return *list;
}

static bool any_match(const char *word, const char *const *list, int flags)
{
	while (*list && fnmatch(*list, word, flags))
		list++;
	return *list;
}

/* ---- Python source to tokens ---- */

/* A name, a number, an operator, or "\n": the end of a statement.  Of strings are left:
 * a name of a local rank ("LOCAL_RANK"), "cuda:", the expressions of f-strings. */
struct token {
	const char *s;
	size_t at;    /* its offset in the source */
	bool is_rank; /* it is one of rank_names */
};

struct lexer {
	const char *in;
	size_t n, i;
	struct token *t; /* t[0] and t[1] are ends of statements, so is the last */
	size_t nt;
	char *end; /* of the text of all tokens, each with its NUL */
	int depth; /* of brackets */
};

static bool visible_is(const struct token *t, const char *word)
{
	return !strcmp(t->s, word);
}

static bool visible_is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static void add_token(struct lexer *x, const char *s, size_t n, size_t at)
{
	struct token *t = x->t + x->nt++;

	memcpy(x->end, s, n);
	x->end[n] = '\0';
	*t = (struct token){ .s = x->end, .at = at };
	x->end += n + 1;
	t->is_rank = visible_is_word(*s) && any_match(t->s, rank_names, FNM_CASEFOLD);
}

/* One character that is not part of a word or string, or two: "==", "+=". */
static void read_operator(struct lexer *x)
{
	const char *p = x->in + x->i;
	size_t n = 1;

	if (*p == '\\') {
		n = 2; /* the line goes on */
	} else if (*p == '\n' || *p == ';') {
		if (x->depth == 0)
			add_token(x, "\n", 1, x->i);
	} else if (*p && !isspace((unsigned char)*p)) {
		if (strchr("([{", *p))
			x->depth++;
		else if (strchr(")]}", *p) && x->depth > 0)
			x->depth--;
		else if (strchr("=!<>:+-*/%&|^@", *p) && x->n - x->i > 1 && p[1] == '=')
			n = 2;
		add_token(x, p, n, x->i);
	}
	x->i += n;
}

static void read_code(struct lexer *x, int nesting);

/* A string; i is at its first quote.  FORMAT: an f-string. */
static void read_string(struct lexer *x, bool format, int nesting)
{
	const char *quote = x->in + x->i, *from;
	size_t width = 1, n = 0;

	if (x->n - x->i > 2 && quote[1] == *quote && quote[2] == *quote)
		width = 3;
	from = quote + width;
	x->i += width;
	if (x->n - x->i > 5 && !memcmp(from, "cuda:", 5) &&
	    !isdigit((unsigned char)from[5]))
		add_token(x, from, 5, x->i);
	while (x->i < x->n &&
	       (x->n - x->i < width || memcmp(x->in + x->i, quote, width))) {
		char c = x->in[x->i];

		if (c == '\n' && width == 1)
			break; /* not closed: not Python, or cut off */
		if (format && c == '{' && nesting < NESTING_MAX && x->n - x->i > 1 &&
		    x->in[x->i + 1] != c)
			read_code(x, nesting + 1);
		else
			x->i += c == '\\' || (format && c == '{') ? 2 : 1;
	}
	if (x->i >= x->n)
		x->i = x->n;
	while (from + n < x->in + x->i && visible_is_word(from[n]))
		n++;
	if (!format && n > strlen("rank") && from + n == x->in + x->i) {
		add_token(x, from, n, x->i - n);
		x->nt -= !x->t[x->nt - 1].is_rank;
	}
	if (x->i < x->n && x->in[x->i] == *quote)
		x->i += width;
}

/* Code up to its end; NESTING: the expression of an f-string with its braces. */
static void read_code(struct lexer *x, int nesting)
{
	int depth = x->depth;

	do {
		size_t from = x->i;
		bool format = false;
		char c;

		for (; x->i < x->n && visible_is_word(x->in[x->i]); x->i++)
			format |= strchr("fFtT", x->in[x->i]) != NULL;
		c = x->i < x->n ? x->in[x->i] : '\0';
		if ((c == '"' || c == '\'') && x->i - from <= 2) /* r"", rf"" */
			read_string(x, format, nesting);
		else if (x->i > from)
			add_token(x, x->in + from, x->i - from, from);
		else if (c == '#' && !nesting)
			while (x->i < x->n && x->in[x->i] != '\n')
				x->i++;
		else if (x->i < x->n)
			read_operator(x);
	} while (x->i < x->n && (!nesting || x->depth > depth));
}

/* ---- devices ---- */

/* Names, ended by NULL. */
struct scan {
	const char *ranks[NAMES_MAX + 1]; /* hold a local rank */
	/* Hold the device that the program has already, or how many it sees: a rank
	 * modulo device_count() is 0 if one GPU is visible. */
	const char *devices[NAMES_MAX + 1];
};

/* The end of the expressions from T on: the bracket that closes a surrounding one, or a
 * COMMA. */
static const struct token *expression_end(const struct token *t, bool comma)
{
	int depth = 0;

	for (int n = 0; n < SPAN_MAX && !visible_is(t, "\n"); n++, t++) {
		if (strchr("([{", *t->s))
			depth++;
		else if (strchr(")]}", *t->s) && --depth < 0)
			break;
		else if (comma && depth == 0 && visible_is(t, ","))
			break;
	}
	return t;
}

static bool has_device(const struct scan *s, const struct token *t,
		       const struct token *end)
{
	while (t < end && !visible_any(t->s, s->devices))
		t++;
	return t < end;
}

/* The value of the tokens from T to END depends on a local rank, other than by a test:
 * "local_rank == 0", "if local_rank". */
static bool uses_rank(const struct scan *s, const struct token *t,
		      const struct token *end)
{
	static const char *const tests[] = { "==", "!=", "<",  ">",   "<=",
					     ">=", "in", "is", "not", NULL };
	static const char *const before[] = { "if", "elif",   "while", "and",
					      "or", "assert", NULL };

	if (has_device(s, t, end))
		return false;
	for (; t < end; t++) {
		const struct token *first = t, *after = t + 1;

		if ((!t->is_rank && !visible_any(t->s, s->ranks)) ||
		    visible_is(after, ".") || visible_is(after, "="))
			continue;
		while (strchr("()]", *after->s))
			after++;
		while (visible_is(first - 1, "."))
			first -= 2;
		if (!visible_any(after->s, tests) && !visible_any(first[-1].s, tests) &&
		    !visible_any(first[-1].s, before))
			return true;
	}
	return false;
}

/* Note the name that the statement from T to END gives a local rank or device to. */
static void visible_collect(struct scan *s, const struct token *t,
			    const struct token *end)
{
	static const char *const heads[] = { "if",    "elif", "else", "for",
					     "while", "with", "try",  NULL };
	static const char *const through[] = { "int",    "str", "get", "getenv",
					       "pop",    "min", "max", "device",
					       "format", "abs", NULL };
	const struct token *value = NULL, *target = NULL;
	const bool head = visible_any(t->s, heads);
	const char **into = s->ranks;
	size_t n = 0;
	int depth = 0;

	for (; t < end; t++) {
		depth += strchr("([{", *t->s) != NULL;
		depth -= strchr(")]}", *t->s) != NULL;
		if (depth == 0 && !target &&
		    (visible_is(t, "=") || (visible_is(t, ":") && !head)))
			target = t - 1;
		if (depth == 0 && visible_is(t, "="))
			value = t + 1;
	}
	if (!value || !target || !visible_is_word(*target->s))
		return;
	if (has_device(s, value, end))
		into = s->devices;
	else if (!uses_rank(s, value, end))
		return;
	else /* what another function returns is another value */
		for (t = value; t < end; t++)
			if (visible_is(t + 1, "(") && visible_is_word(*t->s) &&
			    !t->is_rank && !visible_any(t->s, through))
				return;
	while (n < NAMES_MAX && into[n] && strcmp(into[n], target->s))
		n++;
	if (n < NAMES_MAX)
		into[n] = target->s;
}

/* The token T, in a statement that begins with FIRST, uses a local rank as a device. */
static bool uses_device(const struct scan *s, const struct token *first,
			const struct token *t)
{
	static const char *const imports[] = { "import", "from", NULL };
	const struct pattern *p = patterns, *last = p + sizeof patterns / sizeof *p;
	const bool method = visible_is(t - 1, "."),
		   import = visible_any(first->s, imports);
	const char next = *t[1].s;

	for (; p < last; p++) {
		const bool fits[] = {
			[CALL] = next == '(',
			[METHOD] = next == '(' && method,
			[VALUE] = visible_is(t + 1, "="),
			[ANY] = true,
			[IMPORT] = import && !method,
		};

		if (fits[p->where] && !fnmatch(p->word, t->s, 0))
			break;
	}
	if (p == last || p->when == ALWAYS)
		return p < last;
	t += p->where == ANY ? 1 : 2;
	if (uses_rank(s, t, expression_end(t, p->where != CALL)))
		return true;
	if (p->when != ITEM || !visible_is(t, "["))
		return false;
	for (t++; visible_is_word(*t->s) && visible_is(t + 1, "."); t += 2)
		;
	return visible_is_word(*t->s) && !isdigit((unsigned char)*t->s) &&
	       visible_is(t + 1, "]") && !visible_any(t->s, s->devices);
}

static void visible_decide(struct visible *v, const char *file, size_t line,
			   const char *word)
{
	v->mode = VISIBLE_NODE;
	v->file = xstrdup(file);
	v->line = line;
	v->word = xstrndup(word, strcspn(word, ":"));
}

void visible_scan(struct visible *v, const char *file, const char *text, size_t n)
{
	static const char *const definitions[] = { "def", "class", "async", NULL };
	/* A token is not longer than its source, but for its NUL; three are added. */
	char *tokens = xmalloc(2 * (n + 3));
	struct lexer x = { .in = text, .n = n, .end = tokens };
	const struct token *t, *first, *end, *last, *found = NULL;
	struct scan s = { .devices = { "current_device", "device_count" } };
	size_t line = 1;

	x.t = xcalloc(n + 3, sizeof *x.t);
	add_token(&x, "\n", 1, 0);
	add_token(&x, "\n", 1, 0);
	read_code(&x, 0);
	add_token(&x, "\n", 1, n);
	last = x.t + x.nt;
	for (int pass = 0; pass <= PASSES; pass++)
		for (first = x.t + 2; first < last && !found; first = end + 1) {
			for (end = first; !visible_is(end, "\n");)
				end++;
			if (pass < PASSES)
				visible_collect(&s, first, end);
			else if (!visible_any(first->s,
					      definitions)) /* no use of parameters */
				for (t = first; t < end && !found; t++)
					found = uses_device(&s, first, t) ? t : NULL;
		}
	for (size_t i = 0; found && i < found->at; i++)
		line += text[i] == '\n';
	if (found)
		visible_decide(v, file, line, found->s);
	free(x.t);
	free(tokens);
}

/* ---- the command line to the entry script ---- */

struct find {
	struct visible *v;
	const char *dir;         /* where argv will run, NULL: here */
	const char *python_path; /* PYTHONPATH */
	bool in_shell;           /* a shell script is being read: no second one is */
	int files;               /* read so far */
};

static enum program program_of(const char *word)
{
	const char *slash = strrchr(word, '/');
	enum program is = WRAPPER;

	while (is && !any_match(slash ? slash + 1 : word, programs[is], 0))
		is--;
	return is;
}

/* WORDS[0..n), and NULL. */
static void follow_command(struct find *f, char *const *words, size_t n);

/* The commands of a shell TEXT, up to a cd; ARGS are its "$@".  Quotes and comments are
 * understood; variables are not, and each branch is read. */
static void follow_shell(struct find *f, const char *text, char *const *args)
{
	const char *end = text + strlen(text);
	struct strv words = { 0 };
	struct str word = { 0 };
	char quote = '\0';

	f->in_shell = true;
	for (const char *p = text; p <= end && f->v->mode == VISIBLE_ONE; p++) {
		if (*p && (quote ? *p == quote : *p == '\'' || *p == '"')) {
			quote = quote ? '\0' : *p;
			str_add(&word, "");
		} else if (*p == '\\' && p[1] && quote != '\'') {
			if (*++p != '\n')
				str_addn(&word, p, 1);
		} else if (*p == '#' && !quote && !word.s) {
			p += strcspn(p, "\n") - 1;
		} else if (*p && (quote || !strchr(" \t\r\n;&|()", *p))) {
			str_addn(&word, p, 1);
		} else {
			if (word.s && !strcmp(word.s, "$@"))
				while (*args)
					strv_add(&words, *args++);
			else if (word.s)
				strv_add(&words, word.s);
			str_free(&word);
			if (*p && strchr(" \t\r", *p))
				continue;
			if (words.n && !strcmp(words.v[0], "cd"))
				break;
			follow_command(f, words.v, words.n);
			strv_free(&words);
		}
	}
	str_free(&word);
	strv_free(&words);
	f->in_shell = false;
}

/* The file NAME: Python, or a shell script with ARGS.  Returns false if it cannot be
 * read. */
static bool follow_file(struct find *f, const char *name, enum program is,
			char *const *args)
{
	char *path = *name == '/' || !f->dir ? xstrdup(name)
					     : xasprintf("%s/%s", f->dir, name);
	struct str text = { 0 };
	bool good = f->files < FILES_MAX &&
		    !file_read(&text, path, VISIBLE_FILE_BYTES, true);

	f->files += good;
	if (good && is == PYTHON_FILE)
		visible_scan(f->v, path, str_text(&text), text.len);
	else if (good && !f->in_shell)
		follow_shell(f, str_text(&text), args);
	str_free(&text);
	free(path);
	return good;
}

/* `python -m NAME`: a file in the working directory or in PYTHONPATH. */
static void follow_module(struct find *f, const char *name)
{
	static const char *const tails[] = { "/__main__.py", ".py" };
	char *paths = xasprintf(":%s", f->python_path ? f->python_path : "");
	char *module = xstrdup(name), *rest = paths, *base;
	bool found = false;

	for (char *p = module; *p; p++)
		*p = *p == '.' ? '/' : *p;
	while (!found && (base = strsep(&rest, ":")))
		for (size_t i = 0; i < 2 && !found; i++) {
			char *file = xasprintf("%s%s%s%s", base, *base ? "/" : "",
					       module, tails[i]);

			found = follow_file(f, file, PYTHON_FILE, NULL);
			free(file);
		}
	free(module);
	free(paths);
}

/* WORDS[0] is python or a shell: their options, then a script or its text. */
static void follow_interpreter(struct find *f, enum program is, char *const *words,
			       size_t n)
{
	const char *options = is == PYTHON ? "+c:m:W:X:" : "+co:O:";
	int option = 0, how = 0;

	optind = 0; /* begin again */
	opterr = 0;
	while (option != -1 && !(how && is == PYTHON)) {
		option = getopt((int)n, words, options);
		if (option == 'c' || option == 'm')
			how = option;
	}
	words += optind;
	if (how == 'm' && program_of(optarg) >= LAUNCHER)
		follow_command(f, words - 1, n - (size_t)optind + 1);
	else if (how == 'm')
		follow_module(f, optarg);
	else if (how == 'c' && is == PYTHON)
		visible_scan(f->v, "-c", optarg, strlen(optarg));
	else if (*words && !how)
		follow_file(f, *words, is == PYTHON ? PYTHON_FILE : SHELL_FILE,
			    words + 1);
	else if (*words && !f->in_shell) /* -c TEXT NAME ARGS */
		follow_shell(f, *words, words + (words[1] ? 2 : 1));
}

static void follow_command(struct find *f, char *const *words, size_t n)
{
	enum program is = UNKNOWN;
	bool wrapped = false;
	size_t i = 0;

	for (; i < n; i++) {
		is = program_of(words[i]);
		wrapped |= is == WRAPPER;
		if (is == UNKNOWN ? !wrapped && !strchr(words[i], '=') : is != WRAPPER)
			break;
	}
	if (i == n)
		return;
	if (is == LAUNCHER)
		visible_decide(f->v, words[i], 0, words[i]);
	else if (is == PYTHON || is == SHELL)
		follow_interpreter(f, is, words + i, n - i);
	else if (is != UNKNOWN)
		follow_file(f, words[i], is, words + i + 1);
}

void visible_find(struct visible *v, const struct strv *argv, const char *wdir,
		  const struct strv *env)
{
	struct find f = {
		.v = v,
		.dir = wdir,
		.python_path = strv_env_get(env, "PYTHONPATH"),
	};

	v->mode = VISIBLE_ONE;
	follow_command(&f, argv->v, argv->n);
}

void visible_free(struct visible *v)
{
	free(v->file);
	free(v->word);
	*v = (struct visible){ 0 };
}
