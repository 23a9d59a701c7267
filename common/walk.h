/* walk.h - a path, followed part by part, so that each part is judged before it is
 * used.
 *
 * What was judged is held by a descriptor, and the next part is looked for below it: no
 * other file can come in its place. */
#ifndef BERTH_WALK_H
#define BERTH_WALK_H

#include <stdbool.h>
#include <sys/stat.h>

#include "common/str.h"

struct walk {
	/* Whether the part ENTRY of the folder AT, which is as ST says, may be used.
	 * If not, WHY says so. */
	bool (*may)(const struct walk *w, int at, int entry, const struct stat *st);
	void *ctx;       /* for that */
	struct str *why; /* of the first part that fails */
	bool make;       /* folders that are missing */
	int links;       /* internal: followed so far */
};

/* From the folder AT along PATH, to its end; if LAST, to the folder of its last part,
 * and LAST is where that begins in PATH.  A descriptor for the name alone (O_PATH), or
 * -1 with WHY and errno, which is EPERM if a part may not be used.  AT stays open. */
int walk_path(struct walk *w, int at, const char *path, const char **last);

/* The entry NAME of AT, which may be a link, and ST: as above. */
int walk_entry(struct walk *w, int at, const char *name, struct stat *st);

/* Where the link LINK leads, the entry NAME of AT. */
int walk_link(struct walk *w, int at, int link, const char *name);

/* Set errno to ERROR, and W's why to its text.  Always -1. */
int walk_fail(const struct walk *w, int error);

#endif
