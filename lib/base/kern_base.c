/* The instructions that every processor of this architecture has: SSE2, NEON. */
#include <stdint.h>
#include <string.h>

#include "lib/base/kern_half.h"

#define KERN_BYTES 16
typedef uint64_t past_vector
	__attribute__((vector_size(KERN_BYTES), aligned(8), may_alias));
typedef float float_vector
	__attribute__((vector_size(KERN_BYTES), aligned(4), may_alias));

#if defined(__x86_64__)
#include <emmintrin.h>

static inline void store_past(void *p, past_vector v)
{
	_mm_stream_si128(p, (__m128i)v);
}
#else
static inline void store_past(void *p, past_vector v)
{
	*(past_vector *)p = v;
}
#endif

static inline float_vector halves_load(const void *p)
{
	float_vector out = { 0 };
	uint16_t in[4];

	memcpy(in, p, sizeof in);
	for (int i = 0; i < 4; i++)
		out[i] = f16_float(in[i]);
	return out;
}

static inline void halves_store(void *p, float_vector v)
{
	uint16_t out[4];

	for (int i = 0; i < 4; i++)
		out[i] = float_f16(v[i]);
	memcpy(p, out, sizeof out);
}

#define KERN_NAME kern_base
#include "lib/base/kern_body.def"
