/* lib/boot/boot_pmix and munge: how the job's key comes to all ranks, by a PMIx server
 * and a MUNGE that are in this program. */
#include "ranks.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/clock.h"
#include "lib/base/wait.h"
#include "lib/boot/boot.h"
#include "lib/boot/pmix_calls.h"

enum { RANKS = 3, ENTRIES = 64, LIMIT_S = 50, PATIENCE_MS = 30000 };

static unsigned me;

/* ---- the PMIx server ---- */

struct entry {
	_Atomic unsigned full;
	unsigned rank;
	char key[64], bytes[RANKS * BOOT_TEXT_BYTES];
	size_t size;
};

static struct server {
	struct entry entry[ENTRIES];
	_Atomic unsigned entries;
	struct post fence[RANKS]; /* how many each has come to */
	unsigned char key[RANKS][BOOT_KEY_BYTES];
} * server;

int PMIx_Init(struct px_proc *who, struct px_info *info, size_t n)
{
	(void)info;
	(void)n;
	who->rank = me;
	return PX_SUCCESS;
}

int PMIx_Finalize(const struct px_info *info, size_t n)
{
	(void)info;
	(void)n;
	return PX_SUCCESS;
}

int PMIx_Put(uint8_t scope, const char *key, struct px_value *v)
{
	struct entry *e = &server->entry[atomic_fetch_add(&server->entries, 1)];

	(void)scope;
	e->rank = me;
	e->size = v->data.bytes.size;
	if (e->size > sizeof e->bytes)
		return PX_ERROR;
	snprintf(e->key, sizeof e->key, "%s", key);
	memcpy(e->bytes, v->data.bytes.bytes, e->size);
	e->full = 1;
	return PX_SUCCESS;
}

int PMIx_Commit(void)
{
	return PX_SUCCESS;
}

int PMIx_Fence_nb(const struct px_proc *who, size_t n, const struct px_info *info,
		  size_t ninfo, px_op_done *done, void *ctx)
{
	static uint32_t fences;
	struct wait w = { .yields = 20, .deadline_ns = clock_until(PATIENCE_MS) };

	(void)who;
	(void)n;
	(void)info;
	(void)ninfo;
	post(&server->fence[me], ++fences);
	for (unsigned r = 0; r < RANKS; r++)
		if (wait_for(&w, &server->fence[r], fences))
			return PX_ERROR;
	done(PX_SUCCESS, ctx);
	return PX_SUCCESS;
}

int PMIx_Get_nb(const struct px_proc *who, const char *key, const struct px_info *info,
		size_t n, px_value_done *done, void *ctx)
{
	struct px_value v = { .type = PX_UINT32, .data.uint32 = RANKS };

	(void)info;
	(void)n;
	if (who->rank == PX_RANK_ALL) {
		done(PX_SUCCESS, &v, ctx);
		return PX_SUCCESS;
	}
	for (unsigned i = 0; i < server->entries; i++) {
		struct entry *e = &server->entry[i];

		if (!e->full || e->rank != who->rank || strcmp(e->key, key))
			continue;
		v.type = PX_BYTES;
		v.data.bytes.bytes = e->bytes;
		v.data.bytes.size = e->size;
		done(PX_SUCCESS, &v, ctx);
		return PX_SUCCESS;
	}
	return PX_NOT_FOUND;
}

const char *PMIx_Error_string(int status)
{
	return status == PX_NOT_FOUND ? "not found" : "an error";
}

/* ---- MUNGE ---- */

enum { SUCCESS = 0, SOCKET = 6, EXPIRED = 15, REWOUND = 16, REPLAYED = 17 };

