#include "lib/boot/munge.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* The stable part of libmunge.so.2: munge(3), munge_ctx(3), munge_enum(3). */
enum {
	OPT_UID_RESTRICTION = 9,
	SUCCESS = 0,
	REPLAYED =
		17 /* another rank of this host has opened it; its contents are given */
};
struct ctx;

static struct {
	void *library;
	struct ctx *(*ctx_create)(void);
	void (*ctx_destroy)(struct ctx *c);
	int (*ctx_set)(struct ctx *c, int what, ...);
	int (*encode)(char **credential, struct ctx *c, const void *data, int n);
	int (*decode)(const char *credential, struct ctx *c, void **data, int *n,
		      uid_t *uid, gid_t *gid);
	const char *(*strerror)(int error);
} lib;

/* The contents of a credential.  No other program makes the same, nor does runner. */
struct sealed {
	char label[16];
	unsigned char key[BOOT_KEY_BYTES];
};
static const char label[16] = "berth, job's key";

static bool munge_load(void)
{
	const struct {
		const char *name;
		void *at;
	} functions[] = {
		{ "munge_ctx_create", &lib.ctx_create },
		{ "munge_ctx_destroy", &lib.ctx_destroy },
		{ "munge_ctx_set", &lib.ctx_set },
		{ "munge_encode", &lib.encode },
		{ "munge_decode", &lib.decode },
		{ "munge_strerror", &lib.strerror },
	};

	if (!lib.library)
		lib.library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; lib.library && i < sizeof functions / sizeof *functions;
	     i++) {
		void *f = dlsym(lib.library, functions[i].name);

		if (!f)
			return false;
		memcpy(functions[i].at, &f, sizeof f);
	}
	return lib.library;
}

bool munge_seal(const unsigned char *key, char text[MUNGE_TEXT_BYTES])
{
	struct sealed s;
	struct ctx *c = munge_load() ? lib.ctx_create() : NULL;
	char *credential = NULL;
	bool made;

	if (!c)
		return false;
	memcpy(s.label, label, sizeof s.label);
	memcpy(s.key, key, sizeof s.key);
	made = lib.ctx_set(c, OPT_UID_RESTRICTION, geteuid()) == SUCCESS &&
	       lib.encode(&credential, c, &s, sizeof s) == SUCCESS &&
	       (size_t)snprintf(text, MUNGE_TEXT_BYTES, "%s", credential) <
		       MUNGE_TEXT_BYTES;
	lib.ctx_destroy(c);
	explicit_bzero(&s, sizeof s);
	free(credential);
	return made;
}

bool munge_open(const char *text, unsigned char *key, char *why)
{
	struct sealed *s = NULL;
	uid_t uid = (uid_t)-1;
	int error, n = 0;
	bool good = false;
	gid_t gid;

	if (!munge_load()) {
		snprintf(why, BOOT_WHY_BYTES, "libmunge.so.2 is not installed");
		return false;
	}
	error = lib.decode(text, NULL, (void **)&s, &n, &uid, &gid);
	if (error != SUCCESS && error != REPLAYED) {
		snprintf(why, BOOT_WHY_BYTES, "MUNGE: %s", lib.strerror(error));
	} else if (uid != geteuid()) {
		snprintf(why, BOOT_WHY_BYTES, "user %u made the credential",
			 (unsigned)uid);
	} else if (!s || n != (int)sizeof *s ||
		   memcmp(s->label, label, sizeof s->label)) {
		snprintf(why, BOOT_WHY_BYTES, "the credential does not hold a key");
	} else {
		memcpy(key, s->key, sizeof s->key);
		good = true;
	}
	if (s)
		explicit_bzero(s, n > 0 ? (size_t)n : 0);
	free(s);
	return good;
}
