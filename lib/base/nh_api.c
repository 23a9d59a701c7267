#include "lib/base/nh.h"

#include <stdlib.h>
#include <string.h>

/* Little-endian, as all integers between hosts (net_key.h). */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "hosts of a job are little-endian");

static const struct nh_form *nh_form;

static bool nh_has(const struct nh_form *form)
{
#if defined(__x86_64__)
	if (form == &nh_avx512)
		return __builtin_cpu_supports("avx512f");
	if (form == &nh_avx2)
		return __builtin_cpu_supports("avx2");
#endif
	return form == &nh_base;
}

static const struct nh_form *nh_fastest(void)
{
#if defined(__x86_64__)
	if (nh_has(&nh_avx512) && !getenv("BERTH_NO_AVX512"))
		return &nh_avx512;
	if (nh_has(&nh_avx2) && !getenv("BERTH_NO_AVX2"))
		return &nh_avx2;
#endif
	return &nh_base;
}

/* Threads that call this at the same time find the same. */
static const struct nh_form *nh_current(void)
{
	const struct nh_form *f = __atomic_load_n(&nh_form, __ATOMIC_RELAXED);

	if (__builtin_expect(!f, 0)) {
		f = nh_fastest();
		__atomic_store_n(&nh_form, f, __ATOMIC_RELAXED);
	}
	return f;
}

const char *nh_chosen(void)
{
	return nh_current()->name;
}

bool nh_choose(const struct nh_form *f)
{
	if (f && !nh_has(f))
		return false;
	__atomic_store_n(&nh_form, f, __ATOMIC_RELAXED);
	return true;
}

static inline uint64_t nh_load(const unsigned char *p, size_t bytes)
{
	uint64_t w = 0;
	uint32_t half;

	if (bytes == sizeof w) {
		memcpy(&w, p, sizeof w);
		return w;
	}
	if (bytes >= sizeof half) { /* two that overlap: no loop, no call */
		memcpy(&half, p + bytes - sizeof half, sizeof half);
		w = (uint64_t)half << 8 * (bytes - sizeof half);
		memcpy(&half, p, sizeof half);
		return w | half;
	}
	while (bytes--)
		w = w << 8 | p[bytes];
	return w;
}

static inline uint64_t nh_product(uint64_t low, uint64_t high, const uint32_t *k)
{
	return (uint64_t)((uint32_t)low + k[0]) * ((uint32_t)high + k[2]) +
	       (uint64_t)((uint32_t)(low >> 32) + k[1]) *
		       ((uint32_t)(high >> 32) + k[3]);
}

void nh(const uint32_t key[NH_KEY_WORDS], const void *data, size_t bytes,
	unsigned char out[NH_BYTES])
{
	const unsigned char *p = data;
	const size_t whole = bytes / NH_UNIT_BYTES, rest = bytes % NH_UNIT_BYTES;
	uint64_t sums[2], low, high, first = 0, second = 0;

	if (whole) {
		nh_current()->units(key, p, whole, sums);
		if (!rest) {
			memcpy(out, sums, NH_BYTES);
			return;
		}
		first = sums[0];
		second = sums[1];
		p += whole * NH_UNIT_BYTES;
		key += whole * (NH_UNIT_BYTES / 4);
	}
	if (rest) {
		low = nh_load(p, rest < 8 ? rest : 8);
		high = rest > 8 ? nh_load(p + 8, rest - 8) : 0;
		first += nh_product(low, high, key);
		second += nh_product(low, high, key + NH_UNIT_BYTES / 4);
	}
	memcpy(out, &first, 8);
	memcpy(out + 8, &second, 8);
}
