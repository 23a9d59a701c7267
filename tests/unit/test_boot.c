/* lib/boot: which way is taken, the way alone, and an agent that says what no agent
 * says. tests/cluster/init_round.bats has the real one. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/boot/boot.h"

/* ---- which way ---- */

static const char *const names[] = { "BERTH_AGENT",
				     "BERTH_RANK",
				     "BERTH_SIZE",
				     "OMPI_COMM_WORLD_SIZE",
				     "PMI_SIZE",
				     "SLURM_STEP_NUM_TASKS",
				     "WORLD_SIZE",
				     "PMIX_NAMESPACE",
				     "PMIX_RANK",
				     "HYDI_CONTROL_FD",
				     "TORCHELASTIC_RUN_ID",
				     "BERTH_VERSION" };

static const struct {
	const char *name, *value;
	const char *says[3]; /* none: alone */
} ways[] = {
	{ NULL, NULL, { NULL } },
	{ "BERTH_SIZE", "1", { NULL } },
	{ "WORLD_SIZE", "", { NULL } },
	{ "WORLD_SIZE", "many", { NULL } },
	{ "BERTH_SIZE", "2", { "BERTH_SIZE=2", "runner", "BERTH_AGENT" } },
	{ "OMPI_COMM_WORLD_SIZE", "16", { "16 processes", "mpirun", "runner" } },
	{ "PMI_SIZE", "4", { "PMI_SIZE=4", "mpiexec", "--mpi=pmix" } },
	{ "SLURM_STEP_NUM_TASKS", "3", { "3 processes", "srun", "`srun --mpi=pmix`" } },
	{ "WORLD_SIZE", "8", { "WORLD_SIZE=8", "a script", "runner" } },
	{ "BERTH_AGENT", "@berth-nobody", { NULL } },
};

static void clear_environment(void)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unsetenv(names[i]);
}

START_TEST(way)
{
	char why[BOOT_WHY_BYTES] = "";
	const struct boot *b;

	clear_environment();
	if (ways[_i].name)
		setenv(ways[_i].name, ways[_i].value, 1);
	b = boot_choose(why);
	ck_assert_msg(b == (*ways[_i].says ? NULL : &boot_alone), "%s", why);
	for (int i = 0; i < 3 && ways[_i].says[i]; i++)
		ck_assert_msg(strstr(why, ways[_i].says[i]) != NULL,
			      "'%s' is not in: %s", ways[_i].says[i], why);
}
END_TEST

START_TEST(a_task_of_srun_berth)
{
	char why[BOOT_WHY_BYTES] = "";

	clear_environment();
	setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
	setenv("SLURM_STEP_NUM_TASKS", "4", 1);
	ck_assert_ptr_null(boot_choose(why));
	ck_assert_ptr_nonnull(strstr(why, "mpirun")); /* srun may have started that */
	setenv("BERTH_VERSION", "0", 1);
	ck_assert_ptr_null(boot_choose(why));
	ck_assert_ptr_nonnull(strstr(why, "srun started 4 processes"));
}
END_TEST

static size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

