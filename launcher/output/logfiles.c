#include "launcher/output/logfiles.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "launcher/output/own_file.h"
#include "launcher/transport/callback.h"

enum { WIDTH_MAX = 9, OLD_MAX = 1000000, HOST_FDS = 3, OTHER_FDS = 256 };

struct logfiles {
	struct log_names names;
	int *fd;      /* [2 * rank + (stream - 1)], -1: not open */
	unsigned old; /* the number of the last file that was moved, or 0 */
	bool keep_fds, stopped;
	logfiles_failed *failed;
	void *ctx;
};

/* ---- names ---- */

/* The letters of the %s in PATTERN that follow AT: the next one, or '\0'. */
static char next_letter(const char **at, int *width)
{
	const char *p = strchr(*at, '%');

	*width = 0;
	if (!p)
		return '\0';
	for (p++; isdigit((unsigned char)*p) && *width <= WIDTH_MAX; p++)
		*width = 10 * *width + *p - '0';
	*at = *p ? p + 1 : p;
	return *p ? *p : '?';
}

static bool has_letter(const char *pattern, const char *letters)
{
	int width;
	char c;

	while ((c = next_letter(&pattern, &width)))
		if (strchr(letters, c))
			return true;
	return false;
}

/* Each rank has a file of its own by its name alone. */
static bool is_file(const char *pattern)
{
	return has_letter(pattern, "rtR") ||
	       (has_letter(pattern, "hN") && has_letter(pattern, "l"));
}

static int digits_of(uint32_t np)
{
	return snprintf(NULL, 0, "%u", np - 1);
}

/* The pattern with RANK's values. */
static int logfiles_expand(struct str *out, const struct log_names *names,
			   uint32_t rank, struct err *e)
{
	const struct log_rank *r = &names->rank[rank];
	const char *at = names->pattern, *from = at;
	int width;
	char c;

	while ((c = next_letter(&at, &width))) {
		str_addn(out, from, strcspn(from, "%"));
		from = at;
		if (width > WIDTH_MAX || !strchr("rtRhNlej%", c))
			return err_set(e, E_LOG_NAME, names->pattern);
		if (c == 'r' || c == 't')
			str_addf(out, "%0*u", width, rank);
		if (c == 'R')
			str_addf(out, "%0*u", digits_of(names->np), rank);
		if (c == 'l')
			str_addf(out, "%0*u", width, r->local);
		if (c == 'h' || c == 'N')
			str_add(out, r->host);
		if (c == 'e')
			str_addf(out, "%0*u", width, names->epoch + r->again);
		if (c == 'j')
			str_add(out, names->job);
		if (c == '%')
			str_add(out, "%");
	}
	str_add(out, from);
	return 0;
}

int logfiles_name(struct str *out, const struct log_names *names, uint32_t rank,
		  unsigned stream, struct err *e)
{
	if (logfiles_expand(out, names, rank, e))
		return -1;
	if (is_file(names->pattern))
		str_add(out, stream == 1 ? "" : ".err");
	else
		str_addf(out, "/rank.%0*u/%s", digits_of(names->np), rank,
			 stream == 1 ? "stdout" : "stderr");
	return 0;
}

/* ---- writing ---- */

void logfiles_write(struct logfiles *f, uint32_t rank, unsigned stream, const char *p,
		    size_t n)
{
	struct str path = { 0 }, why = { 0 };
	int *kept, fd;

	if (!f || f->stopped)
		return;
	kept = &f->fd[2 * (size_t)rank + stream - 1];
	fd = *kept;
	if (fd < 0) {
		logfiles_name(&path, &f->names, rank, stream, NULL);
		fd = own_file_open(str_text(&path), OWN_FILE_APPEND, &why);
	}
	if (fd < 0 || file_write(fd, p, n)) {
		int error = errno;

		path.len = 0;
		logfiles_name(&path, &f->names, rank, stream, NULL);
		f->failed(f->ctx, str_text(&path), error);
		f->stopped = true;
	}
	if (f->keep_fds)
		*kept = fd;
	else if (fd >= 0)
		close(fd);
	str_free(&path);
	str_free(&why);
}

/* ---- files of an earlier run ---- */

/* Move NAME of the folder AT to the first free name of NAME.1, NAME.2, ...; with INTO,
 * which is a folder in AT: to INTO/NAME. */
