#include "launcher/transport/name_hash.h"

#include <sodium/randombytes.h>
#include <sodium/utils.h>
#include <string.h>

enum { HASH_BYTES = 20 }; /* of SHA-1 */

static uint32_t hash_rotate(uint32_t x, int by)
{
	return x << by | x >> (32 - by);
}

static void sha1_block(uint32_t h[5], const unsigned char *p)
{
	static const uint32_t k[4] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f, t;

	for (int i = 0; i < 16; i++, p += 4)
		w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 |
		       (uint32_t)p[2] << 8 | p[3];
	for (int i = 16; i < 80; i++)
		w[i] = hash_rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (int i = 0; i < 80; i++) {
		f = i < 20   ? (b & c) | (~b & d)
		    : i < 40 ? b ^ c ^ d
		    : i < 60 ? (b & c) | (b & d) | (c & d)
			     : b ^ c ^ d;
		t = hash_rotate(a, 5) + f + e + k[i / 20] + w[i];
		e = d;
		d = c;
		c = hash_rotate(b, 30);
		b = a;
		a = t;
	}
	h[0] += a;
	h[1] += b;
	h[2] += c;
	h[3] += d;
	h[4] += e;
}

/* SHA-1 of the 64 bytes at PAD and the N bytes at TEXT. */
static void sha1_padded(unsigned char out[HASH_BYTES], const unsigned char *pad,
			const void *text, size_t n)
{
	uint32_t h[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	const uint64_t bits = (64 + (uint64_t)n) * 8;
	const unsigned char *p = text;
	unsigned char last[128] = { 0 };
	size_t blocks;

	sha1_block(h, pad);
	for (; n >= 64; n -= 64, p += 64)
		sha1_block(h, p);
	memcpy(last, p, n);
	last[n] = 0x80;
	blocks = n < 56 ? 1 : 2;
	for (int i = 0; i < 8; i++)
		last[blocks * 64 - 1 - (size_t)i] = (unsigned char)(bits >> 8 * i);
	for (size_t i = 0; i < blocks; i++)
		sha1_block(h, last + i * 64);
	for (int i = 0; i < HASH_BYTES; i++)
		out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static void hash_name(unsigned char out[HASH_BYTES],
		      const unsigned char salt[HASH_BYTES], const char *name)
{
	unsigned char inner[64], outer[64];

	memset(inner, 0x36, sizeof inner);
	memset(outer, 0x5c, sizeof outer);
	for (int i = 0; i < HASH_BYTES; i++) {
		inner[i] ^= salt[i];
		outer[i] ^= salt[i];
	}
	sha1_padded(out, inner, name, strlen(name));
	sha1_padded(out, outer, out, HASH_BYTES);
}

bool name_hash_read(struct name_hash *h, const char *hashed)
{
	const char *mid = strncmp(hashed, "|1|", 3) ? NULL : strchr(hashed + 3, '|');
	size_t n;

	return mid &&
	       !sodium_base642bin(h->salt, HASH_BYTES, hashed + 3,
				  (size_t)(mid - hashed - 3), NULL, &n, NULL,
				  sodium_base64_VARIANT_ORIGINAL) &&
	       n == HASH_BYTES &&
	       !sodium_base642bin(h->sum, HASH_BYTES, mid + 1, strlen(mid + 1), NULL,
				  &n, NULL, sodium_base64_VARIANT_ORIGINAL) &&
	       n == HASH_BYTES;
}

bool name_hash_match(const struct name_hash *h, const char *name)
{
	unsigned char own[HASH_BYTES];

	hash_name(own, h->salt, name);
	return !memcmp(own, h->sum, HASH_BYTES);
}

char *name_hash_new(const char *name)
{
	unsigned char salt[HASH_BYTES], sum[HASH_BYTES];
	char a[32], b[32];

	randombytes_buf(salt, sizeof salt);
	hash_name(sum, salt, name);
	sodium_bin2base64(a, sizeof a, salt, sizeof salt,
			  sodium_base64_VARIANT_ORIGINAL);
	sodium_bin2base64(b, sizeof b, sum, sizeof sum, sodium_base64_VARIANT_ORIGINAL);
	return xasprintf("|1|%s|%s", a, b);
}
