/* AVX2 and F16C, of every x86-64 since 2013 or 2017. */
#if defined(__x86_64__)
#pragma GCC target("avx2,f16c,fma")
#include <immintrin.h>
#include <stdint.h>

typedef uint64_t past_vector __attribute__((vector_size(64), aligned(8), may_alias));
typedef float float_vector __attribute__((vector_size(64), aligned(4), may_alias));

static inline void store_past(void *p, past_vector v)
{
	union {
		past_vector v;
		__m256i part[2];
	} u = { v };

	_mm256_stream_si256(p, u.part[0]);
	_mm256_stream_si256((__m256i *)p + 1, u.part[1]);
}

static inline float_vector halves_load(const void *p)
{
	const __m128i *in = p;
	union {
		float_vector v;
		__m256 part[2];
	} u = { .part = { _mm256_cvtph_ps(_mm_loadu_si128(in)),
			  _mm256_cvtph_ps(_mm_loadu_si128(in + 1)) } };

	return u.v;
}

static inline void halves_store(void *p, float_vector v)
{
	union {
		float_vector v;
		__m256 part[2];
	} u = { v };
	__m128i *out = p;

	_mm_storeu_si128(out, _mm256_cvtps_ph(u.part[0], _MM_FROUND_TO_NEAREST_INT));
	_mm_storeu_si128(out + 1,
			 _mm256_cvtps_ph(u.part[1], _MM_FROUND_TO_NEAREST_INT));
}

#define KERN_NAME kern_avx2
#include "lib/base/kern_body.def"
#endif
