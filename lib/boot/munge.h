/* munge.h - the job's key for the ranks of our own user on other hosts, by MUNGE, if
 * the way between the ranks is open to others.
 *
 * The munged of all hosts of a cluster have one key, so only they can read or make a
 * credential.  They open it only for the user that it names.  libmunge is loaded when
 * it is needed, since most machines do not have it. */
#ifndef BERTH_LIB_MUNGE_H
#define BERTH_LIB_MUNGE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/boot/boot.h"

enum { MUNGE_TEXT_BYTES = 1024 }; /* of a credential, with its NUL */

/* TEXT becomes a credential of KEY (BOOT_KEY_BYTES) that our own user alone can open.
 * False: libmunge or munged is missing. */
bool munge_seal(const unsigned char *key, char text[MUNGE_TEXT_BYTES]);
/* Takes KEY out of TEXT, which other ranks may have opened before.  False, with WHY of
 * BOOT_WHY_BYTES: another user made it, it is too old or of a later time, or it does
 * not hold such a key. */
bool munge_open(const char *text, unsigned char *key, char *why);

#endif
