/* own_file.h - files at names that the user gave, and never those of another user.
 *
 * Where everybody may write, another user may have put something at a name before us.
 * So no name is followed that is a link of another user, in any part of a path, and
 * no file of another user is written to.
 *
 * A part of a path is trusted if only its folder's owner and group may write to that
 * folder, or if it belongs to us, to root or to the folder's owner.  For folders with
 * the sticky bit this is the rule of fs.protected_symlinks in proc_sys_fs(5). */
#ifndef BERTH_LAUNCHER_OUTPUT_OWN_FILE_H
#define BERTH_LAUNCHER_OUTPUT_OWN_FILE_H

#include "common/str.h"

enum own_file {
	OWN_FILE_NEW,     /* there must be none; missing folders are made */
	OWN_FILE_REPLACE, /* an old one is cut off; it may be a FIFO or a device */
	OWN_FILE_APPEND   /* it must exist */
};

/* A descriptor for writing to PATH at its end, or -1 with WHY, such as "it belongs to
 * another user (uid 1001)". */
int own_file_open(const char *path, enum own_file how, struct str *why);

/* The folder of PATH as a descriptor, and the begin of the last part of PATH into LAST.
 * -1 with errno ENOENT if a part of it is missing, or with WHY. */
int own_file_folder(const char *path, const char **last, struct str *why);

/* Whether the entry NAME of the folder AT is there and trusted.  1, 0 if it is not
 * there, or -1 with WHY. */
int own_file_has(int at, const char *name, struct str *why);

#endif
