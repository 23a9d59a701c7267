/* lib/net/net_hash, lib/base/nh: each form against published vectors, and against a
 * slow reference; in pieces and at once.
 * limit_s: 60 */
#include <check.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/net/net_hash.h"
#include "tests/unit/nh_vectors.h"

enum { BLOCK = NET_HASH_BLOCK_BYTES, MOST = 3 << 20 };

typedef unsigned __int128 wide;

static struct net_hash_key key;
static unsigned char *data;

static const struct nh_form *const forms[] = { &nh_base,
#if defined(__x86_64__)
					       &nh_avx2, &nh_avx512
#endif
};
enum { FORMS = sizeof forms / sizeof *forms };

/* False, and says so: this processor has not that form. */
static bool is_here(int form)
{
	if (nh_choose(forms[form]))
		return true;
	printf("skipped: %s: not on this processor\n", forms[form]->name);
	return false;
}

static size_t below(size_t n)
{
	return randombytes_uniform((uint32_t)n);
}

/* ---- the reference: nothing of it is the library's ---- */

static void ref_nh(const unsigned char *d, size_t bytes, unsigned char out[16])
{
	unsigned char padded[BLOCK] = { 0 };
	const uint32_t *k = key.nh;
	uint64_t sums[2] = { 0 };
	uint32_t m[4];

	memcpy(padded, d, bytes);
	for (size_t unit = 0; unit * 16 < bytes; unit++) {
		for (size_t i = 0; i < 16; i += 4)
			m[i / 4] = (uint32_t)padded[16 * unit + i] |
				   (uint32_t)padded[16 * unit + i + 1] << 8 |
				   (uint32_t)padded[16 * unit + i + 2] << 16 |
				   (uint32_t)padded[16 * unit + i + 3] << 24;
		for (size_t pass = 0; pass < 2; pass++) {
			const uint32_t *w = k + 4 * (unit + pass);

			sums[pass] += (uint64_t)(m[0] + w[0]) * (m[2] + w[2]);
			sums[pass] += (uint64_t)(m[1] + w[1]) * (m[3] + w[3]);
		}
	}
	for (int i = 0; i < 16; i++)
		out[i] = (unsigned char)(sums[i / 8] >> 8 * (i % 8));
}

/* A number below 2^288, of digits of 32 bits. */
struct big {
	uint64_t digit[9];
};

static bool ref_below(const struct big *a, const struct big *b)
{
	for (int i = 8; i >= 0; i--)
		if (a->digit[i] != b->digit[i])
			return a->digit[i] < b->digit[i];
	return false;
}

/* 2^130 - 5, shifted to the left. */
static struct big ref_prime(unsigned shift)
{
	struct big p = { { 0xfffffffb, 0xffffffff, 0xffffffff, 0xffffffff, 3 } };

	for (; shift; shift--)
		for (int i = 8; i >= 0; i--)
			p.digit[i] = (p.digit[i] << 1 & 0xffffffff) |
				     (i ? p.digit[i - 1] >> 31 : 0);
	return p;
}

static void ref_modulo(struct big *a)
{
	for (int shift = 140; shift >= 0; shift--) {
		const struct big p = ref_prime((unsigned)shift);
		int64_t borrow = 0;

		if (ref_below(a, &p))
			continue;
		for (int i = 0; i < 9; i++) {
			const int64_t d =
				(int64_t)a->digit[i] - (int64_t)p.digit[i] + borrow;

			borrow = d < 0 ? -1 : 0;
			a->digit[i] = (uint64_t)(d & 0xffffffff);
		}
	}
}

/* (A + BLOCK + 2^128) * R */
static void ref_poly(struct big *a, const unsigned char block[16],
		     const unsigned char r[16])
{
	struct big product = { { 0 } };
	wide carry = 0;
	uint64_t factor[4] = { 0 };

	for (int i = 0; i < 16; i++) {
		a->digit[i / 4] += (uint64_t)block[i] << 8 * (i % 4);
		factor[i / 4] |= (uint64_t)r[i] << 8 * (i % 4);
	}
	a->digit[4] += 1;
	factor[0] &= 0x0fffffff;
	for (int i = 1; i < 4; i++)
		factor[i] &= 0x0ffffffc;
	for (int to = 0; to < 9; to++) {
		for (int i = 0; i < 4; i++)
			if (to - i >= 0 && to - i < 5)
				carry += (wide)a->digit[to - i] * factor[i];
		product.digit[to] = (uint64_t)carry & 0xffffffff;
		carry >>= 32;
	}
	*a = product;
	ref_modulo(a);
}

