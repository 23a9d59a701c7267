/* agent/pmi/pmix_upcall.c: what the answer about a group leaves in memory, whether
 * libpmix takes the endpoints over or not.  pmix_names.c: ranks that died. */
#include <check.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/pmi/pmix_child_internal.h"

enum { MEMBERS = 4, TIMES = 1000, ENDPOINTS_BYTES = 64 };

static int host_fd;
static bool takes_over; /* libpmix, the endpoints */
static size_t answers;

/* Of the answer, as libpmix reads it. */
static void on_done(int status, struct px_info *info, size_t n, void *ctx,
		    px_release *release, void *release_ctx)
{
	size_t members = 0, endpoints = 0, id = 0;

	ck_assert_ptr_eq(ctx, &answers);
	ck_assert_int_eq(status, PX_SUCCESS);
	for (size_t i = 0; i < n; i++) {
		union {
			struct px_bytes *bytes;
			const struct px_array *array;
		} of = { .bytes = &info[i].value.data.bytes };

		if (upcall_is(&info[i], PX_GROUP_ID)) {
			id = info[i].value.data.size;
		} else if (upcall_is(&info[i], PX_GROUP_ENDPOINTS)) {
			endpoints = of.bytes->size;
			if (takes_over) {
				free(of.bytes->bytes);
				*of.bytes = (struct px_bytes){ 0 };
			}
		} else if (upcall_is(&info[i], PX_GROUP_MEMBERS)) {
			of.array = info[i].value.data.array;
			members = of.array->size;
			ck_assert_uint_eq(
				((const struct px_proc *)of.array->v)[members - 1].rank,
				MEMBERS - 1);
		}
	}
	ck_assert_uint_eq(members, MEMBERS);
	ck_assert_uint_eq(endpoints, ENDPOINTS_BYTES);
	ck_assert_uint_eq(id, 77);
	answers++;
	release(release_ctx);
}

/* The id of the request that the host hears next. */
static uint32_t hear(void)
{
	static unsigned char room[65536];
	struct wire_frame f;
	struct wire_pmix_collect m;
	uint32_t id;
	const ssize_t n = recv(host_fd, room, sizeof room, 0);

	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(wire_next_from(WIRE_PMIX_SERVER, &f, room, (size_t)n, NULL),
			 n);
	ck_assert_uint_eq(f.type, WIRE_pmix_collect);
	ck_assert(!wire_unpack_pmix_collect(&m, f.payload, f.n, NULL));
	id = m.id;
	wire_free_pmix_collect(&m);
	return id;
}

static void construct(void)
{
	static char name[] = "group", bytes[ENDPOINTS_BYTES];
	struct px_proc procs[MEMBERS] = { 0 };
	struct px_info info[2] = {
		{ .key = PX_GROUP_ASSIGN_ID,
		  .value = { .type = PX_BOOL, .data.flag = true } },
		{ .key = PX_GROUP_ENDPOINTS,
		  .value = { .type = PX_BYTES, .data.bytes = { bytes, sizeof bytes } } }
	};
	struct wire_pmix_collected m = { .serial = 77,
					 .data = { bytes, sizeof bytes } };

	for (uint32_t i = 0; i < MEMBERS; i++) {
		snprintf(procs[i].nspace, sizeof procs[i].nspace, "%s", px.nspace);
		procs[i].rank = i;
	}
	ck_assert_int_eq(upcalls.group(PX_GROUP_CONSTRUCT, name, procs, MEMBERS, info,
				       2, on_done, &answers),
			 PX_SUCCESS);
	m.id = hear();
	upcall_collected(&m);
}

START_TEST(groups_leave_nothing)
{
	size_t before = 0;
	int pair[2];

	ck_assert(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	close(child_link(pair[0]));
	host_fd = pair[1];
	snprintf(px.nspace, sizeof px.nspace, "test");
	px.data_most = 1 << 20;
	takes_over = _i;
	answers = 0;
	for (int i = 0; i < TIMES; i++) {
		if (i == 1)
			before = mallinfo2().uordblks;
		construct();
	}
	ck_assert_uint_eq(answers, TIMES);
	ck_assert_uint_le(mallinfo2().uordblks, before + TIMES);
	close(pair[0]);
	close(pair[1]);
}
END_TEST

/* ---- a rank that died ---- */

static _Atomic int unread; /* a connection whose end libpmix has not read; -1: none */
static char calls[64];     /* of libpmix */

static int on_notify(int code, const struct px_proc *proc, uint8_t range,
		     const struct px_info *info, size_t n, px_op_done *done, void *ctx)
{
	(void)code;
	(void)range;
	(void)info;
	(void)n;
	snprintf(calls + strlen(calls), sizeof calls - strlen(calls), "notify %u ",
		 proc->rank);
	done(PX_SUCCESS, ctx);
	return PX_SUCCESS;
}

static void on_deregister(const struct px_proc *proc, px_op_done *done, void *ctx)
{
	ck_assert_str_eq(proc->nspace, "test");
	snprintf(calls + strlen(calls), sizeof calls - strlen(calls),
		 unread >= 0 ? "too soon " : "forget %u ", proc->rank);
	done(PX_SUCCESS, ctx);
}

static void *read_late(void *arg)
{
	enum { LATE_US = 50000 };
	const int fd = unread;

	usleep(LATE_US);
	unread = -1;
	close(fd);
	return arg;
}

/* A connection on 127.0.0.1 whose other end is closed. */
static int make_ended(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	const int listener = socket(AF_INET, SOCK_STREAM, 0),
		  far = socket(AF_INET, SOCK_STREAM, 0);
	int near;

	ck_assert(!bind(listener, (struct sockaddr *)&a, n) && !listen(listener, 1) &&
		  !getsockname(listener, (struct sockaddr *)&a, &n) &&
		  !connect(far, (struct sockaddr *)&a, n));
	near = accept(listener, NULL, NULL);
	ck_assert_int_ge(near, 0);
	close(listener);
	close(far);
	return near;
}

START_TEST(a_dead_rank_is_forgotten)
{
	static const char bytes[4] = { 0 }; /* no information */
	pthread_t thread;

	snprintf(px.nspace, sizeof px.nspace, "test");
	px.Notify_event = on_notify;
	px.server_deregister_client = on_deregister;
	unread = make_ended();
	ck_assert(!pthread_create(&thread, NULL, read_late, NULL));
	upcall_notify(&(struct wire_event){ .rank = 3 });
	pthread_join(thread, NULL);
	upcall_notify(
		&(struct wire_event){ .rank = 4, .info = { bytes, sizeof bytes } });
	ck_assert_str_eq(calls, "forget 3 notify 3 notify 4 ");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pmix_upcall");
	TCase *c = tcase_create("pmix_upcall");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, groups_leave_nothing, 0, 2);
	tcase_add_test(c, a_dead_rank_is_forgotten);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
