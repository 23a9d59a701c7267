/* dump_folder.h - the folder of this user with a socket for each of its jobs, by the
 * job's id: XDG_RUNTIME_DIR/berth, else berth-UID in /tmp.
 *
 * It is ours, and nobody else may look into it: no link, no folder of another user. */
#ifndef BERTH_LAUNCHER_JOB_DUMP_FOLDER_H
#define BERTH_LAUNCHER_JOB_DUMP_FOLDER_H

#include <stdbool.h>

#include "common/str.h"

/* Bytes of what a caller sends to get a dump, DUMP_WORD; else it only looks. */
#define DUMP_WORD "dump\n"

enum { DUMP_FOLDERS = 2, DUMP_JOBS_MOST = 256 };

/* The path of folder I (1: the one in /tmp) into PATH.  False: this user has none
 * of that number. */
bool dump_folder_path(struct str *path, int i);
/* A descriptor of it; MAKE: make it.  -1 with WHY, "" if it is not there. */
int dump_folder_open(const char *path, bool make, struct str *why);
/* Remove PATH, if no socket is left in it. */
void dump_folder_leave(const char *path);
/* Connect to the socket NAME in folder AT, for reading.  One whose job is dead is
 * removed.  -1: there is no such job. */
int dump_folder_dial(int at, const char *name);
/* Listen on the new socket NAME in folder AT: -1 with errno. */
int dump_folder_listen(int at, const char *name);

#endif
