#include "launcher/job/gpu_visible.h"

#include <ctype.h>
#include <unistd.h>

#include "launcher/file.h"
#include "launcher/job/shell.h"

enum { DEPTH_MAX = 12, FILES_MAX = 64 };

/* A command line being followed.  Functions below return true when V is decided. */
struct follow {
	struct visible *v;
	struct strv env; /* PATH and PYTHONPATH, as wrappers change them */
	int depth, files;
};

/* The words of a command, argv[0..n), and the folder where it runs (NULL: here). */
struct command {
	char *const *v;
	size_t n;
	const char *dir;
};

static bool follow_command(struct follow *f, struct command c);
static bool follow_module(struct follow *f, const char *name, const char *dir,
			  bool run);

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static char *path_in(const char *dir, const char *name)
{
	return *name == '/' || !dir ? xstrdup(name) : xasprintf("%s/%s", dir, name);
}

static char *dir_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), len = strlen(end);

	return n > len && !strcmp(s + n - len, end);
}

static bool one_of(const char *word, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(word, list[i]))
			return true;
	return false;
}

#define ONE_OF(word, list) one_of((word), (list), sizeof(list) / sizeof *(list))

static bool is_python(const char *word)
{
	const char *name = base_name(word);

	return !strncmp(name, "python", 6) &&
	       !name[6 + strspn(name + 6, "0123456789.")];
}

static bool is_shell(const char *word)
{
	static const char *const shells[] = { "sh", "bash", "dash", "zsh", "ksh" };

	return ONE_OF(base_name(word), shells);
}

/* Programs that run the command behind their own options. */
static bool is_wrapper(const char *word)
{
	static const char *const wrappers[] = {
		"apptainer", "catchsegv",  "chrt",   "command",     "conda",
		"env",       "eval",       "exec",   "gdb",         "ionice",
		"mamba",     "micromamba", "ncu",    "nice",        "nohup",
		"nsys",      "numactl",    "perf",   "pipenv",      "pixi",
		"poetry",    "rocprof",    "setsid", "singularity", "stdbuf",
		"strace",    "taskset",    "time",   "timeout",     "uv",
		"xvfb-run"
	};

	return ONE_OF(base_name(word), wrappers);
}

/* Launchers of their own: what they start uses all GPUs, or a local rank they set. */
static bool is_launcher(const char *word)
{
	static const char *const launchers[] = { "torchrun", "accelerate",
						 "deepspeed" };

	return ONE_OF(base_name(word), launchers);
}

static bool is_script(const char *word)
{
	return ends_with(word, ".py") || ends_with(word, ".sh") ||
	       ends_with(word, ".bash");
}

static bool decide(struct follow *f, const char *file, size_t line, const char *word)
{
	*f->v = (struct visible){
		.mode = VISIBLE_NODE,
		.file = xstrdup(file),
		.line = line,
		.word = xstrdup(word),
	};
	return true;
}

static bool scan_text(struct follow *f, const char *text, size_t n, const char *file)
{
	char word[64];
	size_t line;

	return visible_scan(text, n, &line, word, sizeof word) == VISIBLE_NODE &&
	       decide(f, file, line, word);
}

static bool read_script(struct follow *f, struct str *text, const char *path)
{
	return f->files++ < FILES_MAX &&
	       !file_read(text, path, VISIBLE_SCAN_BYTES, true);
}

/* ---- Python ---- */

/* The module X of a line "from X import ..." or "import X", NULL if it is none; X may
 * begin with dots, and "from . import X" is ".X".  The caller frees it. */
static char *imported(const char *line)
{
	const char *name;
	size_t n;

	line += strspn(line, " \t");
	if (!strncmp(line, "import ", 7))
		return xstrndup(line + 7, strcspn(line + 7, " ,;\r"));
	if (strncmp(line, "from ", 5))
		return NULL;
	line += 5 + strspn(line + 5, " ");
	n = strcspn(line, " ");
	if (strncmp(line + n, " import ", 8))
		return NULL;
	name = line + n + 8;
	if (strspn(line, ".") == n)
		return xasprintf("%.*s%.*s", (int)n, line, (int)strcspn(name, " ,;\r"),
				 name);
	return xstrndup(line, n);
}

