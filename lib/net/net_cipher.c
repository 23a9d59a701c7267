#include "lib/net/net_cipher.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum {
	NONCE_BYTES = 12,
	LARGE_BYTES = 512,
	/* of libcrypto's EVP_CIPHER_CTX_ctrl() */
	GET_TAG = 0x10,
	SET_TAG = 0x11
};

_Static_assert(crypto_aead_aes256gcm_ABYTES == NET_CIPHER_TAG_BYTES, "of a record");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == NET_CIPHER_TAG_BYTES,
	       "of a record");
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == NONCE_BYTES, "a number and zeros");
_Static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == NONCE_BYTES, "the same");

static void cipher_nonce(unsigned char to[NONCE_BYTES], uint64_t number)
{
	memset(to, 0, NONCE_BYTES);
	memcpy(to, &number, sizeof number);
}

/* ---- libcrypto ---- */

/* The functions that are used.  They are the same in OpenSSL 1.1 and 3. */
static struct {
	void *(*EVP_CIPHER_CTX_new)(void);
	void (*EVP_CIPHER_CTX_free)(void *ctx);
	int (*EVP_CIPHER_CTX_ctrl)(void *ctx, int what, int n, void *to);
	const void *(*EVP_aes_256_gcm)(void);
	int (*EVP_CipherInit_ex)(void *ctx, const void *cipher, void *engine,
				 const unsigned char *key, const unsigned char *nonce,
				 int seals);
	int (*EVP_CipherUpdate)(void *ctx, unsigned char *to, int *n,
				const unsigned char *from, int bytes);
	int (*EVP_CipherFinal_ex)(void *ctx, unsigned char *to, int *n);
} evp;

static bool is_loaded;

static void cipher_load(void)
{
	void *lib = dlopen("libcrypto.so.3", RTLD_LAZY | RTLD_LOCAL);

	if (!lib)
		lib = dlopen("libcrypto.so.1.1", RTLD_LAZY | RTLD_LOCAL);
	is_loaded = lib != NULL;
#define FIND(name)                                                                     \
	is_loaded = is_loaded && (*(void **)&evp.name = dlsym(lib, #name)) != NULL
	FIND(EVP_CIPHER_CTX_new);
	FIND(EVP_CIPHER_CTX_free);
	FIND(EVP_CIPHER_CTX_ctrl);
	FIND(EVP_aes_256_gcm);
	FIND(EVP_CipherInit_ex);
	FIND(EVP_CipherUpdate);
	FIND(EVP_CipherFinal_ex);
#undef FIND
}

static void *make_large(const unsigned char *key, bool seals)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	void *ctx;

	pthread_once(&once, cipher_load);
	ctx = is_loaded ? evp.EVP_CIPHER_CTX_new() : NULL;
	if (ctx && evp.EVP_CipherInit_ex(ctx, evp.EVP_aes_256_gcm(), NULL, key, NULL,
					 seals) != 1) {
		evp.EVP_CIPHER_CTX_free(ctx);
		ctx = NULL;
	}
	return ctx;
}

static bool crypt_large(void *ctx, const unsigned char *at, unsigned char *to,
			const unsigned char *from, size_t bytes)
{
	int n = 0;

	return evp.EVP_CipherInit_ex(ctx, NULL, NULL, NULL, at, -1) == 1 &&
	       evp.EVP_CipherUpdate(ctx, to, &n, from, (int)bytes) == 1 &&
	       n == (int)bytes;
}

/* ---- one direction ---- */

void net_cipher_begin(struct net_cipher *c,
		      const unsigned char key[NET_CIPHER_KEY_BYTES], bool aes,
		      bool seals)
{
	c->aes = aes;
	c->large = NULL;
	memcpy(c->key, key, sizeof c->key);
	if (!aes)
		return;
	crypto_aead_aes256gcm_beforenm(&c->aes_key, key);
	c->large = make_large(key, seals);
}

void net_cipher_end(struct net_cipher *c)
{
	if (c->large)
		evp.EVP_CIPHER_CTX_free(c->large); /* which clears its keys */
	sodium_memzero(c, sizeof *c);
}

bool net_cipher_seal(const struct net_cipher *c, uint64_t number, unsigned char *to,
		     const unsigned char *text, size_t bytes)
{
	unsigned char at[NONCE_BYTES];
	int n;

	cipher_nonce(at, number);
	if (!c->aes) {
		crypto_aead_chacha20poly1305_ietf_encrypt(to, NULL, text, bytes, NULL,
							  0, NULL, at, c->key);
		return true;
	}
	if (c->large && bytes >= LARGE_BYTES)
		return crypt_large(c->large, at, to, text, bytes) &&
		       evp.EVP_CipherFinal_ex(c->large, to + bytes, &n) == 1 &&
		       evp.EVP_CIPHER_CTX_ctrl(c->large, GET_TAG, NET_CIPHER_TAG_BYTES,
					       to + bytes) == 1;
	crypto_aead_aes256gcm_encrypt_afternm(to, NULL, text, bytes, NULL, 0, NULL, at,
					      &c->aes_key);
	return true;
}

bool net_cipher_open(const struct net_cipher *c, uint64_t number, unsigned char *text,
		     const unsigned char *from, size_t bytes)
{
	unsigned char at[NONCE_BYTES], tag[NET_CIPHER_TAG_BYTES];
	int n;

	cipher_nonce(at, number);
	if (!c->aes)
		return !crypto_aead_chacha20poly1305_ietf_decrypt(
			text, NULL, NULL, from, bytes + NET_CIPHER_TAG_BYTES, NULL, 0,
			at, c->key);
	if (c->large && bytes >= LARGE_BYTES) {
		memcpy(tag, from + bytes, sizeof tag);
		return crypt_large(c->large, at, text, from, bytes) &&
		       evp.EVP_CIPHER_CTX_ctrl(c->large, SET_TAG, sizeof tag, tag) ==
			       1 &&
		       evp.EVP_CipherFinal_ex(c->large, text + bytes, &n) == 1;
	}
	return !crypto_aead_aes256gcm_decrypt_afternm(text, NULL, NULL, from,
						      bytes + NET_CIPHER_TAG_BYTES,
						      NULL, 0, at, &c->aes_key);
}
