/* agent/pmi/pmix_accept.h: whose connections accept() gives, by each way to ask the
 * kernel; and that libraries take it.
 * takes_s: 5 */
#include <check.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/pmix_accept.h"
#include "common/file.h"
#include "tests/helpers/strangers.h"

/* ---- the kernel, as it is and as it may be ---- */

static const enum way {
	AS_IT_IS,
	NO_NETLINK,
	NO_INET_DIAG,
	LATE,   /* each first answer is read after its time */
	FORGED, /* a process, not the kernel, says first that each socket is ours */
	WAYS
} ways[] = { AS_IT_IS, NO_NETLINK, NO_INET_DIAG, LATE, FORGED };
static enum way way;
static bool no_proc;
static unsigned answers, files;

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol)
{
	if (family == AF_NETLINK && way == NO_NETLINK) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return __real_socket(family, type, protocol);
}

static ssize_t not_found(int fd, void *to)
{
	const ssize_t n = recv(fd, to, NLMSG_LENGTH(sizeof(struct nlmsgerr)), 0);
	struct nlmsghdr *h = to;
	struct nlmsgerr *e = NLMSG_DATA(h);

	if (n > 0) {
		h->nlmsg_type = NLMSG_ERROR;
		h->nlmsg_len = (uint32_t)n;
		e->error = -ENOENT;
	}
	return n;
}

static ssize_t ours(int fd, void *to, size_t bytes, struct sockaddr *from)
{
	const ssize_t n = recv(fd, to, bytes, MSG_PEEK);
	struct nlmsghdr *h = to;
	struct inet_diag_msg *m = NLMSG_DATA(h);

	if (n >= (ssize_t)NLMSG_LENGTH(sizeof *m))
		m->idiag_uid = geteuid();
	((struct sockaddr_nl *)(void *)from)->nl_pid = 1;
	return n;
}

ssize_t __real_recvfrom(int fd, void *to, size_t bytes, int flags,
			struct sockaddr *from, socklen_t *from_bytes);
ssize_t __wrap_recvfrom(int fd, void *to, size_t bytes, int flags,
			struct sockaddr *from, socklen_t *from_bytes)
{
	const unsigned n = __atomic_fetch_add(&answers, 1, __ATOMIC_RELAXED);

	if (way == LATE && n == 0) {
		errno = EAGAIN;
		return -1;
	}
	if (way == NO_INET_DIAG)
		return not_found(fd, to);
	if (way == FORGED && n % 2 == 0)
		return ours(fd, to, bytes, from);
	return __real_recvfrom(fd, to, bytes, flags, from, from_bytes);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
	__atomic_fetch_add(&files, 1, __ATOMIC_RELAXED);
	return no_proc ? NULL : __real_fopen(path, mode);
}

/* ---- whose connections ---- */

/* That accept() gives the connection of FD: what is said there is heard. */
static void assert_given(const struct place *p, int fd)
{
	char c = 0;
	int in = accept(p->fd, NULL, NULL);

	ck_assert_msg(in >= 0, "accept: %s", strerror(errno));
	ck_assert_int_eq(send(fd, "x", 1, 0), 1);
	ck_assert_int_eq(recv(in, &c, 1, 0), 1);
	ck_assert_int_eq(c, 'x');
	close(in);
	close(fd);
}

static void assert_none(const struct place *p)
{
	ck_assert_int_eq(accept(p->fd, NULL, NULL), -1);
	ck_assert_int_eq(errno, EAGAIN);
}

START_TEST(own_connections_come)
{
	const struct place p = place_open(&kinds[_i % KINDS]);

	way = ways[_i / KINDS];
	pmix_accept_guard();
	for (int i = 0; i < 3; i++)
		assert_given(&p, connect_from(&p, 0));
	assert_none(&p);
}
END_TEST

START_TEST(connections_of_others_are_closed)
{
	const struct place p = place_open(&kinds[_i % KINDS]);
	pid_t stranger;
	int unused;

	way = ways[_i / KINDS];
	if (!may_be_others())
		return;
	pmix_accept_guard();
	assert_given(&p, connect_from(&p, 0));
	unused = dup(0);
	close(unused);
	stranger = connect_as(&p, STRANGER, 3, 0, STAYS);
	assert_none(&p);
	ck_assert_int_eq(dup(0), unused);
	end_process(stranger);
	assert_given(&p, connect_from(&p, 0));
	assert_none(&p);
}
END_TEST

