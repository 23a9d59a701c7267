#include "common/munge.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

/* The stable part of libmunge.so.2: munge(3), munge_ctx(3), munge_enum(3). */
enum {
	OPT_TTL = 4,
	OPT_UID_RESTRICTION = 9,
	TTL_MAXIMUM = -1,
	SUCCESS = 0,
	/* what was wrapped is given all the same */
	EXPIRED = 15,
	REWOUND = 16,
	REPLAYED = 17
};
struct ctx;

static struct {
	void *library;
	struct ctx *(*create)(void);
	void (*destroy)(struct ctx *c);
	int (*set)(struct ctx *c, int what, ...);
	int (*encode)(char **credential, struct ctx *c, const void *data, int n);
	int (*decode)(const char *credential, struct ctx *c, void **data, int *n,
		      uid_t *uid, gid_t *gid);
	const char *(*text)(int error);
} lib;

static bool load(struct str *why)
{
	const struct {
		const char *name;
		void *at;
	} functions[] = {
		{ "munge_ctx_create", &lib.create },
		{ "munge_ctx_destroy", &lib.destroy },
		{ "munge_ctx_set", &lib.set },
		{ "munge_encode", &lib.encode },
		{ "munge_decode", &lib.decode },
		{ "munge_strerror", &lib.text },
	};

	if (!lib.library)
		lib.library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!lib.library) {
		str_add(why, "libmunge.so.2 is not installed");
		return false;
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *f = dlsym(lib.library, functions[i].name);

		if (!f) {
			str_addf(why, "libmunge.so.2 has no %s", functions[i].name);
			return false;
		}
		memcpy(functions[i].at, &f, sizeof f);
	}
	return true;
}

char *munge_wrap(const void *data, size_t n, struct str *why)
{
	char *credential = NULL;
	struct ctx *c;
	int error;

	if (!load(why))
		return NULL;
	c = lib.create();
	if (!c) {
		str_add(why, "out of memory");
		return NULL;
	}
	lib.set(c, OPT_UID_RESTRICTION, geteuid());
	lib.set(c, OPT_TTL, TTL_MAXIMUM);
	error = lib.encode(&credential, c, data, (int)n);
	lib.destroy(c);
	if (error == SUCCESS && strlen(credential) < MUNGE_CREDENTIAL_MAX)
		return credential;
	str_addf(why, "MUNGE: %s", error ? lib.text(error) : "a long credential");
	free(credential);
	return NULL;
}

int munge_unwrap(const char *credential, void *data, size_t n, struct str *why)
{
	void *got = NULL;
	int error, ngot = 0, rc = -1;
	uid_t uid = (uid_t)-1;
	gid_t gid;

	if (!load(why))
		return -1;
	error = lib.decode(credential, NULL, &got, &ngot, &uid, &gid);
	if (error != SUCCESS && error != EXPIRED && error != REWOUND &&
	    error != REPLAYED) {
		str_addf(why, "MUNGE: %s", lib.text(error));
	} else if (uid != geteuid()) {
		str_addf(why, "user %u made the credential", (unsigned)uid);
	} else if (!got || (size_t)ngot != n) {
		str_add(why, "the credential does not hold a key");
	} else {
		memcpy(data, got, n);
		rc = 0;
	}
	if (got)
		explicit_bzero(got, ngot > 0 ? (size_t)ngot : 0);
	free(got);
	return rc;
}
