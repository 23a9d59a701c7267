#include "launcher/job/python.h"

#include "common/file.h"

static const char *base_of(const char *word)
{
	const char *slash = strrchr(word, '/');

	return slash ? slash + 1 : word;
}

/* "python", "python3", "python3.12" */
static bool is_python(const char *word)
{
	const char *name = base_of(word);

	return !strncmp(name, "python", 6) &&
	       !name[6 + strspn(name + 6, "0123456789.")];
}

/* Programs that run the command behind their own options, as numactl does. */
static bool is_wrapper(const char *word)
{
	static const char *const names[] = { "env",       "nice",       "nohup",
					     "numactl",   "setsid",     "stdbuf",
					     "taskset",   "timeout",    "uv",
					     "apptainer", "singularity" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(base_of(word), names[i]))
			return true;
	return false;
}

/* A program is given as -c TEXT, -m MODULE or a file. */
struct entry {
	const char *how, *what;
};

/* Python's options from ARGV[I] on to OUT, without -c and -m, which go to ENTRY. */
static size_t copy_options(struct strv *out, const struct strv *argv, size_t i,
			   struct entry *entry)
{
	for (; i < argv->n && argv->v[i][0] == '-' && argv->v[i][1]; i++) {
		const char *word = argv->v[i];
		size_t n = 1 + strcspn(word + 1, "cmWX-");
		const char *value = !word[n]          ? NULL
				    : word[n + 1]     ? word + n + 1
				    : i + 1 < argv->n ? argv->v[i + 1]
						      : NULL;

		if (value && (word[n] == 'c' || word[n] == 'm')) {
			if (n > 1)
				strv_take(out, xstrndup(word, n));
			entry->how = word[n] == 'c' ? "text" : "module";
			entry->what = value;
			return i + 1 + !word[n + 1];
		}
		strv_add(out, word);
		if (value && strchr("WX", word[n]) && !word[n + 1])
			strv_add(out, argv->v[++i]);
	}
	return i;
}

/* ARGV[AT] is python. */
static bool follow_python(struct strv *out, const struct strv *argv, size_t at,
			  const char *text)
{
	struct entry entry = { .how = "file" };
	size_t i;

	for (i = 0; i <= at; i++)
		strv_add(out, argv->v[i]);
	i = copy_options(out, argv, at + 1, &entry);
	if (!entry.what && (i == argv->n || !strcmp(argv->v[i], "-"))) {
		strv_free(out); /* it reads its program from stdin */
		return false;
	}
	strv_add(out, "-c");
	strv_add(out, text);
	strv_add(out, entry.how);
	if (entry.what)
		strv_add(out, entry.what);
	for (; i < argv->n; i++)
		strv_add(out, argv->v[i]);
	return true;
}

/* The interpreter in the first line of a script, if it is python, and the whole ARGV
 * behind it. */
static bool follow_script(struct strv *out, const struct strv *argv, const char *wdir,
			  const char *text)
{
	char line[256] = "", *path, *rest = line, *word;
	bool python = false;

	path = wdir && *argv->v[0] != '/' ? xasprintf("%s/%s", wdir, argv->v[0])
					  : xstrdup(argv->v[0]);
	file_start(path, line, sizeof line);
	free(path);
	line[strcspn(line, "\r\n")] = '\0';
	if (strncmp(line, "#!", 2))
		return false;
	rest += 2;
	while ((word = strsep(&rest, " \t"))) {
		python |= is_python(word);
		if (*word && strcmp(word, "-S"))
			strv_add(out, word);
	}
	strv_add(out, "-c");
	strv_add(out, text);
	strv_add(out, "file");
	for (size_t i = 0; i < argv->n; i++)
		strv_add(out, argv->v[i]);
	if (!python)
		strv_free(out);
	return python;
}

bool python_wraps(const struct strv *argv)
{
	return argv->n && is_wrapper(argv->v[0]);
}

bool python_command(struct strv *out, const struct strv *argv, const char *wdir,
		    const char *text)
{
	size_t i = 0;

	if (!argv->n)
		return false;
	if (is_wrapper(argv->v[0]))
		while (i < argv->n && !is_python(argv->v[i]))
			i++;
	if (i < argv->n && is_python(argv->v[i]))
		return follow_python(out, argv, i, text);
	return strchr(argv->v[0], '/') && follow_script(out, argv, wdir, text);
}
