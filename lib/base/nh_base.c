/* The instructions that every processor of this architecture has: SSE2, NEON. */
#include <stdint.h>
#include <string.h>

#define NH_VECTOR_BYTES 16
#if defined(__x86_64__)
#include <emmintrin.h>

typedef __m128i nh_vector;

static inline nh_vector nh_zero(void)
{
	return _mm_setzero_si128();
}

static inline nh_vector nh_load(const void *p, size_t units)
{
	(void)units;
	return _mm_loadu_si128(p);
}

static inline nh_vector nh_join(nh_vector a, nh_vector b)
{
	return _mm_add_epi64(a, b);
}

static inline nh_vector nh_add(nh_vector sums, nh_vector m, nh_vector k)
{
	const nh_vector x = _mm_add_epi32(m, k);

	return nh_join(sums, _mm_mul_epu32(_mm_shuffle_epi32(x, 0x10),
					   _mm_shuffle_epi32(x, 0x32)));
}

static inline void nh_store(uint64_t out[2], nh_vector a, nh_vector b)
{
	_mm_storeu_si128((__m128i *)out,
			 nh_join(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)));
}
#elif defined(__aarch64__)
#include <arm_neon.h>

typedef uint64x2_t nh_vector;

static inline nh_vector nh_zero(void)
{
	return vdupq_n_u64(0);
}

static inline nh_vector nh_load(const void *p, size_t units)
{
	(void)units;
	return vreinterpretq_u64_u8(vld1q_u8(p));
}

static inline nh_vector nh_join(nh_vector a, nh_vector b)
{
	return vaddq_u64(a, b);
}

static inline nh_vector nh_add(nh_vector sums, nh_vector m, nh_vector k)
{
	const uint32x4_t x =
		vaddq_u32(vreinterpretq_u32_u64(m), vreinterpretq_u32_u64(k));

	return vmlal_u32(sums, vget_low_u32(x), vget_high_u32(x));
}

static inline void nh_store(uint64_t out[2], nh_vector a, nh_vector b)
{
	vst1q_u64(out, vpaddq_u64(a, b));
}
#else
typedef struct {
	uint32_t word[4];
	uint64_t sum;
} nh_vector;

static inline nh_vector nh_zero(void)
{
	return (nh_vector){ .sum = 0 };
}

static inline nh_vector nh_load(const void *p, size_t units)
{
	nh_vector v = { .sum = 0 };

	(void)units;
	memcpy(v.word, p, sizeof v.word);
	return v;
}

static inline nh_vector nh_join(nh_vector a, nh_vector b)
{
	a.sum += b.sum;
	return a;
}

static inline nh_vector nh_add(nh_vector sums, nh_vector m, nh_vector k)
{
	sums.sum += (uint64_t)(m.word[0] + k.word[0]) * (m.word[2] + k.word[2]) +
		    (uint64_t)(m.word[1] + k.word[1]) * (m.word[3] + k.word[3]);
	return sums;
}

static inline void nh_store(uint64_t out[2], nh_vector a, nh_vector b)
{
	out[0] = a.sum;
	out[1] = b.sum;
}
#endif

#define NH_NAME nh_base
#define NH_TEXT "plain"
#include "lib/base/nh_body.def"
