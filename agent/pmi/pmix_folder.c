#include "agent/pmi/pmix_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

/* ---- which folder a path leads to ---- */

/* Open the folder at PATH, which must be of our user; or -1. */
static int folder_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st) && st.st_uid == geteuid())
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Open and lock the folder at PATH, until the descriptor is closed; -1 if another
 * process has the lock, too. */
static int folder_lock(const char *path)
{
	int fd = folder_open(path);

	if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	close(fd);
	return -1;
}

static struct pmix_folder_id folder_id(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? (struct pmix_folder_id){ 0 }
			      : (struct pmix_folder_id){ st.st_dev, st.st_ino };
}

/* FD is the folder that PATH leads to. */
static bool is_at(int fd, const char *path)
{
	struct stat a, b;

	return !fstat(fd, &a) && !lstat(path, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* Other users cannot exchange the folders that we make in PARENT, unless one of them
 * owns it. */
static bool folder_is_safe(const struct stat *parent)
{
	return S_ISDIR(parent->st_mode) &&
	       (!(parent->st_mode & (S_IWGRP | S_IWOTH)) || parent->st_mode & S_ISVTX);
}

/* ---- removing ---- */

/* All in the folder FD that is on its device; closes FD. */
static void folder_clear(int fd, dev_t device)
{
	DIR *d = fdopendir(fd);
	struct dirent *one;

	if (!d)
		close(fd);
	while (d && (one = readdir(d))) {
		struct stat st;
		int sub;

		if (!strcmp(one->d_name, ".") || !strcmp(one->d_name, "..") ||
		    !unlinkat(dirfd(d), one->d_name, 0))
			continue;
		sub = openat(dirfd(d), one->d_name,
			     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0 && !fstat(sub, &st) && st.st_dev == device)
			folder_clear(sub, device);
		else if (sub >= 0)
			close(sub);
		unlinkat(dirfd(d), one->d_name, AT_REMOVEDIR);
	}
	if (d)
		closedir(d);
}

/* FD, at PATH, and all that is in it.  FD stays open, and locked. */
static void folder_remove(int fd, const char *path)
{
	int in = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (in >= 0)
		folder_clear(in, folder_id(fd).device);
	if (is_at(fd, path))
		rmdir(path);
}

static void remove_known(const char *path, const struct pmix_folder_id *id)
{
	int fd = *path && id->inode ? folder_open(path) : -1;
	struct pmix_folder_id found;

	if (fd < 0)
		return;
	found = folder_id(fd);
	if (found.device == id->device && found.inode == id->inode)
		folder_remove(fd, path);
	close(fd);
}

static void remove_left(const char *parent)
{
	DIR *d = opendir(parent);
	struct dirent *one;
	struct stat st;
	char path[4096];

	/* what has such a name there may be another folder of ours */
	while (d && !fstat(dirfd(d), &st) && folder_is_safe(&st) &&
	       (one = readdir(d))) {
		int fd;

		if (strncmp(one->d_name, NAME, sizeof NAME - 1) ||
		    (size_t)snprintf(path, sizeof path, "%s/%s", parent, one->d_name) >=
			    sizeof path)
			continue;
		fd = folder_lock(path);
		if (fd < 0)
			continue;
		folder_remove(fd, path);
		close(fd);
	}
	if (d)
		closedir(d);
}

/* ---- making ---- */

/* Into PATH, locked.  -1 with errno.  An agent that begins at the same time may take it
 * for one that was left, until it is locked. */
static int folder_make(char *path, size_t size, struct pmix_folder_id *id,
		       const char *parent)
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
		fd = folder_lock(path);
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
	else
		*id = folder_id(fd);
	return fd;
}

static const char *folder_parent(void)
{
	enum { LONGEST = 200 };
	const char *parent = getenv("TMPDIR");
	struct stat st;

	return !parent || *parent != '/' || strlen(parent) > LONGEST ||
			       stat(parent, &st) || !folder_is_safe(&st) ||
			       (st.st_uid && st.st_uid != geteuid())
		       ? "/tmp"
		       : parent;
}

void pmix_folders_sweep(void)
{
	remove_left(folder_parent());
	remove_left(MEMORY);
}

int pmix_folders_make(struct pmix_folders *f, int *memory_lock, struct err *e)
{
	const char *parent = folder_parent();
	int fd;

	pmix_folders_sweep();
	fd = folder_make(f->files, sizeof f->files, &f->files_id, parent);
	if (fd < 0)
		return err_set(e, E_PMIX_FOLDER, parent, strerror(errno));
	*memory_lock = folder_make(f->memory, sizeof f->memory, &f->memory_id, MEMORY);
	return fd;
}

static void folder_know(struct pmix_folder_id *id, const char *path)
{
	int fd = *path ? folder_open(path) : -1;

	*id = fd >= 0 ? folder_id(fd) : (struct pmix_folder_id){ 0 };
	if (fd >= 0)
		close(fd);
}

void pmix_folders_know(struct pmix_folders *f)
{
	folder_know(&f->files_id, f->files);
	folder_know(&f->memory_id, f->memory);
}

void pmix_folders_empty(const struct pmix_folders *f)
{
	if (!f)
		return;
	remove_known(f->files, &f->files_id);
	remove_known(f->memory, &f->memory_id);
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
