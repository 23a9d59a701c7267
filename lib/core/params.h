/* params.h - the environment variables that libberth reads (params.def).
 *
 * One that is empty counts as not set.  A size is a number of bytes, or of K, M, G or
 * T, of 1024 each; a flag 0 or 1, no or yes, off or on, false or true. */
#ifndef BERTH_LIB_PARAMS_H
#define BERTH_LIB_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/backend/device.h"
#include "lib/net/net.h"

#define PARAM_SECONDS int64_t
#define PARAM_BYTES uint64_t
#define PARAM_FLAG bool
#define PARAM_SECURE enum net_guard
#define PARAM_DEVICE enum device_way
#define PARAM_RANGES const char *
#define PARAM_ALGORITHMS const char *
#define PARAM_TEXT const char *
struct params {
#define PARAM(name, member, kind, otherwise, what) PARAM_##kind member;
#define IGNORED(name, why)
#include "lib/core/params.def"
#undef PARAM
#undef IGNORED
};

/* From the environment, whose texts K then points into.  False, with WHY: one has a
 * value that can't be. */
bool params_read(struct params *k, char *why, size_t why_bytes);
/* Has the user set the variable NAME? */
bool params_is_given(const char *name);
/* Calls SAY for each variable that is set and does nothing here. */
void params_ignored(void (*say)(void *ctx, const char *name, const char *why),
		    void *ctx);

#endif
