/* kern.h - the arithmetic: reductions and copies of arrays, by the widest vectors that
 * this processor has (AVX-512, AVX2, else what the compiler's target has: SSE2, NEON).
 *
 * One reduction scales, combines, divides and rounds.  It accumulates in the type's
 * accumulator: f32 for f32 and all narrower floats, else the type itself.
 *     each element times PRESCALE       rounded to the accumulator
 *     combined in the order of sources  rounded to the accumulator, each time
 *     divided by DIVIDE                 IEEE division; integers toward zero
 *     times POSTSCALE                   rounded to the accumulator
 *     stored                            rounded to the type, to nearest even
 * Where the accumulator is a float the factors and DIVIDE are rounded to it, too.
 * Integers wrap.  Scaled integers go by way of double, toward zero, and stop at the
 * ends of their type; a NaN becomes 0.  BAND, BOR and BXOR are not scaled.  No product
 * is fused with a sum.  MIN and MAX are those of IEEE 754-2019: a NaN comes out, and -0
 * is less than 0.  An E4M3 that is larger than 448 becomes 448, as in torch 2.13.
 *
 * The result does not depend on how an array is cut, on the instructions used, or on
 * the thread's floating-point mode, but for the bits of a NaN that comes of two.
 * Elements need the alignment of their type, no more.
 * BERTH_NO_AVX512 and BERTH_NO_AVX2 in the environment leave those out (tests). */
#ifndef BERTH_LIB_KERN_H
#define BERTH_LIB_KERN_H

#include <stdbool.h>

#include "lib/base/names.def"
#include "lib/berth.h"

/* All 0: no scaling. */
struct kern_scale {
	bool has_prescale, has_postscale;
	double prescale, postscale;
	uint32_t divide; /* 0: not */
};

/* The form of the elements of an array. */
enum kern_form {
	KERN_ELEMENTS, /* of the type: not scaled yet, or the result */
	KERN_PARTIAL   /* accumulators: scaled, partly combined, not divided yet */
};

/* One reduction, ready to be done (kern_make()). */
struct kern {
	void (*reduce)(const struct kern *k, void *const *dst, unsigned ndst,
		       const void *const *src, unsigned nsrc, size_t n, bool stream);
	enum {
		KERN_PLAIN,
		KERN_TIMES,   /* only multiplied at the end */
		KERN_DIVIDED, /* only divided */
		KERN_SCALED
	} how;
	size_t in_bytes, out_bytes; /* of an element */
	double times;
	struct kern_scale scale; /* as far as it applies to these forms; else 1 */
	bool floats;
	/* The thread's floating-point mode.  kern_make() reads it, since ranks of a
	 * small sum wait anyhow before kern_reduce() (6 ns). */
	unsigned mode;
};

/* Makes K, the reduction of TYPE by OP (SUM, MIN, MAX, PRODUCT, BAND, BOR, BXOR) for
 * this thread, from arrays of the form IN to one of the form OUT.  SCALE may be NULL.
 * False: there is no such reduction. */
bool kern_make(struct kern *k, berth_type type, berth_op op,
	       const struct kern_scale *scale, enum kern_form in, enum kern_form out);
/* Is there a reduction of TYPE by OP, for KERN_ELEMENTS? */
bool kern_is_defined(berth_type type, berth_op op);

/* DST[j][i] = SRC[0][i] op SRC[1][i] op ..., for each j < NDST and i < N.  A DST may be
 * one of SRC if their forms have one size.  STREAM stores past the caches, for results
 * that are not read soon.  Then the caller has to call kern_fence(). */
void kern_reduce(const struct kern *k, void *const *dst, unsigned ndst,
		 const void *const *src, unsigned nsrc, size_t n, bool stream);

/* DOT[0] = A.A, DOT[1] = B.B, DOT[2] = A.B, of N elements of TYPE, F32 or F64, in f64.
 * They are 16 sums of each 16th element, then the sum of those in their order. */
void kern_dots(double dot[3], berth_type type, const void *a, const void *b, size_t n);
/* DST[i] = KA A[i] + KB B[i], all of TYPE; DST may be A or B. */
void kern_combine(void *dst, berth_type type, const void *a, double ka, const void *b,
		  double kb, size_t n);

void kern_copy(void *dst, const void *src, size_t bytes, bool stream);
void kern_fence(void);

/* Bytes of an element; 0: TYPE is not a type. */
size_t kern_size(berth_type type);
/* The type of its accumulator. */
berth_type kern_accumulator(berth_type type);
/* "f32" */
const char *kern_type_name(berth_type type);
const char *kern_op_name(berth_op op);

/* "avx512", "avx2" or "base". */
const char *kern_chosen(void);

#endif
