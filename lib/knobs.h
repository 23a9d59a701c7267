/* knobs.h - the environment variables that libberth reads (knobs.def).
 *
 * One that is empty counts as not set.  A size is a number of bytes, or of K, M, G or
 * T, of 1024 each; a flag 0 or 1, no or yes, off or on, false or true. */
#ifndef BERTH_LIB_KNOBS_H
#define BERTH_LIB_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KNOB_SECONDS int64_t
#define KNOB_BYTES uint64_t
#define KNOB_FLAG bool
#define KNOB_RANGES const char *
#define KNOB_TEXT const char *
struct knobs {
#define KNOB(name, member, kind, otherwise, what) KNOB_##kind member;
#define IGNORED(name, why)
#include "lib/knobs.def"
#undef KNOB
#undef IGNORED
};

/* From the environment, whose texts K then points into.  False, with WHY: one has a
 * value that can't be. */
bool knobs_read(struct knobs *k, char *why, size_t why_bytes);
/* Calls SAY for each variable that is set and does nothing here. */
void knobs_ignored(void (*say)(void *ctx, const char *name, const char *why),
		   void *ctx);

#endif
