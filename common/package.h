/* package.h - where Berth's Python package and libberth are on this host, if no other
 * user could put one there (common/trust.h).
 *
 * An installation has bin/PROGRAM, share/berth/python/ and libberth; a build tree is
 * laid out alike.  python/ has the package berth, and as_horovod/, where the package
 * horovod is that stands for it. */
#ifndef BERTH_PACKAGE_H
#define BERTH_PACKAGE_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/str.h"

struct package {
	char *python;  /* the directory of the package berth */
	char *horovod; /* that of the package horovod */
	char *library; /* libberth's file, or NULL: it is missing */
};

/* share/berth/python of the installation that this process was started from, whether it
 * is there or not.  To be freed.  NULL: it belongs to none, as a copy of the agent. */
char *package_own(void);

/* Whose the program of this process is, if it is neither root's nor ours: its user runs
 * what that owner gives.  Else 0. */
uid_t package_owner(void);

/* Find the package of this process's own installation, else in the directory OTHER,
 * unless that is "", where files of OWNER are as good as ours.  What is above an own
 * installation is not looked at: this program came by that way.  Returns whether there
 * is one with its libberth; if not, WHY gets what was looked for, or whose what was
 * found is, unless it is NULL.  P is for package_free() in each case. */
bool package_find(struct package *p, const char *other, uid_t owner, struct str *why);

/* As package_find(), for its libberth alone: each start asks for that, and the modules
 * take five times as many calls of the system (1 % of the time of `runner -np 1
 * true`). */
bool package_find_library(struct package *p, const char *other, uid_t owner);

/* The directory FOLDER has the package berth, and no other user could change it there.
 * 1, 0: it has none, or -1 with WHY, as trust_path(). */
int package_in(const char *folder, uid_t owner, struct str *why);

/* P's python directory has the package PATH, as "berth/torch". */
bool package_has(const struct package *p, const char *path);

void package_free(struct package *p);

#endif
