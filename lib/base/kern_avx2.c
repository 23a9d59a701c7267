/* AVX2 and F16C, which every x86-64 since 2013 or 2017 has. */
#if defined(__x86_64__)
#pragma GCC target("avx2,f16c,fma")
#include <immintrin.h>
#include <stdint.h>

#define KERN_BYTES 32
typedef uint64_t past_vector
	__attribute__((vector_size(KERN_BYTES), aligned(8), may_alias));
typedef float float_vector
	__attribute__((vector_size(KERN_BYTES), aligned(4), may_alias));

static inline void store_past(void *p, past_vector v)
{
	_mm256_stream_si256(p, (__m256i)v);
}

static inline float_vector halves_load(const void *p)
{
	return (float_vector)_mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline void halves_store(void *p, float_vector v)
{
	_mm_storeu_si128(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

#define KERN_NAME kern_avx2
#include "lib/base/kern_body.def"
#endif