/* The same where this process has no rights, and root is a stranger. */
START_TEST(root_is_another_user)
{
	const struct place p = place_open(&kinds[_i % KINDS]);
	pid_t root;

	way = ways[_i / KINDS];
	if (!may_be_others())
		return;
	root = connect_as(&p, 0, 2, 0, STAYS);
	ck_assert_int_eq(setresuid(STRANGER - 1, STRANGER, 0), 0);
	pmix_accept_guard();
	assert_none(&p);
	assert_given(&p, connect_from(&p, 0));
	ck_assert_int_eq(seteuid(0), 0);
	end_process(root);
}
END_TEST

START_TEST(before_the_guard_none_is_closed)
{
	const struct place p = place_open(&kinds[_i]);
	const unsigned before = answers + files;
	pid_t stranger = 0;
	int in;

	if (may_be_others()) {
		stranger = connect_as(&p, STRANGER, 1, 0, STAYS);
		in = accept(p.fd, NULL, NULL);
		ck_assert_int_ge(in, 0);
		ck_assert_int_eq(recv(in, &(char){ 0 }, 1, MSG_DONTWAIT), -1);
		ck_assert_int_eq(errno, EAGAIN);
		end_process(stranger);
	}
	assert_given(&p, connect_from(&p, 0));
	ck_assert_uint_eq(answers + files, before);
}
END_TEST

/* Neither netlink nor /proc. */
START_TEST(who_cannot_be_told_is_closed)
{
	const struct place p = place_open(&kinds[_i]);

	way = NO_NETLINK;
	no_proc = true;
	pmix_accept_guard();
	close(connect_from(&p, 0));
	connect_from(&p, 0);
	assert_none(&p);
}
END_TEST

/* inet_diag does not find a socket that is bound to a device: so it stands for one that
 * is gone.  That there is none is an answer, and /proc is not asked. */
START_TEST(proc_is_only_read_in_need)
{
	const struct place p = place_open(&kinds[0]);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	pmix_accept_guard();
	if (_i)
		assert_given(&p, connect_from(&p, 0));
	if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3)) {
		printf("skipped: no right to SO_BINDTODEVICE\n");
		return;
	}
	ck_assert_int_eq(connect(fd, &p.to.any, p.bytes), 0);
	if (files) {
		printf("skipped: this kernel has no inet_diag\n");
		return;
	}
	assert_none(&p);
	/* of both connections, or of both ends of the first */
	ck_assert_uint_eq(answers, 2);
	ck_assert_uint_eq(files, 0);
}
END_TEST

/* A user namespace that has no user shows all as 65534, and this process, too. */
START_TEST(nobody_is_no_name)
{
	const struct place p = place_open(&kinds[_i]);
	int fd;

	if (unshare(CLONE_NEWUSER)) {
		printf("skipped: no user namespaces: %s\n", strerror(errno));
		return;
	}
	pmix_accept_guard();
	fd = connect_from(&p, 0);
	assert_none(&p);
	close(fd);
}
END_TEST

/* One that has only this process's. */
START_TEST(other_names_are_none)
{
	const struct place p = place_open(&kinds[_i]);
	char *map = xasprintf("0 %u 1", geteuid());
	const bool own = !unshare(CLONE_NEWUSER);
	int fd = own ? open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC) : -1;

	if (fd >= 0 && write(fd, map, strlen(map)) > 0) {
		pmix_accept_guard();
		assert_given(&p, connect_from(&p, 0));
	} else {
		printf("skipped: no user namespaces: %s\n", strerror(errno));
	}
	free(map);
}
END_TEST

START_TEST(behind_a_thousand_strangers)
{
	const struct place p = place_open(&kinds[_i]);
	pid_t stranger;
	int fd;

	if (!may_be_others())
		return;
	pmix_accept_guard();
	stranger = connect_as(&p, STRANGER, 1000, 0, STAYS);
	fd = connect_from(&p, 0);
	assert_given(&p, fd);
	assert_none(&p);
	end_process(stranger);
}
END_TEST