static void ref_hash(const unsigned char *d, size_t bytes, unsigned char out[16])
{
	struct big a = { { 0 } };
	unsigned char sums[16];

	if (bytes <= BLOCK) {
		ref_nh(d, bytes, out);
		return;
	}
	for (size_t at = 0; at < bytes; at += BLOCK) {
		ref_nh(d + at, bytes - at < BLOCK ? bytes - at : BLOCK, sums);
		ref_poly(&a, sums, key.r);
	}
	for (int i = 0; i < 16; i++)
		out[i] = (unsigned char)(a.digit[i / 4] >> 8 * (i % 4));
}

/* ---- tests ---- */

static size_t bytes_of(const char *hex, void *to, size_t room)
{
	size_t n;

	ck_assert(!sodium_hex2bin(to, room, hex, strlen(hex), NULL, &n, NULL));
	return n;
}

START_TEST(published)
{
	const int form = _i;
	uint32_t words[NH_KEY_WORDS + 8];
	unsigned char message[NH_MOST_BYTES], want[2 * NH_BYTES], got[2 * NH_BYTES];

	if (!is_here(form))
		return;
	for (size_t i = 0; i < sizeof nh_vectors / sizeof *nh_vectors; i++) {
		const struct nh_vector *v = &nh_vectors[i];
		size_t n;

		memset(words, 0, sizeof words);
		bytes_of(v->key, words, sizeof words);
		n = bytes_of(v->message, message, sizeof message);
		ck_assert_uint_eq(bytes_of(v->hash, want, sizeof want), sizeof want);
		nh(words, message, n, got);
		nh(words + 8, message, n, got + NH_BYTES); /* passes 3 and 4 */
		ck_assert_msg(!memcmp(got, want, sizeof want), "vector %zu", i);
	}
}
END_TEST

static void check_hash(size_t from, size_t bytes)
{
	unsigned char want[NET_HASH_BYTES], got[NET_HASH_BYTES];

	ref_hash(data + from, bytes, want);
	net_hash_once(&key, data + from, bytes, got);
	ck_assert_msg(!memcmp(got, want, sizeof got), "%s: %zu bytes at %zu",
		      nh_chosen(), bytes, from);
}

START_TEST(reference)
{
	if (!is_here(_i))
		return;
	for (size_t n = 0; n <= BLOCK + 70; n++)
		check_hash(n % 67, n);
	for (int i = 0; i < 100; i++)
		check_hash(below(64), below(8 * BLOCK + 1));
	check_hash(0, 64 * BLOCK);
	check_hash(1, 64 * BLOCK + 1);
	check_hash(2, 130 * BLOCK - 1);
	check_hash(3, 700 * BLOCK + below(BLOCK));
}
END_TEST

/* Words of which all products and carries are as large as can be. */
START_TEST(extremes)
{
	static const unsigned char fill[] = { 0x00, 0xff, 0x7f, 0x80 };

	if (!is_here(_i))
		return;
	for (size_t i = 0; i < sizeof fill * sizeof fill; i++) {
		memset(&key, fill[i % 4], sizeof key);
		memset(data, fill[i / 4], 5 * BLOCK + 100);
		check_hash(0, BLOCK);
		check_hash(0, 5 * BLOCK + 13);
	}
}
END_TEST

