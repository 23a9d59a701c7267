#include "lib/base/kern.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/kern_half.h"
#include "lib/base/kern_set.h"
#include "lib/base/names.def"

static const size_t sizes[BERTH_TYPES] = {
	[BERTH_U8] = 1,   [BERTH_I8] = 1,   [BERTH_U16] = 2, [BERTH_I16] = 2,
	[BERTH_I32] = 4,  [BERTH_U32] = 4,  [BERTH_I64] = 8, [BERTH_U64] = 8,
	[BERTH_F16] = 2,  [BERTH_BF16] = 2, [BERTH_F32] = 4, [BERTH_F64] = 8,
	[BERTH_BOOL] = 1,
};

static const char *const types[BERTH_TYPES] = { TYPE_NAMES };
static const char *const ops[BERTH_OPS] = { OP_NAMES };

size_t kern_size(berth_type type)
{
	return (unsigned)type < BERTH_TYPES ? sizes[type] : 0;
}

const char *kern_type_name(berth_type type)
{
	return (unsigned)type < BERTH_TYPES ? types[type] : "?";
}

const char *kern_op_name(berth_op op)
{
	return (unsigned)op < BERTH_OPS ? ops[op] : "?";
}

/* ---- which instructions ---- */

static const struct kern_set *choose(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl") && !getenv("BERTH_NO_AVX512"))
		return &kern_avx512;
	/* which every processor with F16C has, and the other way round */
	if (__builtin_cpu_supports("avx2") && !getenv("BERTH_NO_AVX2"))
		return &kern_avx2;
#endif
	return &kern_base;
}

/* Threads that come together find the same. */
static const struct kern_set *set(void)
{
	static const struct kern_set *chosen;
	const struct kern_set *s = __atomic_load_n(&chosen, __ATOMIC_RELAXED);

	if (!s) {
		s = choose();
		__atomic_store_n(&chosen, s, __ATOMIC_RELAXED);
	}
	return s;
}

const char *kern_chosen(void)
{
	return set()->name;
}

kern_reduce *kern_reduce_of(berth_type type, berth_op op)
{
	if ((unsigned)type >= BERTH_TYPES || (unsigned)op >= KERN_OPS)
		return NULL;
	return set()->reduce[type][op];
}

void kern_copy(void *dst, const void *src, size_t bytes, bool stream)
{
	if (stream)
		set()->copy(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

void kern_fence(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#endif
}

/* ---- scaling ---- */

#define EACH(T, expression)                                                            \
	do {                                                                           \
		const T *s = src;                                                      \
		T *d = dst;                                                            \
                                                                                       \
		for (size_t i = 0; i < n; i++) {                                       \
			T x = s[i];                                                    \
                                                                                       \
			d[i] = (T)(expression);                                        \
		}                                                                      \
	} while (0);                                                                   \
	return

void kern_scale(void *dst, const void *src, size_t n, berth_type type, double factor)
{
	float f = (float)factor;

	switch (type) {
	case BERTH_U8:
		EACH(uint8_t, (double)x * factor);
	case BERTH_I8:
		EACH(int8_t, (double)x * factor);
	case BERTH_U16:
		EACH(uint16_t, (double)x * factor);
	case BERTH_I16:
		EACH(int16_t, (double)x * factor);
	case BERTH_U32:
		EACH(uint32_t, (double)x * factor);
	case BERTH_I32:
		EACH(int32_t, (double)x * factor);
	case BERTH_U64:
		EACH(uint64_t, (double)x * factor);
	case BERTH_I64:
		EACH(int64_t, (double)x * factor);
	case BERTH_F16:
		EACH(uint16_t, float_f16(f16_float(x) * f));
	case BERTH_BF16:
		EACH(uint16_t, float_bf16(bf16_float(x) * f));
	case BERTH_F32:
		EACH(float, x *f);
	case BERTH_F64:
		EACH(double, x *factor);
	case BERTH_BOOL:
		EACH(uint8_t, x && factor != 0);
	case BERTH_TYPES:
		break;
	}
}

void kern_divide(void *dst, const void *src, size_t n, berth_type type, uint32_t by)
{
	switch (type) {
	case BERTH_U8:
		EACH(uint8_t, x / by);
	case BERTH_I8:
		EACH(int8_t, x / (int64_t)by);
	case BERTH_U16:
		EACH(uint16_t, x / by);
	case BERTH_I16:
		EACH(int16_t, x / (int64_t)by);
	case BERTH_U32:
		EACH(uint32_t, x / by);
	case BERTH_I32:
		EACH(int32_t, x / (int64_t)by);
	case BERTH_U64:
		EACH(uint64_t, x / by);
	case BERTH_I64:
		EACH(int64_t, x / (int64_t)by);
	default:
		kern_scale(dst, src, n, type, 1.0 / by);
	}
}
