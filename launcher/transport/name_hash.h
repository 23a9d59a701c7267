/* name_hash.h - hashed names of known_hosts, "|1|SALT|HASH".
 *
 * HASH is the HMAC-SHA1 of a name in lower case, with SALT for the key; both are 20
 * bytes in base64 (HashKnownHosts).  It hides names and proves nothing, so the age of
 * SHA-1 does no harm.  Source: RFC 2104, FIPS 180-4. */
#ifndef BERTH_LAUNCHER_TRANSPORT_NAME_HASH_H
#define BERTH_LAUNCHER_TRANSPORT_NAME_HASH_H

#include "common/str.h"

struct name_hash {
	unsigned char salt[20], sum[20];
};

/* Read HASHED; false if it is damaged. */
bool name_hash_read(struct name_hash *h, const char *hashed);

/* Whether H is the hash of NAME (four blocks of SHA-1). */
bool name_hash_match(const struct name_hash *h, const char *name);

/* A hash of NAME with a random salt.  The caller frees it. */
char *name_hash_new(const char *name);

#endif