/* A listener that blocks waits on after a stranger. */
START_TEST(blocks_if_its_listener_does)
{
	const struct place p = place_open(&kinds[_i]);
	pid_t stranger, own;
	int in;

	if (!may_be_others())
		return;
	pmix_accept_guard();
	fcntl(p.fd, F_SETFL, 0);
	stranger = connect_as(&p, STRANGER, 2, 0, STAYS);
	own = fork();
	if (!own) {
		poll(NULL, 0, 100);
		connect_from(&p, 0);
		pause();
	}
	in = accept(p.fd, NULL, NULL);
	ck_assert_int_ge(in, 0);
	end_process(own);
	end_process(stranger);
}
END_TEST

/* ---- those that are closed already ---- */

static const struct {
	uid_t uid;
	enum end end;
} closed[] = {
	{ 0, CLOSES }, { 0, RESETS }, { STRANGER, CLOSES }, { STRANGER, RESETS }
};
enum { CLOSED = sizeof closed / sizeof *closed };

START_TEST(closed_connections_do_not_come)
{
	const struct place p = place_open(&kinds[_i / CLOSED % (KINDS - 1)]);
	const uid_t uid = closed[_i % CLOSED].uid;

	way = ways[_i / CLOSED / (KINDS - 1)];
	if (uid && !may_be_others())
		return;
	pmix_accept_guard();
	connect_as(&p, uid ? uid : geteuid(), 3, 0, closed[_i % CLOSED].end);
	assert_none(&p);
	assert_given(&p, connect_from(&p, 0));
}
END_TEST

/* Below the ports that the kernel gives, so that no other process takes it. */
static uint16_t free_port(void)
{
	enum { FIRST = 10000, PORTS = 20000 };
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = { .sin_family = AF_INET };

	for (unsigned i = 0; i < PORTS; i++) {
		const unsigned n = ((unsigned)getpid() * 16 + i) % PORTS;

		at.sin_port = htons((uint16_t)(FIRST + n));
		if (!bind(fd, (struct sockaddr *)&at, sizeof at))
			break;
	}
	close(fd);
	return at.sin_port;
}

/* The stranger's port is then that of a listener of ours, which the kernel gives for
 * want of the connection. */
