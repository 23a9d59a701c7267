#include "common/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/walk.h"

/* GID is the group that UID alone is in, as many systems make one for each user. */
static bool trust_is_private(gid_t gid, uid_t uid)
{
	const struct passwd *p = getpwuid(uid);
	char *name = p && p->pw_gid == gid ? xstrdup(p->pw_name) : NULL;
	const struct group *g = name ? getgrgid(gid) : NULL;
	bool alone = g && !strcmp(g->gr_name, name);

	for (char **member = alone ? g->gr_mem : NULL; member && *member; member++)
		alone &= !strcmp(*member, name);
	free(name);
	return alone;
}

/* The file system DEV of FUSE is a program of root's, ours or OWNER's.  Only a program
 * that a user started says so, as "user_id=2002". */
static bool trust_fuse(dev_t dev, uid_t owner)
{
	char *at = xasprintf(" %u:%u ", major(dev), minor(dev)), *line = NULL;
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found = false;
	size_t room = 0;

	while (f && !found && getline(&line, &room, f) > 0) {
		const char *options = strrchr(line, ' '), *id;
		uid_t uid = 0;

		if (!strstr(line, at) || !options)
			continue;
		id = strstr(options, "user_id=");
		if (id)
			uid = (uid_t)strtoul(id + strlen("user_id="), NULL, 10);
		found = !uid || uid == geteuid() || uid == owner;
	}
	if (f)
		fclose(f);
	free(line);
	free(at);
	return found;
}

static bool trust_may(const struct walk *w, int at, int entry, const struct stat *st)
{
	const uid_t *owner = w->ctx;
	const mode_t mode = S_ISLNK(st->st_mode) ? 0 : st->st_mode;
	char self[64], path[PATH_MAX];
	struct statfs fs;
	ssize_t n;

	(void)at;
	snprintf(self, sizeof self, "/proc/self/fd/%d", entry);
	n = readlink(self, path, sizeof path);
	w->why->len = 0;
	str_addf(w->why, "'%.*s' ", n > 0 ? (int)n : 1, n > 0 ? path : "?");
	if (st->st_uid && st->st_uid != geteuid() && st->st_uid != *owner)
		str_addf(w->why, "belongs to another user (uid %u)",
			 (unsigned)st->st_uid);
	else if (S_ISLNK(st->st_mode) && !fstatfs(entry, &fs) &&
		 fs.f_type == PROC_SUPER_MAGIC)
		str_add(w->why, "is a link of a process");
	else if (!fstatfs(entry, &fs) && fs.f_type == FUSE_SUPER_MAGIC &&
		 !trust_fuse(st->st_dev, *owner))
		str_add(w->why, "is of FUSE, and of another user");
	else if (mode & S_IWOTH)
		str_add(w->why, "can be written by all users");
	else if (mode & S_IWGRP && !trust_is_private(st->st_gid, st->st_uid) &&
		 !trust_is_private(st->st_gid, geteuid()))
		str_addf(w->why, "can be written by a group (gid %u)",
			 (unsigned)st->st_gid);
	else
		return true;
	return false;
}

int trust_path(int at, const char *path, uid_t owner, struct str *why)
{
	struct walk w = { .may = trust_may, .ctx = &owner, .why = why };
	struct stat st;
	int fd;

	if (at != AT_FDCWD && (fstat(at, &st) || !trust_may(&w, at, at, &st)))
		return -1;
	fd = walk_path(&w, at, path, NULL);
	if (fd < 0)
		return errno == EPERM ? -1 : 0;
	close(fd);
	return 1;
}
