/* munge.h - a few bytes for the same user on another host of the cluster, by MUNGE.
 *
 * The munged of each host of a Slurm cluster has one key, so only they can read or make
 * a credential, and they open it for the user alone whom it names.  libmunge is loaded
 * when it is needed: most machines do not have it. */
#ifndef BERTH_COMMON_MUNGE_H
#define BERTH_COMMON_MUNGE_H

#include "common/str.h"

enum { MUNGE_CREDENTIAL_MAX = 4096 };

/* A credential of the N bytes at DATA that our own user alone can open; to be freed.
 * NULL with WHY. */
char *munge_wrap(const void *data, size_t n, struct str *why);
/* The N bytes of a credential into DATA.  It may have been opened before, as by another
 * process on this host, or be old.  -1 with WHY: it is not of our own user, or not of N
 * bytes. */
int munge_unwrap(const char *credential, void *data, size_t n, struct str *why);

#endif
