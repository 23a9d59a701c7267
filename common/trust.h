/* trust.h - whether another user could change what is at a path.
 *
 * Each folder on the way, each link and the file belong to root, to us or to one OWNER
 * more, and nobody else can write to them: not all users, and no group but one that has
 * this owner alone.  So no folder on the way is like /tmp, where another user may have
 * made the name before us.  A file system of FUSE says any owner: it must be a program
 * of one of those three. */
#ifndef BERTH_TRUST_H
#define BERTH_TRUST_H

#include <sys/types.h>

#include "common/str.h"

/* From the folder AT, which is looked at as well, along PATH; AT_FDCWD: PATH is
 * absolute.  OWNER: 0 for none.  1: nobody else can change it; 0: it is not there;
 * -1: somebody can, and WHY says so: "'/scratch/b' belongs to another user (uid 2002)".
 */
int trust_path(int at, const char *path, uid_t owner, struct str *why);

#endif
