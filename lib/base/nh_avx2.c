/* AVX2: every x86-64 since 2013 or 2017. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#include "lib/base/nh.h"

#if defined(__clang__) /* the fuzzers */
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define NH_VECTOR_BYTES 32
typedef __m256i nh_vector;

static inline nh_vector nh_zero(void)
{
	return _mm256_setzero_si256();
}

static inline nh_vector nh_load(const void *p, size_t units)
{
	return units == 2 ? _mm256_loadu_si256(p)
			  : _mm256_zextsi128_si256(_mm_loadu_si128(p));
}

static inline nh_vector nh_join(nh_vector a, nh_vector b)
{
	return _mm256_add_epi64(a, b);
}

static inline nh_vector nh_add(nh_vector sums, nh_vector m, nh_vector k)
{
	const nh_vector x = _mm256_add_epi32(m, k);

	return nh_join(sums, _mm256_mul_epu32(_mm256_shuffle_epi32(x, 0x10),
					      _mm256_shuffle_epi32(x, 0x32)));
}

static inline void nh_store(uint64_t out[2], nh_vector a, nh_vector b)
{
	const nh_vector both =
		nh_join(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));

	_mm_storeu_si128((__m128i *)out,
			 _mm_add_epi64(_mm256_castsi256_si128(both),
				       _mm256_extracti128_si256(both, 1)));
}

#define NH_NAME nh_avx2
#define NH_TEXT "AVX2"
#include "lib/base/nh_body.def"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