START_TEST(pieces)
{
	static const size_t sizes[] = { 0,     1,         15,        16,     BLOCK - 1,
					BLOCK, BLOCK + 1, 2 * BLOCK, 9000,   32768,
					65536, 65537,     200000,    3 << 20 };
	unsigned char want[NET_HASH_BYTES], got[NET_HASH_BYTES];
	struct net_hash h;

	if (!is_here(_i))
		return;
	for (size_t i = 0; i < 20 * sizeof sizes / sizeof *sizes; i++) {
		const size_t bytes = sizes[i / 20];
		const size_t most = i % 4 == 0 ? 20 : i % 4 == 1 ? 6000 : 70000;
		size_t at = 0, n;

		if (bytes > BLOCK << 6 && i % 4 == 0)
			continue;
		net_hash_once(&key, data, bytes, want);
		net_hash_begin(&h);
		while (at < bytes) {
			n = below(most + 1);
			if (n > bytes - at)
				n = bytes - at;
			net_hash_add(&h, &key, data + at, n);
			at += n;
		}
		net_hash_end(&h, &key, got);
		ck_assert_msg(!memcmp(got, want, sizeof got), "%zu in pieces up to %zu",
			      bytes, most);
	}
}
END_TEST

START_TEST(alike)
{
	unsigned char of[FORMS][NET_HASH_BYTES];

	for (int i = 0; i < 300; i++) {
		const size_t from = below(4096),
			     bytes = i % 20 ? below(8 * BLOCK) : below(MOST - 4096);

		for (int f = 0; f < FORMS; f++) {
			if (!nh_choose(forms[f]))
				continue;
			net_hash_once(&key, data + from, bytes, of[f]);
			ck_assert_msg(!memcmp(of[f], of[0], sizeof *of),
				      "%s: %zu bytes", forms[f]->name, bytes);
		}
	}
}
END_TEST

START_TEST(each_bit)
{
	enum { BYTES = 3 * BLOCK };
	unsigned char want[NET_HASH_BYTES], got[NET_HASH_BYTES];

	if (!is_here(_i))
		return;
	net_hash_once(&key, data, BYTES, want);
	for (size_t bit = 0; bit < 8 * BYTES; bit++) {
		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
		net_hash_once(&key, data, BYTES, got);
		ck_assert_msg(memcmp(got, want, sizeof got), "bit %zu", bit);
		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	/* and of the key, but for the bits of r that Poly1305 clears */
	for (size_t bit = 0; bit < 8 * sizeof key.nh; bit++) {
		((unsigned char *)key.nh)[bit / 8] ^= (unsigned char)(1 << bit % 8);
		net_hash_once(&key, data, BYTES, got);
		ck_assert_msg(memcmp(got, want, sizeof got), "bit %zu of the key", bit);
		((unsigned char *)key.nh)[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
}
END_TEST

/* Nothing behind the data is read: valgrind and the sanitizer would see it. */
START_TEST(ends)
{
	unsigned char want[NET_HASH_BYTES], got[NET_HASH_BYTES];

	if (!is_here(_i))
		return;
	for (size_t n = 1; n <= 2 * BLOCK; n += n < 300 ? 1 : 37) {
		unsigned char *copy = malloc(n);

		memcpy(copy, data, n);
		net_hash_once(&key, data, n, want);
		net_hash_once(&key, copy, n, got);
		ck_assert(!memcmp(got, want, sizeof got));
		free(copy);
	}
}
END_TEST

START_TEST(choice)
{
	ck_assert(nh_choose(NULL));
	printf("by itself: %s\n", nh_chosen());
	setenv("BERTH_NO_AVX512", "1", 1);
	setenv("BERTH_NO_AVX2", "1", 1);
	ck_assert(nh_choose(NULL));
	ck_assert_str_eq(nh_chosen(), nh_base.name);
}
END_TEST

static void set_up(void)
{
	ck_assert(sodium_init() >= 0);
	data = malloc(MOST + 8192);
	randombytes_buf(data, MOST + 8192);
	randombytes_buf(&key, sizeof key);
}

static void tear_down(void)
{
	free(data);
}

int main(void)
{
	Suite *s = suite_create("net_hash");
	TCase *t = tcase_create("net_hash");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, published, 0, FORMS);
	tcase_add_loop_test(t, reference, 0, FORMS);
	tcase_add_loop_test(t, extremes, 0, FORMS);
	tcase_add_loop_test(t, pieces, 0, FORMS);
	tcase_add_test(t, alike);
	tcase_add_loop_test(t, each_bit, 0, FORMS);
	tcase_add_loop_test(t, ends, 0, FORMS);
	tcase_add_test(t, choice);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