static int move_entry(struct logfiles *f, int at, const char *name, const char *into,
		      struct str *why)
{
	struct str to = { 0 };
	int rc = own_file_has(at, name, why);

	for (unsigned i = f->old ? f->old : 1; rc == 1 && i < OLD_MAX; i++) {
		to.len = 0;
		if (into)
			str_addf(&to, "%s/%s", into, name);
		else
			str_addf(&to, "%s.%u", name, i);
		if (!into && !faccessat(at, to.s, F_OK, AT_SYMLINK_NOFOLLOW))
			continue;
		rc = renameat(at, name, at, to.s);
		if (rc)
			str_add(why, strerror(errno));
		else if (!into)
			f->old = i;
	}
	str_free(&to);
	return rc;
}

/* Make the first of run.1, run.2, ... that is not there. */
static int make_run(struct logfiles *f, int at, char *name, size_t size)
{
	int rc = -1;

	for (unsigned i = 1; rc && i < OLD_MAX; i++) {
		snprintf(name, size, "run.%u", i);
		rc = mkdirat(at, name, 0777);
		if (rc && errno != EEXIST)
			return -1;
		f->old = i;
	}
	return rc;
}

static bool is_rank(const char *name)
{
	const char *number = name + 5;

	return !strncmp(name, "rank.", 5) && *number &&
	       !number[strspn(number, "0123456789")];
}

/* The rank.* of the folder AT, which is PATH, into a new folder there.  If one cannot
 * be moved, its name is behind PATH. */
static int move_ranks(struct logfiles *f, int at, struct str *path, struct str *note,
		      struct str *why)
{
	int list = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = list < 0 ? NULL : fdopendir(list);
	struct dirent *entry;
	char into[32] = "";

	while (dir && !rc && (entry = readdir(dir))) {
		if (!is_rank(entry->d_name))
			continue;
		rc = own_file_has(at, entry->d_name, why) < 0 ? -1 : 0;
		if (!rc && !*into && make_run(f, at, into, sizeof into)) {
			str_add(why, strerror(errno));
			rc = -1;
		}
		rc = rc || move_entry(f, at, entry->d_name, into, why) ? -1 : 0;
		if (rc)
			str_addf(path, "/%s", entry->d_name);
	}
	if (dir)
		closedir(dir);
	else if (list >= 0)
		close(list);
	if (!rc && *into && !note->len)
		str_addf(note, "the files of an earlier run are now in '%s/%s'",
			 str_text(path), into);
	return rc;
}

static int move_folder(struct logfiles *f, struct str *path, struct str *note,
		       struct str *why)
{
	char *inside = xasprintf("%s/.", str_text(path));
	const char *last;
	int at = own_file_folder(inside, &last, why), rc;

	if (at < 0)
		rc = errno == ENOENT ? 0 : -1;
	else
		rc = move_ranks(f, at, path, note, why);
	if (at >= 0)
		close(at);
	free(inside);
	return rc;
}

static int logfiles_by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Ranks share folders, and each folder is read once.  (4096 ranks in a folder with 5000
 * other files: 0.4 s; with one look for each rank 6.8.) */
static int move_folders(struct logfiles *f, uint32_t first, uint32_t end,
			struct str *note, struct err *e)
{
	struct str path = { 0 }, why = { 0 };
	struct strv folder = { 0 };
	int rc = 0;

	for (uint32_t i = first; i < end && !rc; i++) {
		path.len = 0;
		rc = logfiles_expand(&path, &f->names, i, e);
		strv_add(&folder, str_text(&path));
	}
	qsort(folder.v, folder.n, sizeof *folder.v, logfiles_by_name);
	for (size_t i = 0; i < folder.n && !rc; i++) {
		if (i && !strcmp(folder.v[i], folder.v[i - 1]))
			continue;
		path.len = why.len = 0;
		str_add(&path, folder.v[i]);
		rc = move_folder(f, &path, note, &why);
		if (rc)
			err_set(e, E_LOG_DIR, path.s, str_text(&why));
	}
	strv_free(&folder);
	str_free(&path);
	str_free(&why);
	return rc;
}

