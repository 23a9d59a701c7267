#include "common/key.h"

#include <sodium/core.h>
#include <sodium/crypto_generichash.h>
#include <sodium/crypto_scalarmult.h>
#include <sodium/randombytes.h>
#include <sodium/utils.h>
#include <string.h>

/* A call has a magic, a public key and a MAC.  An answer has a public key and a MAC. */
enum { MAGIC_BYTES = 8, PUBLIC_BYTES = 32, MAC_BYTES = KEY_CALL_MAC_BYTES };
static const unsigned char magic[MAGIC_BYTES] = "berthcl";

enum {
	HEADER_BYTES = crypto_secretstream_xchacha20poly1305_HEADERBYTES,
	MORE_BYTES = crypto_secretstream_xchacha20poly1305_ABYTES,
	HEAD_BYTES = 4
};

_Static_assert(KEY_CALL_BYTES == MAGIC_BYTES + PUBLIC_BYTES + MAC_BYTES, "call");
_Static_assert(KEY_ANSWER_BYTES == PUBLIC_BYTES + MAC_BYTES, "answer");

int key_init(void)
{
	return sodium_init() < 0 ? -1 : 0;
}

void key_random(unsigned char key[KEY_BYTES])
{
	randombytes_buf(key, KEY_BYTES);
}

static void make_pair(struct key_side *s, unsigned char public[PUBLIC_BYTES])
{
	randombytes_buf(s->own, sizeof s->own);
	crypto_scalarmult_base(public, s->own);
}

/* The MAC of the call, and of what the answer adds to it. */
static void key_mac(const struct key_side *s, const unsigned char *answer,
		    unsigned char out[MAC_BYTES])
{
	crypto_generichash_state h;

	crypto_generichash_init(&h, s->key, sizeof s->key, MAC_BYTES);
	crypto_generichash_update(&h, s->call, KEY_CALL_BYTES - MAC_BYTES);
	if (answer)
		crypto_generichash_update(&h, answer, PUBLIC_BYTES);
	crypto_generichash_final(&h, out, MAC_BYTES);
}

static bool is_mac(const struct key_side *s, const unsigned char *answer,
		   const unsigned char *given)
{
	unsigned char want[MAC_BYTES];

	key_mac(s, answer, want);
	return !sodium_memcmp(want, given, sizeof want);
}

/* Both directions; FIRST: this side made the call. */
static bool key_begin(struct key_side *s, const unsigned char *public,
		      const unsigned char *answer, bool first)
{
	unsigned char shared[32], secret[64];
	crypto_generichash_state h;
	bool good;

	good = !crypto_scalarmult(shared, s->own, public);
	crypto_generichash_init(&h, s->key, sizeof s->key, sizeof secret);
	crypto_generichash_update(&h, shared, sizeof shared);
	crypto_generichash_update(&h, s->call, sizeof s->call);
	crypto_generichash_update(&h, answer, KEY_ANSWER_BYTES);
	crypto_generichash_final(&h, secret, sizeof secret);
	crypto_secretstream_xchacha20poly1305_init_push(&s->out, s->header,
							first ? secret : secret + 32);
	memcpy(s->in_secret, first ? secret + 32 : secret, sizeof s->in_secret);
	sodium_memzero(shared, sizeof shared);
	sodium_memzero(secret, sizeof secret);
	sodium_memzero(s->own, sizeof s->own);
	return good;
}

void key_call(struct key_side *s, const unsigned char *key,
	      unsigned char call[KEY_CALL_BYTES])
{
	*s = (struct key_side){ 0 };
	memcpy(s->key, key, sizeof s->key);
	memcpy(s->call, magic, MAGIC_BYTES);
	make_pair(s, s->call + MAGIC_BYTES);
	key_mac(s, NULL, s->call + MAGIC_BYTES + PUBLIC_BYTES);
	memcpy(call, s->call, KEY_CALL_BYTES);
}

bool key_answered(struct key_side *s, const unsigned char answer[KEY_ANSWER_BYTES])
{
	return is_mac(s, answer, answer + PUBLIC_BYTES) &&
	       key_begin(s, answer, answer, true);
}

bool key_answer(struct key_side *s, const unsigned char *key,
		const unsigned char call[KEY_CALL_BYTES],
		unsigned char answer[KEY_ANSWER_BYTES])
{
	*s = (struct key_side){ 0 };
	memcpy(s->key, key, sizeof s->key);
	memcpy(s->call, call, sizeof s->call);
	if (memcmp(call, magic, MAGIC_BYTES) ||
	    !is_mac(s, NULL, call + MAGIC_BYTES + PUBLIC_BYTES))
		return false;
	make_pair(s, answer);
	key_mac(s, answer, answer + PUBLIC_BYTES);
	return key_begin(s, call + MAGIC_BYTES, answer, false);
}

void key_seal(struct key_side *s, struct buf *out, const void *data, size_t n)
{
	const unsigned char *p = data;

	if (!s->header_sent)
		buf_add(out, s->header, HEADER_BYTES);
	s->header_sent = true;
	for (size_t part; n; p += part, n -= part) {
		part = n < KEY_CHUNK_BYTES ? n : KEY_CHUNK_BYTES;
		buf_u32(out, (uint32_t)(part + MORE_BYTES));
		crypto_secretstream_xchacha20poly1305_push(
			&s->out, buf_reserve(out, part + MORE_BYTES), NULL, p, part,
			NULL, 0, 0);
		out->len += part + MORE_BYTES;
	}
}

int key_open(struct key_side *s, struct buf *in, struct buf *plain)
{
	if (!s->header_read && in->len < HEADER_BYTES)
		return 0;
	if (!s->header_read) {
		if (crypto_secretstream_xchacha20poly1305_init_pull(
			    &s->in, buf_head(in), s->in_secret))
			return -1;
		sodium_memzero(s->in_secret, sizeof s->in_secret);
		s->header_read = true;
		buf_drop(in, HEADER_BYTES);
	}
	while (in->len >= HEAD_BYTES) {
		struct view v = { .p = buf_head(in), .left = in->len };
		const size_t n = view_u32(&v);
		unsigned long long got;

		if (n <= MORE_BYTES || n > KEY_CHUNK_BYTES + MORE_BYTES)
			return -1;
		if (v.left < n)
			return 0;
		if (crypto_secretstream_xchacha20poly1305_pull(
			    &s->in, buf_reserve(plain, n - MORE_BYTES), &got, NULL, v.p,
			    n, NULL, 0))
			return -1;
		plain->len += (size_t)got;
		buf_drop(in, HEAD_BYTES + n);
	}
	return 0;
}

void key_forget(struct key_side *s)
{
	sodium_memzero(s, sizeof *s);
}