/* MODULE as "..pkg.mod" in the file PATH: each dot but the first goes a folder up. */
static bool follow_relative(struct follow *f, const char *module, const char *path)
{
	size_t dots = strspn(module, ".");
	char *package = dir_name(path);
	bool found;

	for (size_t up = 1; up < dots; up++) {
		char *parent = xasprintf("%s/..", package);

		free(package);
		package = parent;
	}
	found = follow_module(f, module + dots, package, false);
	free(package);
	return found;
}

/* A file that only hands over to a module: follow what it imports from.  DIR is where
 * absolute names are looked for first, PATH is the file. */
static bool follow_imports(struct follow *f, const char *text, const char *path,
			   const char *dir)
{
	bool found = false;

	while (!found && *text) {
		size_t n = strcspn(text, "\n");
		char *line = xstrndup(text, n), *module = imported(line);

		if (module && *module == '.')
			found = follow_relative(f, module, path);
		else if (module)
			found = follow_module(f, module, dir, false);
		free(module);
		free(line);
		text += n + (text[n] == '\n');
	}
	return found;
}

/* The Python file PATH; HANDS_OVER: it may be nothing but an import and a call. */
static bool follow_python(struct follow *f, const char *path, const char *dir,
			  bool hands_over)
{
	struct str text = { 0 };
	bool found = read_script(f, &text, path) &&
		     (scan_text(f, str_text(&text), text.len, path) ||
		      (hands_over && follow_imports(f, str_text(&text), path, dir)));

	str_free(&text);
	return found;
}

/* A folder or archive given as a script is run by the __main__.py in it. */
static bool follow_script(struct follow *f, const char *script, const char *dir)
{
	char *path = path_in(dir, script), *inner = xasprintf("%s/__main__.py", path);
	char *folder = dir_name(path);
	bool found = access(inner, R_OK) ? follow_python(f, path, folder, false)
					 : follow_python(f, inner, path, true);

	free(folder);
	free(inner);
	free(path);
	return found;
}

/* The file of module NAME ("pkg/mod" already) below BASE; NULL if it isn't there. */
static char *module_file(const char *base, const char *name, bool run)
{
	static const char *const tails[] = { ".py", "/__main__.py", "/__init__.py" };

	for (size_t i = 0; i < 3; i++) {
		char *path =
			xasprintf("%s%s%s%s", base, *base ? "/" : "", name, tails[i]);

		if ((i != 1 || run) && !access(path, R_OK))
			return path;
		free(path);
	}
	return NULL;
}

/* Look NAME up in DIR, DIR/src and PYTHONPATH. */
static char *find_module(struct follow *f, const char *name, const char *dir, bool run)
{
	const char *paths = strv_env_get(&f->env, "PYTHONPATH");
	char *file = module_file(dir ? dir : "", name, run), *base;

	if (!file) {
		base = path_in(dir, "src");
		file = module_file(base, name, run);
		free(base);
	}
	for (; !file && paths; paths = strchr(paths, ':')) {
		char *entry;

		paths += *paths == ':';
		entry = xstrndup(paths, strcspn(paths, ":"));
		base = path_in(dir, entry);
		if (*entry)
			file = module_file(base, name, run);
		free(base);
		free(entry);
	}
	return file;
}

/* Module NAME, imported, or RUN as by -m. */
static bool follow_module(struct follow *f, const char *name, const char *dir, bool run)
{
	char *path, *file = NULL;
	bool found = false;

	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._", *p))
			return false;
	if (f->depth++ < DEPTH_MAX) {
		path = xstrdup(*name ? name : "__init__");
		for (char *p = path; *p; p++)
			*p = *p == '.' ? '/' : *p;
		file = find_module(f, path, dir, run);
		free(path);
	}
	if (file)
		found = follow_python(f, file, dir,
				      strstr(base_name(file), "__") != NULL);
	free(file);
	f->depth--;
	return found;
}

/* -m NAME and the words behind it. */
static bool follow_run_module(struct follow *f, const char *name, struct command rest)
{
	static const char *const launchers[] = { "torch.distributed.run",
						 "torch.distributed.launch",
						 "accelerate.commands.launch",
						 "deepspeed.launcher.runner" };
	static const char *const wrappers[] = {
		"pdb",     "cProfile", "coverage",  "debugpy",      "kernprof",
		"scalene", "trace",    "viztracer", "line_profiler"
	};

	if (ONE_OF(name, launchers))
		return decide(f, name, 0, name);
	if (!ONE_OF(name, wrappers))
		return follow_module(f, name, rest.dir, true);
	for (size_t i = 0; i < rest.n; i++)
		if (ends_with(rest.v[i], ".py"))
			return follow_script(f, rest.v[i], rest.dir);
	return false;
}

