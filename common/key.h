/* key.h - a stream of bytes between two programs that have one key, sealed from its
 * first byte.
 *
 * The side that connects sends a call: a public key of X25519, made for this stream,
 * and its MAC.  The other side answers with such a key of its own, and a MAC of both.
 * The two secrets of the stream, one for each direction, are BLAKE2b of the shared
 * secret, of the call and of the answer, keyed with the key.  So a process without the
 * key can neither read nor write, and an old call leads to nothing.  A process that
 * gets the key later cannot read what was recorded.  A process that gets it in time can
 * pose as either side.
 *
 * What follows are chunks of libsodium's secretstream (XChaCha20-Poly1305): its header
 * once, then a u32 with the length of each, which is never empty. */
#ifndef BERTH_COMMON_KEY_H
#define BERTH_COMMON_KEY_H

#include <sodium/crypto_secretstream_xchacha20poly1305.h>

#include "common/buf.h"

enum {
	KEY_BYTES = 32,
	KEY_CALL_MAC_BYTES = 32, /* the last of a call: no two calls have the same */
	KEY_CALL_BYTES = 8 + 32 + KEY_CALL_MAC_BYTES,
	KEY_ANSWER_BYTES = 32 + 32,
	KEY_CHUNK_BYTES = 65536 /* of data in one chunk, at most */
};

/* One side of a stream. */
struct key_side {
	unsigned char key[KEY_BYTES], call[KEY_CALL_BYTES], own[32];
	crypto_secretstream_xchacha20poly1305_state in, out;
	unsigned char in_secret[32];
	unsigned char header[crypto_secretstream_xchacha20poly1305_HEADERBYTES];
	bool header_sent, header_read;
};

/* 0, or -1: libsodium cannot be initialised.  Before all others. */
int key_init(void);
void key_random(unsigned char key[KEY_BYTES]);

/* The side that connects: make CALL; take the ANSWER, which may be forged. */
void key_call(struct key_side *s, const unsigned char *key,
	      unsigned char call[KEY_CALL_BYTES]);
bool key_answered(struct key_side *s, const unsigned char answer[KEY_ANSWER_BYTES]);

/* The other side: take CALL, make ANSWER.  False: it is forged. */
bool key_answer(struct key_side *s, const unsigned char *key,
		const unsigned char call[KEY_CALL_BYTES],
		unsigned char answer[KEY_ANSWER_BYTES]);

/* Append the N bytes at DATA to OUT, sealed. */
void key_seal(struct key_side *s, struct buf *out, const void *data, size_t n);
/* Move what has arrived whole from IN to PLAIN, opened.  -1: it was changed on the
 * way, or is none of the other side. */
int key_open(struct key_side *s, struct buf *in, struct buf *plain);

/* Forget all secrets. */
void key_forget(struct key_side *s);

#endif
