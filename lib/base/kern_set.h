/* kern_set.h - what each set of instructions provides (kern_base.c, kern_avx2.c,
 * kern_avx512.c, all of them kern_body.def). */
#ifndef BERTH_LIB_KERN_SET_H
#define BERTH_LIB_KERN_SET_H

#include "lib/base/kern.h"

enum { KERN_OPS = BERTH_BXOR + 1 };

struct kern_set {
	const char *name;
	kern_reduce *reduce[BERTH_TYPES][KERN_OPS];
	void (*copy)(void *dst, const void *src, size_t bytes);
};

extern const struct kern_set kern_base, kern_avx2, kern_avx512;

#endif
