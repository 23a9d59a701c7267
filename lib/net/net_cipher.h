/* net_cipher.h - the records of one direction, encrypted and authenticated (net_box.h):
 * AES-256-GCM (NIST SP 800-38D), or ChaCha20-Poly1305 (RFC 8439).  The number of a
 * record is its nonce.
 *
 * libsodium does both.  libcrypto, which is loaded if this host has it, does
 * AES-256-GCM of large records: 32 KiB take OpenSSL 3.5 3 us, OpenSSL 3.0 9 us (it does
 * not use the wide AES instructions), libsodium 1.0.18 30 us; 64 bytes take libsodium
 * 0.14 us, libcrypto 0.19.  The bytes are the same. */
#ifndef BERTH_LIB_NET_CIPHER_H
#define BERTH_LIB_NET_CIPHER_H

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_CIPHER_KEY_BYTES = 32, NET_CIPHER_TAG_BYTES = 16 };

/* It lies at a multiple of 16. */
struct net_cipher {
	crypto_aead_aes256gcm_state aes_key;
	bool aes;
	void *large; /* libcrypto's EVP_CIPHER_CTX; NULL: libsodium does all */
	unsigned char key[NET_CIPHER_KEY_BYTES];
};

/* SEALS: it is for net_cipher_seal(), else for net_cipher_open(). */
void net_cipher_begin(struct net_cipher *c,
		      const unsigned char key[NET_CIPHER_KEY_BYTES], bool aes,
		      bool seals);
void net_cipher_end(struct net_cipher *c);

/* Seal BYTES of TEXT as record NUMBER, which no other record has, to TO.  TO has room
 * for a tag more, and may be TEXT.  FALSE: libcrypto failed, and nothing of the record
 * may be sent. */
bool net_cipher_seal(const struct net_cipher *c, uint64_t number, unsigned char *to,
		     const unsigned char *text, size_t bytes);
/* Open record NUMBER, which is BYTES and a tag at FROM, to TEXT.  FALSE: they are not
 * this record, and TEXT may have been written to. */
bool net_cipher_open(const struct net_cipher *c, uint64_t number, unsigned char *text,
		     const unsigned char *from, size_t bytes);

#endif
