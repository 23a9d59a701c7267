/* kern_set.h - the functions that each set of instructions provides (kern_base.c,
 * kern_avx2.c, kern_avx512.c, all of them kern_body.def). */
#ifndef BERTH_LIB_KERN_SET_H
#define BERTH_LIB_KERN_SET_H

#include "lib/base/kern.h"

enum { KERN_OPS = BERTH_BXOR + 1, KERN_FORMS = KERN_PARTIAL + 1 };

typedef void kern_function(const struct kern *k, void *const *dst, unsigned ndst,
			   const void *const *src, unsigned nsrc, size_t n,
			   bool stream);

struct kern_set {
	const char *name;
	/* The forms of the sources and of the result.  If the type is its own
	 * accumulator, all are KERN_ELEMENTS.  Two times KERN_PARTIAL does not exist
	 * for a narrow type. */
	kern_function *reduce[KERN_FORMS][KERN_FORMS][TYPE_COUNT][KERN_OPS];
	void (*copy)(void *dst, const void *src, size_t bytes);
	/* For f32 and for f64 (kern.h). */
	void (*dots[2])(double dot[3], const void *a, const void *b, size_t n);
	void (*combine[2])(void *dst, const void *a, double ka, const void *b,
			   double kb, size_t n);
};

extern const struct kern_set kern_base, kern_avx2, kern_avx512;

#endif
