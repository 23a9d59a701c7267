/* AVX-512: Skylake servers, Zen 4 and later. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "lib/base/nh.h"

#if defined(__clang__) /* the fuzzers */
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC target("avx512f")
#endif

#define NH_VECTOR_BYTES 64
typedef __m512i nh_vector;

static inline nh_vector nh_zero(void)
{
	return _mm512_setzero_si512();
}

static inline nh_vector nh_load(const void *p, size_t units)
{
	return units == 4
		       ? _mm512_loadu_si512(p)
		       : _mm512_maskz_loadu_epi64((__mmask8)((1u << 2 * units) - 1), p);
}

static inline nh_vector nh_join(nh_vector a, nh_vector b)
{
	return _mm512_add_epi64(a, b);
}

static inline nh_vector nh_add(nh_vector sums, nh_vector m, nh_vector k)
{
	const nh_vector x = _mm512_add_epi32(m, k);

	return nh_join(sums,
		       _mm512_mul_epu32(_mm512_shuffle_epi32(x, (_MM_PERM_ENUM)0x10),
					_mm512_shuffle_epi32(x, (_MM_PERM_ENUM)0x32)));
}

static inline void nh_store(uint64_t out[2], nh_vector a, nh_vector b)
{
	const nh_vector both =
		nh_join(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
	const __m256i half = _mm256_add_epi64(_mm512_castsi512_si256(both),
					      _mm512_extracti64x4_epi64(both, 1));

	_mm_storeu_si128((__m128i *)out,
			 _mm_add_epi64(_mm256_castsi256_si128(half),
				       _mm256_extracti128_si256(half, 1)));
}

#define NH_NAME nh_avx512
#define NH_TEXT "AVX-512"
#include "lib/base/nh_body.def"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
