/* munge.h - the job's key for the ranks of our own user on other hosts, by MUNGE, where
 * the way between the ranks is open to others.
 *
 * The munged of all hosts of a cluster have one key, so only they can read or make a
 * credential, and they open it for the user alone whom it names.  libmunge is loaded
 * when it is needed: most machines do not have it. */
#ifndef BERTH_LIB_MUNGE_H
#define BERTH_LIB_MUNGE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/boot/boot.h"

enum { MUNGE_TEXT_BYTES = 1024 }; /* of a credential, with its NUL */

/* TEXT becomes a credential of KEY (BOOT_KEY_BYTES) that our own user alone can open.
 * False: there is no libmunge, or no munged. */
bool munge_seal(const unsigned char *key, char text[MUNGE_TEXT_BYTES]);
/* KEY out of TEXT, which other ranks may have opened before.  False, with WHY of
 * BOOT_WHY_BYTES: another user made it, it is too old or of a later time, or it holds
 * no such key. */
bool munge_open(const char *text, unsigned char *key, char *why);

#endif
