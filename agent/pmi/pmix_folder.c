#include "agent/pmi/pmix_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "berth-pmix-"
#define MEMORY "/dev/shm"

struct pmix_folders *pmix_folders_shared(void)
{
	struct pmix_folders *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return f == MAP_FAILED ? NULL : f;
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *where)
{
	(void)st;
	(void)type;
	(void)where;
	remove(path);
	return 0;
}

static void remove_all(const char *path)
{
	enum { OPEN_MOST = 16 };

	nftw(path, remove_one, OPEN_MOST, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Locked until the descriptor is closed; -1: another has it, or it is not ours. */
static int lock(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st) && st.st_uid == geteuid() &&
	    !flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void remove_left(const char *parent)
{
	DIR *d = opendir(parent);
	struct dirent *one;
	char path[4096];

	while (d && (one = readdir(d))) {
		int fd;

		if (strncmp(one->d_name, NAME, sizeof NAME - 1) ||
		    (size_t)snprintf(path, sizeof path, "%s/%s", parent, one->d_name) >=
			    sizeof path)
			continue;
		fd = lock(path);
		if (fd < 0)
			continue;
		remove_all(path);
		close(fd);
	}
	if (d)
		closedir(d);
}

/* FD is the folder that PATH leads to. */
static bool is_at(int fd, const char *path)
{
	struct stat a, b;

	return !fstat(fd, &a) && !lstat(path, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* Into PATH, locked.  -1 with errno.  An agent that begins at the same time may take it
 * for one that was left, until it is locked. */
static int make(char *path, size_t size, const char *parent)
{
	enum { TRIES_MOST = 64 };
	int fd = -1, error;

	for (int i = 0; i < TRIES_MOST; i++) {
		if ((size_t)snprintf(path, size, "%s/" NAME "XXXXXX", parent) >= size) {
			errno = ENAMETOOLONG;
			break;
		}
		if (!mkdtemp(path))
			break;
		fd = lock(path);
		if (fd >= 0 && is_at(fd, path))
			break;
		error = fd >= 0 ? ENOENT : errno;
		if (fd >= 0)
			close(fd);
		fd = -1;
		rmdir(path);
		errno = error;
	}
	if (fd < 0)
		*path = '\0';
	return fd;
}

int pmix_folders_make(struct pmix_folders *f, int *memory_lock, struct err *e)
{
	enum { LONGEST = 200 };
	const char *parent = getenv("TMPDIR");
	struct stat st;
	int fd;

	if (!parent || *parent != '/' || strlen(parent) > LONGEST ||
	    stat(parent, &st) || !S_ISDIR(st.st_mode))
		parent = "/tmp";
	remove_left(parent);
	remove_left(MEMORY);
	fd = make(f->files, sizeof f->files, parent);
	if (fd < 0)
		return err_set(e, E_PMIX_FOLDER, parent, strerror(errno));
	*memory_lock = make(f->memory, sizeof f->memory, MEMORY);
	return fd;
}

void pmix_folders_empty(const struct pmix_folders *f)
{
	if (f && *f->files)
		remove_all(f->files);
	if (f && *f->memory)
		remove_all(f->memory);
}

static void forget_removed(char *path)
{
	struct stat st;

	if (*path && lstat(path, &st) && errno == ENOENT)
		*path = '\0';
}

void pmix_folders_remove(struct pmix_folders *f)
{
	pmix_folders_empty(f);
	if (!f)
		return;
	forget_removed(f->files);
	forget_removed(f->memory);
}
