/* kern.h - the arithmetic: reductions, copies and scalings of arrays, by the widest
 * vectors that this processor has (AVX-512, AVX2, else what the compiler's target
 * has: SSE2, NEON).
 *
 * Elements need the alignment of their type, no more.  Sources are taken in the
 * order given, element by element: the result does not depend on how an array is
 * cut, nor on the instructions used, but for the bits of a NaN that comes of two.
 * f16 and bf16 are combined in f32 and rounded once, to nearest even.
 * BERTH_NO_AVX512 and BERTH_NO_AVX2 in the environment leave those out (tests). */
#ifndef BERTH_LIB_KERN_H
#define BERTH_LIB_KERN_H

#include <stdbool.h>

#include "lib/berth.h"

/* DST[j][i] = SRC[0][i] op SRC[1][i] op ..., for each j < NDST and i < N; a DST may be
 * one of SRC.  STREAM: past the caches, for results that nobody reads soon; a fence of
 * the caller's (kern_fence()) has to follow. */
typedef void kern_reduce(void *const *dst, unsigned ndst, const void *const *src,
			 unsigned nsrc, size_t n, bool stream);

/* For SUM, MIN, MAX, PRODUCT, BAND, BOR, BXOR.  NULL: not defined for TYPE. */
kern_reduce *kern_reduce_of(berth_type type, berth_op op);

void kern_copy(void *dst, const void *src, size_t bytes, bool stream);
void kern_fence(void);

/* DST[i] = SRC[i] * FACTOR; of integers toward zero, by way of double.  DST may be
 * SRC. */
void kern_scale(void *dst, const void *src, size_t n, berth_type type, double factor);
/* DST[i] = SRC[i] / BY, toward zero. */
void kern_divide(void *dst, const void *src, size_t n, berth_type type, uint32_t by);

/* Bytes of an element; 0: no type. */
size_t kern_size(berth_type type);
/* "f32" */
const char *kern_type_name(berth_type type);
const char *kern_op_name(berth_op op);

/* "avx512", "avx2" or "base". */
const char *kern_chosen(void);

#endif
