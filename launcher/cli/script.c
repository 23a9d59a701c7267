#include "launcher/cli/script.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* DIR/NAME, or NAME alone if that is a whole path or there is no DIR. */
static char *script_path(const char *dir, size_t n, const char *name)
{
	return *name == '/' || !n ? xstrdup(name)
				  : xasprintf("%.*s/%s", (int)n, dir, name);
}

static bool script_is_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* The kernel can execute PATH: it names its interpreter. */
static bool script_runs(const char *path)
{
	char start[2] = "";
	int fd;
	ssize_t n;

	if (access(path, X_OK))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true; /* the ranks may read it */
	n = read(fd, start, sizeof start);
	close(fd);
	return n == sizeof start && !memcmp(start, "#!", sizeof start);
}

/* A folder of PATH has the program NAME. */
static bool script_in_path(const char *name, const char *path)
{
	bool found = false;

	for (const char *dir = path; dir && !found;) {
		const size_t n = strcspn(dir, ":");
		char *file = script_path(dir, n, name);

		found = script_is_file(file) && !access(file, X_OK);
		free(file);
		dir = dir[n] ? dir + n + 1 : NULL;
	}
	return found;
}

static bool script_needs_python(const struct app *a, const char *path)
{
	const char *name = a->argv.n ? a->argv.v[0] : "";
	const size_t n = strlen(name);
	char *file;
	bool needs;

	if (n <= 3 || strcmp(name + n - 3, ".py"))
		return false;
	if (!strchr(name, '/') && script_in_path(name, path))
		return false;
	file = script_path(a->wdir, a->wdir ? strlen(a->wdir) : 0, name);
	needs = script_is_file(file) && !(strchr(name, '/') && script_runs(file));
	free(file);
	return needs;
}

void script_prefix(struct request *r, const char *path)
{
	for (size_t i = 0; i < r->napp; i++) {
		struct app *a = &r->app[i];
		struct strv argv = { 0 };

		if (!script_needs_python(a, path))
			continue;
		strv_add(&argv, "python3");
		for (size_t k = 0; k < a->argv.n; k++)
			strv_add(&argv, a->argv.v[k]);
		strv_free(&a->argv);
		a->argv = argv;
	}
}