START_TEST(alone)
{
	char why[BOOT_WHY_BYTES] = "", **all;
	const size_t before = count_descriptors();
	struct boot_world w;
	unsigned char key[BOOT_KEY_BYTES] = { 0 };
	void *state;

	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(boot_alone.join(&state, &w, NULL, why), BERTH_OK);
		ck_assert_uint_eq(w.size, 1);
		ck_assert_uint_eq(w.hosts, 1);
		ck_assert_uint_eq(w.host[0], 0);
		ck_assert_str_ne(w.host_name[0], "");
		ck_assert_mem_ne(w.key, key, sizeof key);
		memcpy(key, w.key, sizeof key);
		ck_assert_int_eq(boot_alone.memory(state, &w, 1 << 20, why), BERTH_OK);
		ck_assert_int_eq(ftruncate(w.memory, 0), -1);
		ck_assert_int_eq(fcntl(w.memory, F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(boot_alone.fence(state, &w, "me", NULL, &all, why),
				 BERTH_OK);
		ck_assert_str_eq(all[0], "me");
		free(all);
		boot_alone.leave(state);
		boot_world_free(&w);
	}
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

/* ---- an agent ---- */

/* What it says to one question. */
struct answer {
	uint32_t number;
	const void *payload;
	size_t n;
	uint32_t says_bytes; /* in place of N, if not 0 */
	int fd;              /* that it sends with it, plus 1 */
};

static struct answer script[4];
static size_t nscript;
static int listener;

static size_t question_bytes(int fd)
{
	struct boot_head h;
	char rest[BOOT_TEXT_BYTES];

	if (read(fd, &h, sizeof h) != sizeof h || h.bytes > sizeof rest)
		return 0;
	return h.bytes && read(fd, rest, h.bytes) != (ssize_t)h.bytes ? 0 : sizeof h;
}

static void say(int fd, const struct answer *a)
{
	const struct boot_head h = { a->says_bytes ? a->says_bytes : (uint32_t)a->n,
				     a->number };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec part = { (void *)&h, sizeof h };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
	const int sent = a->fd - 1;

	memcpy(CMSG_DATA(&control.head), &sent, sizeof sent);
	if (a->fd) {
		m.msg_control = &control;
		m.msg_controllen = sizeof control;
	}
	sendmsg(fd, &m, MSG_NOSIGNAL);
	send(fd, a->payload, a->n, MSG_NOSIGNAL);
}

static void *serve(void *arg)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	(void)arg;
	for (size_t i = 0; i < nscript && question_bytes(fd); i++)
		if (script[i].number)
			say(fd, &script[i]);
	close(fd);
	return NULL;
}

static pthread_t start_agent(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char name[64];
	pthread_t thread;
	int n = snprintf(name, sizeof name, "@berth-test-%d", (int)getpid());

	memcpy(a.sun_path + 1, name + 1, (size_t)n - 1);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(
		bind(listener, (const struct sockaddr *)&a,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n)),
		0);
	ck_assert_int_eq(listen(listener, 1), 0);
	setenv("BERTH_AGENT", name, 1);
	setenv("BERTH_RANK", "1", 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, NULL), 0);
	return thread;
}

/* ---- what it says of the world ---- */

struct world {
	struct boot_who who;
	uint32_t host[2];
	char text[8];
};

#define WHO(...)                                                                       \
	{                                                                              \
		7, 1, __VA_ARGS__,                                                     \
		{                                                                      \
			1, 2, 3                                                        \
		}                                                                      \
	}
#define GOOD WHO(2, 1, 2, 0, 1, 1)
enum { WHO_BYTES = sizeof(struct boot_who), WORLD_BYTES = WHO_BYTES + 8 + 2 };