/* What is behind the word "python". */
static bool follow_python_args(struct follow *f, struct command c)
{
	for (size_t i = 1; i < c.n; i++) {
		const char *word = c.v[i];
		size_t flags =
			*word == '-' ? 1 + strspn(word + 1, "bBdEhiIOPqRsSuvVx?") : 0;
		const char *arg = flags && word[flags] && word[flags + 1]
					  ? word + flags + 1
					  : NULL;

		if (!flags)
			return follow_script(f, word, c.dir);
		if (!word[flags] || word[1] == '-')
			continue;
		if (!arg && i + 1 < c.n)
			arg = c.v[++i];
		if (!arg)
			return false;
		if (word[flags] == 'c')
			return scan_text(f, arg, strlen(arg), "-c");
		if (word[flags] == 'm') {
			struct command rest = { c.v + i + 1, c.n - i - 1, c.dir };

			return follow_run_module(f, arg, rest);
		}
	}
	return false;
}

/* ---- shells ---- */

static bool shell_command(void *ctx, char *const *words, size_t n, const char *dir)
{
	return follow_command(ctx, (struct command){ words, n, dir });
}

static bool follow_shell_text(struct follow *f, const char *text, const char *script,
			      struct command args)
{
	struct shell sh = {
		.env = &f->env,
		.args = args.v,
		.nargs = args.n,
		.script = script,
		.dir = args.dir,
		.command = shell_command,
		.ctx = f,
	};

	return shell_read(&sh, text);
}

/* The file SCRIPT, as typed: that is its $0. */
static bool follow_shell_file(struct follow *f, const char *script, struct command args)
{
	char *path = path_in(args.dir, script);
	struct str text = { 0 };
	bool found = read_script(f, &text, path) &&
		     follow_shell_text(f, str_text(&text), script, args);

	str_free(&text);
	free(path);
	return found;
}

/* What is behind the word "bash": c.v[0]. */
static bool follow_shell_args(struct follow *f, struct command c)
{
	bool is_text = false;

	for (size_t i = 1; i < c.n; i++) {
		const char *word = c.v[i];
		struct command args = { c.v + i + 1, c.n - i - 1, c.dir };

		if ((*word == '-' || *word == '+') && word[1]) {
			is_text = is_text || (word[1] != '-' && strchr(word, 'c'));
			i += !strcmp(word + 1, "o") || !strcmp(word + 1, "O") ||
			     !strcmp(word, "--rcfile") || !strcmp(word, "--init-file");
			continue;
		}
		if (is_text) {
			if (args.n > 0) { /* sh -c TEXT NAME ARGS */
				args.v++;
				args.n--;
			}
			return follow_shell_text(f, word, NULL, args);
		}
		return follow_shell_file(f, word, args);
	}
	return false;
}

/* ---- programs ---- */

/* The file of the program NAME; NULL if PATH doesn't lead to one. */
static char *find_program(struct follow *f, const char *name, const char *dir)
{
	const char *paths = strv_env_get(&f->env, "PATH");
	char *path;

	if (!*name || strchr(name, '/'))
		return *name ? path_in(dir, name) : NULL;
	for (; paths; paths = strchr(paths, ':')) {
		char *entry, *folder;

		paths += *paths == ':';
		entry = xstrndup(paths, strcspn(paths, ":"));
		folder = path_in(dir, *entry ? entry : ".");
		path = xasprintf("%s/%s", folder, name);
		free(folder);
		free(entry);
		if (!access(path, X_OK))
			return path;
		free(path);
	}
	path = xasprintf("%s/.venv/bin/%s", dir ? dir : ".",
			 name); /* `uv run` looks here */
	if (!access(path, X_OK))
		return path;
	free(path);
	return NULL;
}

/* A script by its first line.  pip writes "#!/bin/sh" and "'''exec' python" on the
 * second where the path of Python is too long for a first line. */