static const struct turn {
	unsigned installed, runs; /* one bit a rank */
	int opened;               /* what opening comes to on rank 2 */
	bool of_another_user, other_label;
	berth_result result; /* there */
	const char *says;    /* there */
	bool in_clear;
} turns[] = {
	{ 7, 7, SUCCESS, false, false, BERTH_OK, "", false },
	{ 7, 7, REPLAYED, false, false, BERTH_OK, "", false },
	{ 0, 0, SUCCESS, false, false, BERTH_OK, "", true },
	{ 3, 3, SUCCESS, false, false, BERTH_OK, "", true },
	{ 6, 6, SUCCESS, false, false, BERTH_OK, "", true },
	{ 7, 3, SUCCESS, false, false, BERTH_OK, "", true },
	{ 7, 6, SUCCESS, false, false, BERTH_OK, "", true },
	{ 7, 7, EXPIRED, false, false, BERTH_NO_PEERS, "Expired credential", false },
	{ 7, 7, REWOUND, false, false, BERTH_NO_PEERS, "Rewound credential", false },
	{ 7, 7, SUCCESS, true, false, BERTH_NO_PEERS, "user 4242 made", false },
	{ 7, 7, SUCCESS, false, true, BERTH_NO_PEERS, "does not hold a key", false },
};
static const struct turn *turn;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
	if (name && !strcmp(name, "libmunge.so.2"))
		return turn->installed >> me & 1 ? __real_dlopen(NULL, flags) : NULL;
	return name && strstr(name, "libpmix") ? NULL : __real_dlopen(name, flags);
}

static struct context {
	uid_t reader;
} context;

struct context *munge_ctx_create(void)
{
	context.reader = 0;
	return &context;
}

void munge_ctx_destroy(struct context *c)
{
	ck_assert_ptr_eq(c, &context);
}

int munge_ctx_set(struct context *c, int what, ...)
{
	va_list ap;

	va_start(ap, what);
	if (what == 9) /* MUNGE_OPT_UID_RESTRICTION */
		c->reader = va_arg(ap, uid_t);
	va_end(ap);
	return SUCCESS;
}

/* Not to be read by who looks for the key. */
int munge_encode(char **credential, struct context *c, const void *data, int n)
{
	const unsigned char *at = data;
	const size_t room = 16 + 2 * (size_t)n;
	char *to = *credential = calloc(1, room);
	int used;

	if (!(turn->runs >> me & 1)) {
		free(to);
		*credential = NULL;
		return SOCKET;
	}
	if (c->reader != geteuid())
		_exit(5);
	used = snprintf(to, room, "MUNGE:");
	for (int i = 0; i < n; i++)
		used += snprintf(to + used, 3, "%02x", at[i] ^ 0x5a);
	to[used] = ':';
	return SUCCESS;
}

int munge_decode(const char *credential, struct context *c, void **data, int *n,
		 uid_t *uid, gid_t *gid)
{
	unsigned char *to = calloc(1, strlen(credential));

	(void)c;
	(void)gid;
	*n = 0;
	for (const char *at = credential + 6; *at != ':'; at += 2) {
		unsigned byte;

		if (sscanf(at, "%2x", &byte) != 1)
			_exit(6);
		to[(*n)++] = (unsigned char)(byte ^ 0x5a);
	}
	*data = to;
	*uid = turn->of_another_user && me == 2 ? 4242 : geteuid();
	if (turn->other_label && me == 2)
		to[0] ^= 1;
	return me == 2 ? turn->opened : SUCCESS;
}

const char *munge_strerror(int error)
{
	return error == EXPIRED   ? "Expired credential"
	       : error == REWOUND ? "Rewound credential"
				  : "no munged";
}

/* ---- the key ---- */

