#include "common/package.h"

#include <unistd.h>

#include "common/wire.h"

/* libberth.so with the major and the minor number of the version. */
static char *soname(void)
{
	const char *last = strrchr(BERTH_VERSION, '.');

	return xasprintf("libberth.so.%.*s", (int)(last - BERTH_VERSION),
			 BERTH_VERSION);
}

/* PATH without its last N parts.  To be freed; NULL: it has fewer. */
static char *above(const char *path, int n)
{
	size_t len = strlen(path);

	for (; n; n--) {
		while (len && path[len - 1] != '/')
			len--;
		if (!len)
			return NULL;
		len--;
	}
	return xstrndup(path, len);
}

char *package_own(void)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *root, *own;

	if (n <= 0)
		return NULL;
	self[n] = '\0';
	root = above(self, 2);
	own = root && !strncmp(self + strlen(root), "/bin/", 5)
		      ? xasprintf("%s/share/berth/python", root)
		      : NULL;
	free(root);
	return own;
}

bool package_has(const struct package *p, const char *path)
{
	char *init = xasprintf("%s/%s/__init__.py", p->python, path);
	const bool has = !access(init, R_OK);

	free(init);
	return has;
}

static void look_for(struct str *missing, const char *path)
{
	if (missing)
		str_addf(missing, "%s'%s'", missing->len ? " or " : "", path);
}

/* `make install` links libberth into the package, whatever LIBDIR is. */
static char *find_library(const char *python, struct str *missing)
{
	char *name = soname(), *root = above(python, 3);
	char *path[] = { xasprintf("%s/berth/%s", python, name),
			 xasprintf("%s/lib/%s", root ? root : "", name) };
	char *found = NULL;

	for (size_t i = 0; i < 2; i++)
		if (!found && !access(path[i], R_OK))
			found = xstrdup(path[i]);
	if (!found)
		look_for(missing, path[1]);
	for (size_t i = 0; i < 2; i++)
		free(path[i]);
	free(root);
	free(name);
	return found;
}

bool package_find(struct package *p, const char *other, struct str *missing)
{
	char *own = package_own();
	const char *const tried[] = { own, *other ? other : NULL };

	*p = (struct package){ 0 };
	for (size_t i = 0; i < 2 && !p->library; i++) {
		if (!tried[i] || (i && own && !strcmp(own, other)))
			continue;
		package_free(p);
		p->python = xstrdup(tried[i]);
		p->horovod = xasprintf("%s/as_horovod", tried[i]);
		if (package_has(p, "berth") && package_has(p, "as_horovod/horovod"))
			p->library = find_library(tried[i], missing);
		else
			look_for(missing, p->horovod);
	}
	free(own);
	return p->library;
}

void package_free(struct package *p)
{
	free(p->python);
	free(p->horovod);
	free(p->library);
	*p = (struct package){ 0 };
}