static const struct {
	struct world w;
	size_t n;
	uint32_t number, says_bytes;
	const char *says; /* NULL: it is joined */
} worlds[] = {
	{ { GOOD, { 0, 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, NULL },
	{ { GOOD, { 0, 0 }, "h" }, 0, 0, 0, "has ended" },
	{ { GOOD, { 0, 0 }, "h" }, WHO_BYTES, BOOT_WORLD, 0, "what cannot be" },
	{ { GOOD, { 0, 0 }, "h" }, WHO_BYTES - 1, BOOT_WORLD, 0, "what was asked" },
	{ { GOOD, { 0, 0 }, "h" }, WORLD_BYTES, BOOT_ALL, 0, "what was asked" },
	{ { GOOD, { 0, 0 }, "h" }, WORLD_BYTES, 77, 0, "what was asked" },
	{ { GOOD, { 0, 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 9999, "has ended" },
	{ { GOOD, { 0, 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, ~0u, "limit" },
	{ { GOOD, { 0, 1 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, "a host that is none" },
	{ { GOOD, { 0, 0 }, "hh" }, WORLD_BYTES, BOOT_WORLD, 0, "too few hosts" },
	{ { GOOD, { 0, 0 }, "h" }, WORLD_BYTES + 1, BOOT_WORLD, 0, "too few hosts" },
	{ { WHO(1, 0, 1, 0, 1, 1), { 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, "cannot" },
	{ { WHO(2, 2, 2, 0, 1, 1), { 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, "cannot" },
	{ { WHO(2, 1, 3, 0, 1, 1), { 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, "cannot" },
	{ { WHO(2, 1, 2, 1, 1, 1), { 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, "cannot" },
	{ { WHO(2, 1, 2, 0, 2, 1), { 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, "cannot" },
	{ { WHO(2, 1, 2, 0, 1, 9), { 0 }, "h" }, WORLD_BYTES, BOOT_WORLD, 0, "cannot" },
	{ { WHO(~0u, 1, 2, 0, 1, 1), { 0 }, "h" },
	  WORLD_BYTES,
	  BOOT_WORLD,
	  0,
	  "cannot" },
};

START_TEST(hostile_world)
{
	char why[BOOT_WHY_BYTES] = "";
	const size_t before = count_descriptors();
	struct boot_world w;
	pthread_t agent;
	berth_result rc;
	void *state;

	script[0] = (struct answer){ worlds[_i].number, &worlds[_i].w, worlds[_i].n,
				     worlds[_i].says_bytes, 0 };
	nscript = 1;
	agent = start_agent();
	rc = boot_agent.join(&state, &w, NULL, why);
	if (worlds[_i].says) {
		ck_assert_int_ne(rc, BERTH_OK);
		ck_assert_msg(strstr(why, worlds[_i].says) != NULL, "%s", why);
	} else {
		ck_assert_msg(!rc, "%s", why);
		ck_assert_uint_eq(w.rank, 1);
		ck_assert_uint_eq(w.key[2], 3);
		ck_assert_str_eq(w.host_name[w.host[1]], "h");
		boot_agent.leave(state);
		boot_world_free(&w);
	}
	pthread_join(agent, NULL);
	close(listener);
	ck_assert_int_eq(w.memory, -1);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

/* With and without an end of its text, and of none. */
START_TEST(refused)
{
	char why[BOOT_WHY_BYTES] = "";
	struct boot_world w;
	pthread_t agent;
	void *state;

	script[0] = (struct answer){ BOOT_REFUSED, "no room", (size_t)_i, 0, 0 };
	nscript = 1;
	agent = start_agent();
	ck_assert_int_eq(boot_agent.join(&state, &w, NULL, why), BERTH_NO_PEERS);
	ck_assert_uint_eq(strlen(why), _i < 7 ? (size_t)_i : 7);
	pthread_join(agent, NULL);
	close(listener);
}
END_TEST

/* Another user has taken the name of an agent that has ended. */
START_TEST(of_another_user)
{
	char why[BOOT_WHY_BYTES] = "";
	struct boot_world w;
	pthread_t agent;
	void *state;

	if (geteuid())
		return;
	clear_environment();
	script[0] =
		(struct answer){ worlds[0].number, &worlds[0].w, worlds[0].n, 0, 0 };
	nscript = 1;
	ck_assert_int_eq(seteuid(65534), 0); /* listen() notes whose the socket is */
	agent = start_agent();
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_ptr_eq(boot_choose(why), &boot_alone);
	pthread_join(agent, NULL);
	ck_assert_int_eq(pthread_create(&agent, NULL, serve, NULL), 0);
	ck_assert_int_eq(boot_agent.join(&state, &w, NULL, why), BERTH_SYSTEM);
	ck_assert_str_eq(why, "cannot reach the agent of this host: "
			      "Operation not permitted");
	pthread_join(agent, NULL);
	close(listener);
}
END_TEST

/* ---- what it says in a fence, and gives as memory ---- */

#define OFFSET "\1\0\0\0\0\0\0\0"

static const struct {
	const char *all;
	size_t n;
	bool good;
} fences[] = {
	{ OFFSET "a\0b", sizeof OFFSET "a\0b", true },
	{ OFFSET "\0", sizeof OFFSET "\0", true },
	{ OFFSET "a", sizeof OFFSET "a", false },
	{ OFFSET "a\0b\0c", sizeof OFFSET "a\0b\0c", false },
	{ OFFSET "a\0b", sizeof OFFSET "a\0b" - 1, false },
	{ OFFSET, 8, false },
	{ OFFSET, 7, false },
	{ "", 0, false },
};

/* By kind: what memory it gives.  0 is good. */
static int odd_memory(int kind)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	ck_assert_int_eq(ftruncate(fd, kind == 1 ? 4096 : 8192), 0);
	if (kind != 2)
		fcntl(fd, F_ADD_SEALS, seals);
	if (kind == 3) {
		close(fd);
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	}
	return fd;
}

static berth_result wait_on(void *ctx)
{
	(void)ctx;
	return BERTH_OK;
}

static const struct boot_patience patient = { wait_on, NULL, NULL };

static void leave(void *state, struct boot_world *w, pthread_t agent)
{
	boot_agent.leave(state);
	boot_world_free(w);
	pthread_join(agent, NULL);
	close(listener);
}

static void join_well(void **state, struct boot_world *w)
{
	char why[BOOT_WHY_BYTES] = "";

	ck_assert_msg(!boot_agent.join(state, w, NULL, why), "%s", why);
}

START_TEST(hostile_fence)
{
	char why[BOOT_WHY_BYTES] = "", **all = NULL;
	const size_t before = count_descriptors();
	struct boot_world w;
	pthread_t agent;
	void *state;

	script[0] = (struct answer){ BOOT_WORLD, &worlds[0].w, WORLD_BYTES, 0, 0 };
	script[1] = (struct answer){ BOOT_ALL, fences[_i].all, fences[_i].n, 0, 0 };
	nscript = 2;
	agent = start_agent();
	join_well(&state, &w);
	ck_assert_int_eq(!boot_agent.fence(state, &w, "me", &patient, &all, why),
			 fences[_i].good);
	ck_assert_int_eq(all != NULL, fences[_i].good);
	if (fences[_i].good)
		ck_assert_int_eq(w.clock_offset_ns, 1);
	free(all);
	leave(state, &w, agent);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

START_TEST(hostile_memory)
{
	const uint64_t bytes = 8192;
	char why[BOOT_WHY_BYTES] = "";
	const size_t before = count_descriptors();
	const int fd = odd_memory(_i);
	struct boot_world w;
	pthread_t agent;
	void *state;

	script[0] = (struct answer){ BOOT_WORLD, &worlds[0].w, WORLD_BYTES, 0, 0 };
	script[1] = (struct answer){ BOOT_MEMORY, &bytes, sizeof bytes, 0,
				     _i == 4 ? 0 : fd + 1 };
	nscript = 2;
	agent = start_agent();
	join_well(&state, &w);
	ck_assert_int_eq(!boot_agent.memory(state, &w, bytes, why), !_i);
	ck_assert_int_eq(w.memory >= 0, !_i);
	if (!_i)
		ck_assert_int_eq(fcntl(w.memory, F_GETFD), FD_CLOEXEC);
	leave(state, &w, agent);
	close(fd);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

/* Asks whenever it may. */
static berth_result ask_on(void *ctx)
{
	(void)ctx;
	return BERTH_BUSY;
}

static void note_missing(void *ctx, const unsigned *rank, size_t n)
{
	*(unsigned *)ctx = n == 1 ? rank[0] : 99;
}

static berth_result give_up(void *ctx)
{
	(void)ctx;
	return BERTH_TIMEOUT;
}

/* What the agent says when it is asked, and what becomes of the fence. */
static const struct {
	berth_result (*tick)(void *ctx);
	uint32_t number[2], behind;
	berth_result rc;
	unsigned missing;
} waits[] = {
	{ ask_on, { BOOT_MISSING, BOOT_ALL }, 1, BERTH_OK, 1 },
	{ ask_on, { BOOT_ALL }, 1, BERTH_OK, 77 }, /* the last came meanwhile */
	{ ask_on, { BOOT_MISSING }, 5000, BERTH_SYSTEM, 77 }, /* no rank of this job */
	{ ask_on, { BOOT_MEMORY }, 1, BERTH_SYSTEM, 77 },
	{ ask_on, { BOOT_MISSING, BOOT_REFUSED }, 1, BERTH_NO_PEERS, 1 },
	{ wait_on, { BOOT_MISSING }, 1, BERTH_SYSTEM, 77 }, /* nobody has asked */
	{ give_up, { 0 }, 1, BERTH_TIMEOUT, 77 },
};

START_TEST(fence_is_long)
{
	char why[BOOT_WHY_BYTES] = "", **all = NULL;
	unsigned missing = 77;
	const struct boot_patience p = { waits[_i].tick, note_missing, &missing };
	const size_t before = count_descriptors();
	const bool asks = waits[_i].tick == ask_on;
	struct boot_world w;
	pthread_t agent;
	void *state;

	script[0] = (struct answer){ BOOT_WORLD, &worlds[0].w, WORLD_BYTES, 0, 0 };
	nscript = 1;
	if (asks)
		script[nscript++] = (struct answer){ 0 }; /* to the fence itself */
	for (size_t i = 0; i < 2; i++) {
		const uint32_t number = waits[_i].number[i];

		script[nscript++] =
			number == BOOT_ALL
				? (struct answer){ number, fences[0].all, fences[0].n,
						   0, 0 }
				: (struct answer){ number, &waits[_i].behind,
						   sizeof waits[_i].behind, 0, 0 };
	}
	agent = start_agent();
	join_well(&state, &w);
	ck_assert_int_eq(boot_agent.fence(state, &w, "me", &p, &all, why),
			 waits[_i].rc);
	ck_assert_uint_eq(missing, waits[_i].missing);
	free(all);
	leave(state, &w, agent);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

START_TEST(long_texts)
{
	static char text[BOOT_TEXT_BYTES + 1];
	const size_t before = count_descriptors();
	char why[BOOT_WHY_BYTES] = "", **all;
	const unsigned many[5000] = { 0 };
	struct boot_world w;
	pthread_t agent;
	void *state;

	memset(text, 'x', sizeof text - 1);
	script[0] = (struct answer){ BOOT_WORLD, &worlds[0].w, WORLD_BYTES, 0, 0 };
	script[1] = (struct answer){ BOOT_ALL, fences[0].all, fences[0].n, 0, 0 };
	nscript = 2;
	agent = start_agent();
	join_well(&state, &w);
	ck_assert_int_eq(boot_agent.fence(state, &w, text, &patient, &all, why),
			 BERTH_INVALID);
	text[BOOT_TEXT_BYTES - 1] = '\0';
	ck_assert_int_eq(boot_agent.fence(state, &w, text, &patient, &all, why),
			 BERTH_OK);
	free(all);
	boot_agent.stall(state, many, 5000, text);
	leave(state, &w, agent);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lib_boot");
	TCase *t = tcase_create("boot");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, way, 0, sizeof ways / sizeof *ways);
	tcase_add_test(t, a_task_of_srun_berth);
	tcase_add_test(t, alone);
	tcase_add_loop_test(t, hostile_world, 0, sizeof worlds / sizeof *worlds);
	tcase_add_loop_test(t, refused, 0, 9);
	tcase_add_test(t, of_another_user);
	tcase_add_loop_test(t, fence_is_long, 0, sizeof waits / sizeof *waits);
	tcase_add_loop_test(t, hostile_fence, 0, sizeof fences / sizeof *fences);
	tcase_add_loop_test(t, hostile_memory, 0, 5);
	tcase_add_test(t, long_texts);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
