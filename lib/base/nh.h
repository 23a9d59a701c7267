/* nh.h - NH, a universal hash, as it is in Adiantum (Crowley and Biggers, "Adiantum:
 * length-preserving encryption for entry-level processors", 2018, section 6.4), with 2
 * passes in place of 4.  A message is units of 16 bytes: words m0 to m3 of 32 bits,
 * little-endian.  With words k0, k1, ... of a random key, a pass sums over the units
 *     (m0 + k0) * (m2 + k2) + (m1 + k1) * (m3 + k3)
 * where m + k has 32 bits, products and sums 64.  The words of the key go on with the
 * units; the second pass begins 4 words later.  A last unit is padded with zeros.
 *
 * Two different messages of the same size have the same two sums with a chance of at
 * most 2^-64: Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC: fast and secure
 * message authentication" (CRYPTO '99), on NH with the Toeplitz construction: 2^-wt,
 * for words of w = 32 bits and t = 2 passes.  These pairs of words change nothing in
 * the proof: in the last unit that differs, the second pass has a word of the key as a
 * factor that the first has in no unit that differs.
 *
 * There are forms for several sets of instructions.  The sums are the same.  A vector
 * takes 10 instructions; their number is the bound.  (In L2: plain 19 GB/s, AVX2 41,
 * AVX-512 42.) */
#ifndef BERTH_LIB_NH_H
#define BERTH_LIB_NH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NH_UNIT_BYTES = 16,
	NH_MOST_BYTES = 4096, /* of one message */
	NH_BYTES = 16,        /* two sums, little-endian */
	NH_KEY_WORDS = (NH_MOST_BYTES + NH_UNIT_BYTES) / 4
};

/* The sums of BYTES of DATA, NH_MOST_BYTES or less. */
void nh(const uint32_t key[NH_KEY_WORDS], const void *data, size_t bytes,
	unsigned char out[NH_BYTES]);

/* ---- forms ---- */

struct nh_form {
	const char *name;
	/* The sums of whole units. */
	void (*units)(const uint32_t *key, const unsigned char *data, size_t units,
		      uint64_t out[2]);
};

extern const struct nh_form nh_base, nh_avx2, nh_avx512;

/* The name of nh()'s form, the fastest that this processor has.  BERTH_NO_AVX512 and
 * BERTH_NO_AVX2 in the environment leave those out, as for kern.h. */
const char *nh_chosen(void);
/* For tests: another form, or NULL for the fastest.  False: this processor does not
 * have it. */
bool nh_choose(const struct nh_form *form);

#endif