/* What an observer of the server's network has seen. */
static bool is_published(const unsigned char *key)
{
	char text[2 * BOOT_KEY_BYTES + 1];

	for (size_t i = 0; i < BOOT_KEY_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", key[i]);
	for (unsigned i = 0; i < server->entries; i++)
		if (memmem(server->entry[i].bytes, server->entry[i].size, text,
			   sizeof text - 1) ||
		    memmem(server->entry[i].bytes, server->entry[i].size, key,
			   BOOT_KEY_BYTES))
			return true;
	return false;
}

/* Rank 1 is on one host, the others on another. */
static void begin(const struct ranks *r)
{
	me = r->me;
	server = r->region;
	setenv("PMIX_RANK", "0", 1);
	setenv("PMIX_NAMESPACE", "test", 1);
	setenv("PMIX_HOSTNAME", me == 1 ? "b" : "a", 1);
}

static void join(struct ranks *r)
{
	static const unsigned char none[BOOT_KEY_BYTES];
	char why[BOOT_WHY_BYTES] = "";
	struct boot_world w = { 0 };
	berth_result rc;
	void *state;

	begin(r);
	rc = boot_pmix.join(&state, &w, NULL, why);
	if (me == 2 && turn->result) {
		RANKS_ASSERT(r, rc == turn->result && strstr(why, turn->says), "%d: %s",
			     (int)rc, why);
		return;
	}
	RANKS_ASSERT(r, !rc, "%d: %s", (int)rc, why);
	RANKS_ASSERT(r, w.hosts == 2 && w.size == RANKS, "%u hosts", w.hosts);
	RANKS_ASSERT(r, memcmp(w.key, none, sizeof none), "no key");
	RANKS_ASSERT(r, is_published(w.key) == turn->in_clear, "the key %s published",
		     turn->in_clear ? "was not" : "was");
	RANKS_ASSERT(r, w.key_in_clear == turn->in_clear, "it says otherwise");
	memcpy(server->key[me], w.key, sizeof w.key);
	if (!turn->result) {
		boot_pmix.leave(state); /* a fence: all are there */
		for (unsigned k = 0; k < RANKS; k++)
			RANKS_ASSERT(r, !memcmp(server->key[k], w.key, sizeof w.key),
				     "rank %u has another key", k);
	}
	boot_world_free(&w);
}

START_TEST(the_key)
{
	turn = &turns[_i];
	ranks_run(RANKS, sizeof(struct server), 0, join, LIMIT_S);
}
END_TEST

/* ---- what the user is told ---- */

static unsigned lines;

static void hear(void *ctx, enum berth_log_level level, const char *text)
{
	(void)ctx;
	lines += level <= BERTH_LOG_WARNING && strstr(text, "PMIx server's network") &&
		 strstr(text, "BERTH_NET_SECURE=aead");
}

static const struct {
	unsigned turn, lines;
	const char *secure;
} told[] = { { 0, 0, "aead" }, { 2, 1, "aead" }, { 5, 1, "aead" }, { 2, 0, "mac" } };
static const char *secure;
static unsigned want;

static void tell(struct ranks *r)
{
	const struct berth_config c = { .size = sizeof c, .log = hear };

	begin(r);
	setenv("BERTH_NET_SECURE", secure, 1);
	RANKS_ASSERT(r, !berth_init(&c), "%s", berth_last_error()->text);
	RANKS_ASSERT(r, lines == (me ? 0 : want), "%u lines", lines);
	RANKS_ASSERT(r, !berth_shutdown(), "%s", berth_last_error()->text);
}

START_TEST(the_user)
{
	turn = &turns[told[_i].turn];
	secure = told[_i].secure;
	want = told[_i].lines;
	ranks_run(RANKS, sizeof(struct server), 0, tell, LIMIT_S);
}
END_TEST

int main(void)
{
	static const char *const launchers[] = { "BERTH_AGENT", "BERTH_RANK",
						 "BERTH_SIZE" };
	Suite *s = suite_create("lib_boot_pmix");
	TCase *t = tcase_create("boot_pmix");
	SRunner *r = srunner_create(s);
	int failed;

	for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
		unsetenv(launchers[i]);
	tcase_add_loop_test(t, the_key, 0, sizeof turns / sizeof *turns);
	tcase_add_loop_test(t, the_user, 0, sizeof told / sizeof *told);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
