#include "common/munge.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* The stable part of libmunge.so.2: munge(3), munge_ctx(3), munge_enum(3). */
enum {
	OPT_TTL = 4,
	OPT_ENCODE_TIME = 6,
	OPT_DECODE_TIME = 7,
	OPT_SOCKET = 8,
	OPT_UID_RESTRICTION = 9,
	TTL_MAXIMUM = -1,
	SUCCESS = 0,
	/* For these results munge gives the data all the same.  The first two depend on
	 * what munged allows, not on what we do. */
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
	int (*get)(struct ctx *c, int what, ...);
	int (*encode)(char **credential, struct ctx *c, const void *data, int n);
	int (*decode)(const char *credential, struct ctx *c, void **data, int *n,
		      uid_t *uid, gid_t *gid);
	const char *(*text)(struct ctx *c);
} lib;

static bool munge_load(struct str *why)
{
	const struct {
		const char *name;
		void *at;
	} functions[] = {
		{ "munge_ctx_create", &lib.create },
		{ "munge_ctx_destroy", &lib.destroy },
		{ "munge_ctx_set", &lib.set },
		{ "munge_ctx_get", &lib.get },
		{ "munge_encode", &lib.encode },
		{ "munge_decode", &lib.decode },
		{ "munge_ctx_strerror", &lib.text },
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

static struct ctx *open_ctx(const char *socket, struct str *why)
{
	struct ctx *c = munge_load(why) ? lib.create() : NULL;

	if (!c && !why->len)
		str_add(why, "out of memory");
	if (c && socket)
		lib.set(c, OPT_SOCKET, socket);
	return c;
}

static void say_failure(struct str *why, struct ctx *c)
{
	const char *text = lib.text(c);

	str_addf(why, "MUNGE: %s", text ? text : "it does not say why");
}

char *munge_wrap(const char *socket, const void *data, size_t n, struct str *why)
{
	char *credential = NULL;
	struct ctx *c = open_ctx(socket, why);

	if (!c)
		return NULL;
	lib.set(c, OPT_UID_RESTRICTION, geteuid());
	lib.set(c, OPT_TTL, TTL_MAXIMUM);
	if (lib.encode(&credential, c, data, (int)n) != SUCCESS) {
		say_failure(why, c);
		free(credential);
		credential = NULL;
	} else if (strlen(credential) >= MUNGE_CREDENTIAL_MAX) {
		str_add(why, "MUNGE: a long credential");
		free(credential);
		credential = NULL;
	}
	lib.destroy(c);
	return credential;
}

/* Whether the credential that C has opened is of this hour, by the clocks of the two
 * hosts. */
static bool is_of_now(struct ctx *c, struct str *why)
{
	time_t made = 0, now = 0;
	long long age;

	if (lib.get(c, OPT_ENCODE_TIME, &made) != SUCCESS ||
	    lib.get(c, OPT_DECODE_TIME, &now) != SUCCESS) {
		say_failure(why, c);
		return false;
	}
	age = (long long)now - (long long)made;
	if (age > MUNGE_AGE_MAX_S + MUNGE_SKEW_MAX_S)
		str_addf(why, "the credential is %lld s old", age);
	else if (age < -MUNGE_SKEW_MAX_S)
		str_addf(why, "the clock here is %lld s behind", -age);
	else
		return true;
	return false;
}

int munge_unwrap(const char *socket, const char *credential, struct buf *out,
		 struct str *why)
{
	struct ctx *c = open_ctx(socket, why);
	void *got = NULL;
	int error, n = 0, rc = -1;
	uid_t uid = (uid_t)-1;
	gid_t gid;

	if (!c)
		return -1;
	error = lib.decode(credential, c, &got, &n, &uid, &gid);
	if (error != SUCCESS && error != EXPIRED && error != REWOUND &&
	    error != REPLAYED) {
		say_failure(why, c);
	} else if (uid != geteuid()) {
		str_addf(why, "user %u made the credential", (unsigned)uid);
	} else if (is_of_now(c, why)) {
		if (got && n > 0)
			buf_add(out, got, (size_t)n);
		rc = 0;
	}
	lib.destroy(c);
	if (got)
		explicit_bzero(got, n > 0 ? (size_t)n : 0);
	free(got);
	return rc;
}
