/* nh.h - NH, a universal hash, as in Adiantum's NHPoly1305 (Crowley, Biggers: IACR
 * ToSC 2018/4) with 2 passes.  A message is units of 16 bytes: words m0 to m3 of 32
 * bits, little-endian.  With the words k0, k1, ... of a random key, a pass sums over
 * its units
 *     (m0 + k0) * (m2 + k2) + (m1 + k1) * (m3 + k3)
 * where m + k has 32 bits, products and sums 64.  The words of the key go on with the
 * units; those of the second pass begin one unit later.  A last unit is padded with
 * zeros.
 *
 * Two different messages of the same size have the same two sums with a chance of at
 * most 2^-64: Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC" (CRYPTO '99), the
 * theorem on the Toeplitz construction, for words of 32 bits and 2 passes.
 *
 * There are forms for several sets of instructions, with the same sums. */
#ifndef BERTH_LIB_NH_H
#define BERTH_LIB_NH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NH_UNIT_BYTES = 16,
	NH_MOST_BYTES = 1024, /* of one message */
	NH_BYTES = 16,        /* two sums, little-endian */
	NH_KEY_WORDS = (NH_MOST_BYTES + NH_UNIT_BYTES) / 4
};

/* The sums of BYTES of DATA, NH_MOST_BYTES or less. */
void nh(const uint32_t key[NH_KEY_WORDS], const void *data, size_t bytes,
	unsigned char out[NH_BYTES]);

/* ---- forms ---- */

struct nh_form {
	const char *name;
	/* Of whole units. */
	void (*units)(const uint32_t *key, const unsigned char *data, size_t units,
		      uint64_t out[2]);
};

extern const struct nh_form nh_base, nh_avx2, nh_avx512;

/* The form that nh() has: the fastest that this processor has.  BERTH_NO_AVX512 and
 * BERTH_NO_AVX2 in the environment leave those out, as for kern.h. */
const char *nh_chosen(void);
/* For tests: another one, or NULL for that.  False: this processor has no such. */
bool nh_choose(const struct nh_form *form);

#endif