/* Moves a file or folder away that stands in the place of PATH. */
static int move_file(struct logfiles *f, const char *path, struct str *note,
		     struct str *why)
{
	const unsigned old = f->old;
	const char *last;
	int at = own_file_folder(path, &last, why), rc;

	if (at < 0)
		return errno == ENOENT ? 0 : -1;
	rc = move_entry(f, at, last, NULL, why) < 0 ? -1 : 0;
	close(at);
	if (f->old != old && !note->len)
		str_addf(note, "'%s' of an earlier run is now '%s.%u'", path, path,
			 f->old);
	return rc;
}

/* ---- opening ---- */

/* Each file of the ranks FIRST to END - 1 is made, or what stands in its way is
 * moved. */
static int for_each(struct logfiles *f, uint32_t first, uint32_t end, bool make,
		    struct str *note, struct err *e)
{
	struct str path = { 0 }, why = { 0 };
	int rc = 0, fd;

	for (uint32_t i = 2 * first; i < 2 * end && !rc; i++) {
		path.len = why.len = 0;
		rc = logfiles_name(&path, &f->names, i / 2, i % 2 + 1, e);
		if (rc)
			break;
		if (make) {
			fd = own_file_open(path.s, OWN_FILE_NEW, &why);
			rc = fd < 0 ? -1 : 0;
			if (f->keep_fds)
				f->fd[i] = fd;
			else if (fd >= 0)
				close(fd);
		} else {
			rc = move_file(f, path.s, note, &why);
		}
		if (rc)
			err_set(e, E_LOG_DIR, path.s, str_text(&why));
	}
	str_free(&path);
	str_free(&why);
	return rc;
}

static int logfiles_make(struct logfiles *f, uint32_t first, uint32_t end,
			 struct str *note, struct err *e)
{
	const int moved = is_file(f->names.pattern)
				  ? for_each(f, first, end, false, note, e)
				  : move_folders(f, first, end, note, e);

	return moved || for_each(f, first, end, true, note, e) ? -1 : 0;
}

/* Those of the ranks FIRST to END - 1. */
static void logfiles_close(struct logfiles *f, uint32_t first, uint32_t end)
{
	for (size_t i = 2 * (size_t)first; i < 2 * (size_t)end; i++) {
		if (f->fd[i] >= 0)
			close(f->fd[i]);
		f->fd[i] = -1;
	}
}

int logfiles_restart(struct logfiles *f, uint32_t epoch, struct str *note,
		     struct err *e)
{
	if (!f || !has_letter(f->names.pattern, "e"))
		return 0;
	logfiles_close(f, 0, f->names.np);
	f->names.epoch = epoch;
	return logfiles_make(f, 0, f->names.np, note, e);
}

int logfiles_rank_again(struct logfiles *f, uint32_t rank, struct str *note,
			struct err *e)
{
	if (!f || !has_letter(f->names.pattern, "e"))
		return 0;
	logfiles_close(f, rank, rank + 1);
	f->names.rank[rank].again++;
	return logfiles_make(f, rank, rank + 1, note, e);
}

int logfiles_open(struct logfiles **files, const struct log_names *names,
		  struct str *note, logfiles_failed *failed, void *ctx, struct err *e)
{
	struct logfiles *f = xcalloc(1, sizeof *f);
	const size_t n = 2 * (size_t)names->np;
	size_t needed = n + OTHER_FDS + CALLBACK_CALLERS_MOST;
	struct rlimit limit = { 0 };

	*f = (struct logfiles){ .names = *names, .failed = failed, .ctx = ctx };
	f->fd = xcalloc(n, sizeof *f->fd);
	for (size_t i = 0; i < n; i++)
		f->fd[i] = -1;
	getrlimit(RLIMIT_NOFILE, &limit);
	/* Ranks of one host mostly follow one another, so this counts a host where it
	 * begins. */
	for (uint32_t i = 0; i < names->np; i++)
		if (!i || strcmp(names->rank[i].host, names->rank[i - 1].host))
			needed += HOST_FDS;
	f->keep_fds = needed < limit.rlim_cur;
	*files = f;
	return logfiles_make(f, 0, names->np, note, e);
}

void logfiles_free(struct logfiles *f)
{
	if (!f)
		return;
	logfiles_close(f, 0, f->names.np);
	free(f->fd);
	free(f->names.rank);
	free(f);
}