static bool follow_program(struct follow *f, struct command c)
{
	char *path = find_program(f, c.v[0], c.dir);
	struct str text = { 0 }, first = { 0 };
	struct command args = { c.v + 1, c.n - 1, c.dir };
	bool found = false, python;

	if (!path || file_read(&text, path, 2, true) || strcmp(str_text(&text), "#!"))
		goto out; /* not a script: 2 bytes tell */
	str_free(&text);
	if (!read_script(f, &text, path))
		goto out;
	str_addn(&first, text.s, strcspn(text.s, "\n"));
	python = strstr(first.s, "python") ||
		 !strncmp(text.s + first.len, "\n'''exec'", 9);
	if (python)
		found = scan_text(f, text.s, text.len, path) ||
			(!ends_with(path, ".py") &&
			 follow_imports(f, text.s, path, c.dir));
	else if (strstr(first.s, "sh"))
		found = follow_shell_text(f, text.s,
					  strchr(c.v[0], '/') ? c.v[0] : path, args);
out:
	str_free(&first);
	str_free(&text);
	free(path);
	return found;
}

static bool is_known(const char *word)
{
	return is_python(word) || is_shell(word) || is_wrapper(word) ||
	       is_launcher(word) || is_script(word);
}

/* NAME=VALUE before a command: what moves PATH and its like counts for the rest. */
static bool take_assignment(struct follow *f, const char *word)
{
	size_t n = strcspn(word, "=");
	char *name;

	if (n == 0 || !word[n] || *word == '-')
		return false;
	name = xstrndup(word, n);
	strv_env_set(&f->env, name, word + n + 1);
	free(name);
	return true;
}

static bool follow_eval(struct follow *f, struct command c)
{
	struct str text = { 0 };
	bool found;

	for (size_t i = 1; i < c.n; i++)
		str_addf(&text, "%s ", c.v[i]);
	found = follow_shell_text(f, str_text(&text), NULL,
				  (struct command){ .dir = c.dir });
	str_free(&text);
	return found;
}

/* Behind a wrapper's options, which nobody can know all, the first word that we know;
 * else the first that is a program. */
static bool follow_wrapper(struct follow *f, struct command c)
{
	static const char *const verbs[] = { "run", "exec", "profile", "record" };
	const char *name = base_name(c.v[0]);
	size_t program = 0;

	if (!strcmp(name, "eval"))
		return follow_eval(f, c);
	for (size_t i = 1; i < c.n; i++) {
		struct command rest = { c.v + i, c.n - i, c.dir };
		char *path;

		if (!strcmp(c.v[i], "-m") && !strcmp(name, "uv"))
			return follow_python_args(
				f, (struct command){ c.v + i - 1, c.n - i + 1, c.dir });
		if (is_known(c.v[i]))
			return follow_command(f, rest);
		if (*c.v[i] == '-' || take_assignment(f, c.v[i]) ||
		    ONE_OF(c.v[i], verbs) || program)
			continue;
		path = find_program(f, c.v[i], c.dir);
		if (path && !access(path, X_OK))
			program = i;
		free(path);
	}
	if (!program)
		return false;
	return follow_command(f,
			      (struct command){ c.v + program, c.n - program, c.dir });
}

static bool follow_known(struct follow *f, struct command c)
{
	const char *word = c.v[0];

	if (is_launcher(word))
		return decide(f, word, 0, base_name(word));
	if (is_python(word))
		return follow_python_args(f, c);
	if (is_shell(word))
		return follow_shell_args(f, c);
	if (is_wrapper(word))
		return follow_wrapper(f, c);
	if (ends_with(word, ".py") && follow_script(f, word, c.dir))
		return true; /* as `uv run X.py`, with or without a first line */
	return follow_program(f, c);
}

static bool follow_command(struct follow *f, struct command c)
{
	bool found = false;

	if (c.n > 0 && f->depth++ < DEPTH_MAX) {
		found = follow_known(f, c);
		f->depth--;
	}
	return found;
}

void visible_find(struct visible *v, const struct strv *argv, const char *wdir,
		  const struct strv *env)
{
	struct follow f = { .v = v };

	v->mode = VISIBLE_ONE;
	for (size_t i = 0; i < env->n; i++)
		strv_add(&f.env, env->v[i]);
	follow_command(&f, (struct command){ argv->v, argv->n, wdir });
	strv_free(&f.env);
}

void visible_free(struct visible *v)
{
	free(v->file);
	free(v->word);
	*v = (struct visible){ 0 };
}
