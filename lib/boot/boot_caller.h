/* boot_caller.h - a bootstrap that the caller gives (struct berth_bootstrap). */
#ifndef BERTH_LIB_BOOT_CALLER_H
#define BERTH_LIB_BOOT_CALLER_H

#include "lib/boot/boot.h"

/* NULL, or a sentence that says which member of B is wrong, and how. */
const char *boot_caller_check(const struct berth_bootstrap *b);

/* This rank has failed with RC before it could join(), and TEXT says why: it tells the
 * others, so that they do not wait for it.  If B cannot be used, it does nothing. */
void boot_caller_decline(const struct berth_bootstrap *b, berth_result rc,
			 const char *text);

#endif
