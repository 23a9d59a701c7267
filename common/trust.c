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

/* The judgement of one path. */
struct trust {
	uid_t owner;   /* trusted beside root and us; 0: none */
	dev_t device;  /* of the last entry */
	bool has_fuse; /* DEVICE is another user's file system */
	bool has_device;
};

/* The file system that ENTRY is on is another user's.  Asked once for entries that
 * follow one another on it. */
static bool trust_has_fuse(struct trust *t, int entry, dev_t device)
{
	struct statfs fs;

	if (t->has_device && t->device == device)
		return t->has_fuse;
	t->has_fuse = !fstatfs(entry, &fs) && fs.f_type == FUSE_SUPER_MAGIC &&
		      !trust_fuse(device, t->owner);
	t->device = device;
	t->has_device = true;
	return t->has_fuse;
}

static bool trust_is_process_link(int entry, mode_t mode)
{
	struct statfs fs;

	return S_ISLNK(mode) && !fstatfs(entry, &fs) && fs.f_type == PROC_SUPER_MAGIC;
}

/* Why ENTRY, which is as ST says, cannot be trusted, to WHY; false: it can. */
static bool trust_denies(struct trust *t, int entry, const struct stat *st,
			 struct str *why)
{
	const mode_t mode = S_ISLNK(st->st_mode) ? 0 : st->st_mode;

	if (st->st_uid && st->st_uid != geteuid() && st->st_uid != t->owner)
		str_addf(why, "belongs to another user (uid %u)", (unsigned)st->st_uid);
	else if (trust_is_process_link(entry, st->st_mode))
		str_add(why, "is a link of a process");
	else if (trust_has_fuse(t, entry, st->st_dev))
		str_add(why, "is of FUSE, and of another user");
	else if (mode & S_IWOTH)
		str_add(why, "can be written by all users");
	else if (mode & S_IWGRP && !trust_is_private(st->st_gid, st->st_uid) &&
		 !trust_is_private(st->st_gid, geteuid()))
		str_addf(why, "can be written by a group (gid %u)",
			 (unsigned)st->st_gid);
	return why->len;
}

static bool trust_may(const struct walk *w, int at, int entry, const struct stat *st)
{
	char self[64], path[PATH_MAX];
	struct str reason = { 0 };
	ssize_t n;

	(void)at;
	if (!trust_denies(w->ctx, entry, st, &reason))
		return true;
	snprintf(self, sizeof self, "/proc/self/fd/%d", entry);
	n = readlink(self, path, sizeof path);
	w->why->len = 0;
	str_addf(w->why, "'%.*s' %s", n > 0 ? (int)n : 1, n > 0 ? path : "?",
		 str_text(&reason));
	str_free(&reason);
	return false;
}

int trust_path(int at, const char *path, uid_t owner, struct str *why)
{
	struct trust trust = { .owner = owner };
	struct walk w = { .may = trust_may, .ctx = &trust, .why = why };
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
