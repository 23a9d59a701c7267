#include "common/package.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/trust.h"
#include "common/wire.h"

/* PATH without its last N parts.  To be freed; NULL: it has fewer. */
static char *package_above(const char *path, int n)
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
	root = package_above(self, 2);
	own = root && !strncmp(self + strlen(root), "/bin/", 5)
		      ? xasprintf("%s/share/berth/python", root)
		      : NULL;
	free(root);
	return own;
}

uid_t package_owner(void)
{
	struct stat st;

	return stat("/proc/self/exe", &st) || st.st_uid == geteuid() ? 0 : st.st_uid;
}

bool package_has(const struct package *p, const char *path)
{
	char *init = xasprintf("%s/%s/__init__.py", p->python, path);
	const bool has = !access(init, R_OK);

	free(init);
	return has;
}

/* Where a package may be, and what is wrong with it. */
struct place {
	const char *python;
	char *root; /* of the installation */
	int at;     /* it, or AT_FDCWD: the whole way counts */
	uid_t owner;
	bool library_alone; /* whatever its modules are */
	struct str *missing, *unsafe;
};

/* PATH below the root of W is there, and nobody else can change it. */
static bool package_usable(const struct place *w, const char *path)
{
	struct str why = { 0 };
	int rc = access(path, R_OK)
			 ? 0
			 : trust_path(w->at,
				      w->at == AT_FDCWD ? path
							: path + strlen(w->root) + 1,
				      w->owner, &why);

	if (rc < 0 && !w->unsafe->len)
		str_addf(w->unsafe, "another user could replace '%s': %s", path,
			 str_text(&why));
	str_free(&why);
	return rc > 0;
}

static void package_miss(const struct place *w, const char *path)
{
	if (!w->unsafe->len)
		str_addf(w->missing, "%s'%s'", w->missing->len ? " or " : "", path);
}

static bool package_modules(const struct place *w)
{
	static const char *const inits[] = { "berth/__init__.py",
					     "as_horovod/horovod/__init__.py" };
	bool all = true;

	for (size_t i = 0; i < 2 && all; i++) {
		char *path = xasprintf("%s/%s", w->python, inits[i]);

		all = package_usable(w, path);
		free(path);
	}
	return all;
}

/* `make install` links libberth into the package, whatever LIBDIR is. */
static char *package_library(const struct place *w)
{
	/* with the major and the minor number of the version */
	const size_t n = (size_t)(strrchr(BERTH_VERSION, '.') - BERTH_VERSION);
	char *name = xasprintf("libberth.so.%.*s", (int)n, BERTH_VERSION);
	char *path[] = { xasprintf("%s/berth/%s", w->python, name),
			 xasprintf("%s/lib/%s", w->root, name) };
	char *found = NULL;

	for (size_t i = 0; i < 2; i++)
		if (!found && package_usable(w, path[i]))
			found = xstrdup(path[i]);
	if (!found)
		package_miss(w, path[1]);
	for (size_t i = 0; i < 2; i++)
		free(path[i]);
	free(name);
	return found;
}

/* The package of W as P, with its library if it can be used. */
static void package_look(struct package *p, struct place *w)
{
	package_free(p);
	p->python = xstrdup(w->python);
	p->horovod = xasprintf("%s/as_horovod", w->python);
	w->root = package_above(w->python, 3);
	if (!w->root)
		w->root = xstrdup("");
	if (w->at != AT_FDCWD)
		w->at = open(*w->root ? w->root : "/", O_PATH | O_CLOEXEC);
	if (w->at != -1 && (w->library_alone || package_modules(w)))
		p->library = package_library(w);
	else
		package_miss(w, p->horovod);
	if (w->at >= 0)
		close(w->at);
	free(w->root);
}

static bool package_search(struct package *p, const char *other, uid_t owner,
			   bool library_alone, struct str *why)
{
	struct str missing = { 0 }, unsafe = { 0 };
	char *own = package_own();
	struct place here = { .python = own,
			      .owner = package_owner(),
			      .library_alone = library_alone,
			      .missing = &missing,
			      .unsafe = &unsafe };
	struct place there = { .python = other,
			       .at = AT_FDCWD,
			       .owner = owner,
			       .library_alone = library_alone,
			       .missing = &missing,
			       .unsafe = &unsafe };

	*p = (struct package){ 0 };
	if (own)
		package_look(p, &here);
	if (!p->library && *other && (!own || strcmp(own, other) != 0))
		package_look(p, &there);
	if (!p->library && why && unsafe.len)
		str_add(why, str_text(&unsafe));
	else if (!p->library && why)
		str_addf(why, "there is no %s", str_text(&missing));
	str_free(&missing);
	str_free(&unsafe);
	free(own);
	return p->library;
}

bool package_find(struct package *p, const char *other, uid_t owner, struct str *why)
{
	return package_search(p, other, owner, false, why);
}

bool package_find_library(struct package *p, const char *other, uid_t owner)
{
	return package_search(p, other, owner, true, NULL);
}

int package_in(const char *folder, uid_t owner, struct str *why)
{
	char *init = xasprintf("%s/berth/__init__.py", folder);
	const int rc = access(init, R_OK) ? 0 : trust_path(AT_FDCWD, init, owner, why);

	free(init);
	return rc;
}

void package_free(struct package *p)
{
	free(p->python);
	free(p->horovod);
	free(p->library);
	*p = (struct package){ 0 };
}