START_TEST(listener_in_place_of_a_stranger)
{
	const struct place p = place_open(&kinds[0]);
	const uint16_t port = free_port();
	union address at;
	const socklen_t bytes = address_at(&at, "0.0.0.0", port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	way = ways[_i / 2];
	if (!may_be_others())
		return;
	pmix_accept_guard();
	connect_as(&p, STRANGER, 1, port, _i % 2 ? RESETS : CLOSES);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	ck_assert_int_eq(bind(fd, &at.any, bytes), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	assert_none(&p);
}
END_TEST

static const struct {
	struct pmix_owner o;
	bool ours; /* as user 7 */
} owners[] = {
	{ { 1, 7, 99 }, true },  { { 1, 7, 1ull << 32 }, true },
	{ { 1, 7, 0 }, false },  { { 1, 0, 99 }, false },
	{ { 1, 8, 99 }, false }, { { 2, 7, 99 }, false },
	{ { 5, 7, 99 }, false }, { { 10, 7, 99 }, false },
	{ { 0, 7, 99 }, false },
};

START_TEST(owner_in_each_state)
{
	ck_assert(pmix_owner_is(&owners[_i].o, 7) == owners[_i].ours);
}
END_TEST

#define ENDS "0100007F:C350 0100007F:1F90 "
static const struct {
	const char *line;
	bool found;
} rows[] = {
	{ "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"
	  "   uid  timeout inode",
	  false },
	{ "   0: " ENDS "01 00000000:00000000 02:000A 00000000  1000        0 4711 1 0",
	  true },
	{ "12345: " ENDS "01 00000000:00000000 02:000A 00000000  1000 0 4711", true },
	/* the other end of the same connection, another port, another address */
	{ "0: 0100007F:1F90 0100007F:C350 01 0:0 00:0 00000000 1000 0 4711 1", false },
	{ "0: 0100007F:C351 0100007F:1F90 01 0:0 00:0 00000000 1000 0 4711 1", false },
	{ "0: 0200007F:C350 0100007F:1F90 01 0:0 00:0 00000000 1000 0 4711 1", false },
	{ "0: 0100007F:C350 00000000:0000 0A 0:0 00:0 00000000 1000 0 4711 1", false },
	{ "0: " ENDS "01 00000000:00000000 02:000A 00000000  1000        0 ", false },
	{ "0: " ENDS, false },
	{ "0: ", false },
	{ ENDS "01 00000000:00000000 02:000A 00000000  1000        0 4711 1 0", false },
	{ "", false },
};

START_TEST(line_to_its_owner)
{
	struct pmix_owner o;

	ck_assert(pmix_owner_of_line(&o, rows[_i].line, ENDS) == rows[_i].found);
	if (!rows[_i].found)
		return;
	ck_assert_uint_eq(o.state, 1);
	ck_assert_uint_eq(o.uid, 1000);
	ck_assert_uint_eq(o.inode, 4711);
}
END_TEST

/* ---- as a function ---- */

/* A stranger's address makes the room for the next one no larger. */
START_TEST(address_in_its_room)
{
	const struct place p = place_open(&kinds[0]);
	unsigned char room[64];
	socklen_t bytes = 4;
	pid_t stranger = 0;
	int fd, in;

	pmix_accept_guard();
	if (may_be_others())
		stranger = connect_as(&p, STRANGER, 1, 0, STAYS);
	fd = connect_from(&p, 0);
	memset(room, 0xee, sizeof room);
	in = accept(p.fd, (struct sockaddr *)(void *)room, &bytes);
	ck_assert_int_ge(in, 0);
	ck_assert_uint_eq(bytes, sizeof(struct sockaddr_in));
	for (unsigned i = 4; i < sizeof room; i++)
		ck_assert_uint_eq(room[i], 0xee);
	close(fd);
	if (stranger)
		end_process(stranger);
}
END_TEST

START_TEST(address_is_that_of_the_client)
{
	const struct place p = place_open(&kinds[0]);
	union address peer, own;
	socklen_t bytes = sizeof peer, own_bytes = sizeof own;
	int fd = connect_from(&p, 0);

	pmix_accept_guard();
	ck_assert_int_ge(accept(p.fd, &peer.any, &bytes), 0);
	ck_assert_int_eq(getsockname(fd, &own.any, &own_bytes), 0);
	ck_assert_uint_eq(bytes, own_bytes);
	ck_assert_mem_eq(&peer, &own, bytes);
}
END_TEST

START_TEST(errors_as_they_are)
{
	int ends[2];

	if (_i)
		pmix_accept_guard();
	ck_assert_int_eq(accept(-1, NULL, NULL), -1);
	ck_assert_int_eq(errno, EBADF);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(accept(ends[0], NULL, NULL), -1);
	ck_assert_int_eq(errno, ENOTSOCK);
}
END_TEST

enum { THREADS = 4, EACH = 100 };
static unsigned came;

static void *accept_until_all(void *arg)
{
	const struct place *p = arg;

	while (__atomic_load_n(&came, __ATOMIC_ACQUIRE) < THREADS * EACH) {
		int fd = accept(p->fd, NULL, NULL);

		if (fd < 0) {
			poll(NULL, 0, 1);
			continue;
		}
		close(fd);
		__atomic_fetch_add(&came, 1, __ATOMIC_ACQ_REL);
	}
	return NULL;
}

/* All own connections come, whichever thread asks, and no other. */
START_TEST(many_threads)
{
	struct place p = place_open(&kinds[_i]);
	pthread_t threads[THREADS];
	pid_t stranger = 0, own;

	pmix_accept_guard();
	if (may_be_others())
		stranger = connect_as(&p, STRANGER, EACH, 0, STAYS);
	own = connect_as(&p, geteuid(), THREADS * EACH, 0, STAYS);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, accept_until_all, &p);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(came, THREADS * EACH);
	assert_none(&p);
	end_process(own);
	if (stranger)
		end_process(stranger);
}
END_TEST

/* ---- who takes it ---- */

/* PATH beside the folder of this program, which the build has made. */
static char *built(const char *path)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	ck_assert_int_gt(n, 0);
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	return xasprintf("%s/../%s", self, path);
}

