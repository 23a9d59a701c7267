/* AVX-512 F, BW, DQ and VL: Skylake servers, Zen 4 and later. */
#if defined(__x86_64__)
#pragma GCC target(                                                                    \
	"avx512f,avx512bw,avx512dq,avx512vl,f16c,fma,prefer-vector-width=512")
#include <immintrin.h>
#include <stdint.h>

#define KERN_BYTES 64
typedef uint64_t past_vector
	__attribute__((vector_size(KERN_BYTES), aligned(8), may_alias));
typedef float float_vector
	__attribute__((vector_size(KERN_BYTES), aligned(4), may_alias));

static inline void store_past(void *p, past_vector v)
{
	_mm512_stream_si512(p, (__m512i)v);
}

static inline float_vector halves_load(const void *p)
{
	return (float_vector)_mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline void halves_store(void *p, float_vector v)
{
	_mm256_storeu_si256(p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

#define KERN_NAME kern_avx512
#include "lib/base/kern_body.def"
#endif
