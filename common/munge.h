/* munge.h - bytes for the same user on another host of the cluster, by MUNGE.
 *
 * The munged of each host of a Slurm cluster has one key, so only they can read or make
 * a credential, and they open it for the user alone whom it names.  libmunge is loaded
 * when it is needed: most machines do not have it.
 *
 * SOCKET is munged's, or NULL for the usual one. */
#ifndef BERTH_COMMON_MUNGE_H
#define BERTH_COMMON_MUNGE_H

#include "common/buf.h"
#include "common/str.h"

enum {
	MUNGE_CREDENTIAL_MAX = 16000,
	/* A credential is good for so long, and the clocks of two hosts may differ by
	 * so much. */
	MUNGE_AGE_MAX_S = 3600,
	MUNGE_SKEW_MAX_S = 300
};

/* A credential of the N bytes at DATA that our own user alone can open; to be freed.
 * NULL with WHY. */
char *munge_wrap(const char *socket, const void *data, size_t n, struct str *why);
/* Append to OUT what a credential holds.  It may have been opened before, as by another
 * process on this host.  -1 with WHY: it is not of our own user, or too old. */
int munge_unwrap(const char *socket, const char *credential, struct buf *out,
		 struct str *why);

#endif