START_TEST(a_library_takes_ours)
{
	const struct place p = place_open(&kinds[0]);
	char *path = built("helpers/libaccept.so");
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*take)(int);
	pid_t stranger = 0;

	ck_assert_msg(library != NULL, "%s", dlerror());
	*(void **)&take = dlsym(library, "take_connection");
	ck_assert(take != NULL);
	ck_assert_ptr_eq(dlsym(RTLD_DEFAULT, "accept"), (void *)accept);
	ck_assert_ptr_ne(dlsym(RTLD_NEXT, "accept"), (void *)accept);
	pmix_accept_guard();
	way = NO_NETLINK;
	no_proc = true;
	connect_from(&p, 0); /* libc's would give it */
	ck_assert_int_eq(take(p.fd), -1);
	ck_assert_int_eq(errno, EAGAIN);
	no_proc = false;
	if (may_be_others())
		stranger = connect_as(&p, STRANGER, 1, 0, STAYS);
	connect_from(&p, 0);
	ck_assert_int_ge(take(p.fd), 0);
	ck_assert_int_eq(take(p.fd), -1);
	if (stranger)
		end_process(stranger);
	free(path);
}
END_TEST

/* The functions that the program of TEXT exports, a space after each name. */
static void exported(struct str *names, const char *text)
{
	const ElfW(Ehdr) *e = (const void *)text;
	const ElfW(Shdr) *s = (const void *)(text + e->e_shoff);

	for (unsigned i = 0; i < e->e_shnum; i++) {
		const ElfW(Sym) *y = (const void *)(text + s[i].sh_offset);
		const char *strings;

		if (s[i].sh_type != SHT_DYNSYM)
			continue;
		strings = text + s[s[i].sh_link].sh_offset;
		for (size_t k = 0; k < s[i].sh_size / sizeof *y; k++)
			if (y[k].st_shndx != SHN_UNDEF &&
			    ELF64_ST_TYPE(y[k].st_info) == STT_FUNC &&
			    ELF64_ST_BIND(y[k].st_info) == STB_GLOBAL)
				str_addf(names, "%s ", strings + y[k].st_name);
	}
}

START_TEST(agent_exports_accept_alone)
{
	enum { MOST_BYTES = 1 << 28 };
	char *path = built("bin/berth-agent");
	struct str text = { 0 }, names = { 0 };

	ck_assert_int_eq(file_read(&text, path, MOST_BYTES, true), 0);
	exported(&names, text.s);
	ck_assert_str_eq(str_text(&names), "accept ");
	str_free(&names);
	str_free(&text);
	free(path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmix_accept");
	TCase *t = tcase_create("pmix_accept");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, own_connections_come, 0, WAYS * KINDS);
	tcase_add_loop_test(t, connections_of_others_are_closed, 0, WAYS * KINDS);
	tcase_add_loop_test(t, root_is_another_user, 0, WAYS * KINDS);
	tcase_add_loop_test(t, before_the_guard_none_is_closed, 0, KINDS);
	tcase_add_loop_test(t, who_cannot_be_told_is_closed, 0, KINDS - 1);
	tcase_add_loop_test(t, proc_is_only_read_in_need, 0, 2);
	tcase_add_loop_test(t, nobody_is_no_name, 0, KINDS);
	tcase_add_loop_test(t, other_names_are_none, 0, KINDS);
	tcase_add_loop_test(t, behind_a_thousand_strangers, 0, KINDS);
	tcase_add_loop_test(t, blocks_if_its_listener_does, 0, KINDS);
	tcase_add_loop_test(t, closed_connections_do_not_come, 0,
			    WAYS * (KINDS - 1) * CLOSED);
	tcase_add_loop_test(t, listener_in_place_of_a_stranger, 0, WAYS * 2);
	tcase_add_loop_test(t, owner_in_each_state, 0, sizeof owners / sizeof *owners);
	tcase_add_loop_test(t, line_to_its_owner, 0, sizeof rows / sizeof *rows);
	tcase_add_test(t, address_in_its_room);
	tcase_add_test(t, address_is_that_of_the_client);
	tcase_add_loop_test(t, errors_as_they_are, 0, 2);
	tcase_add_loop_test(t, many_threads, 0, KINDS);
	tcase_add_test(t, a_library_takes_ours);
	tcase_add_test(t, agent_exports_accept_alone);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
