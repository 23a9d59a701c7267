/* callback.h: more callers than it takes, and than there are descriptors. */
#include "callback_rig.h"

#include <fcntl.h>
#include <sys/resource.h>

enum { MOST = CALLBACK_CALLERS_MOST };

START_TEST(the_oldest_of_many_goes)
{
	static struct far idle[MOST + 1];

	for (size_t i = 0; i < MOST; i++) {
		idle[i] = connected();
		rig_turn();
	}
	rig_turn();
	for (size_t i = 0; i < MOST; i++)
		ck_assert(!far_has_ended(&idle[i]));
	idle[MOST] = connected();
	dropped(&idle[0]);
	for (size_t i = 1; i <= MOST; i++)
		ck_assert(!far_has_ended(&idle[i]));
	good_call(&idle[2]); /* which drops none */
	ck_assert(!far_has_ended(&idle[1]));
	for (size_t i = 1; i <= MOST; i++)
		far_free(&idle[i]);
}
END_TEST

/* One after the other as fast as can be, some silent, some with garbage; an agent that
 * calls meanwhile gets in. */
START_TEST(an_agent_gets_in_through_a_flood)
{
	enum { FLOOD = 10000, OPEN = 200 };
	static struct far flood[OPEN];
	struct far f = { .fd = -1 };
	unsigned char garbage[KEY_CALL_BYTES] = { 'x' };
	bool answered = false;

	for (size_t i = 0; i < FLOOD; i++) {
		struct far *one = &flood[i % OPEN];

		if (i >= OPEN)
			far_free(one);
		*one = connected();
		if (i % 3)
			far_write(one, garbage, i % sizeof garbage + 1);
		if (i == FLOOD / 2) {
			f = connected();
			far_call(&f);
		}
		if (i % 16 == 0)
			rig_turn();
		if (f.fd >= 0 && !answered) {
			far_read(&f);
			answered = f.in.len >= KEY_ANSWER_BYTES;
			if (answered) {
				far_take_answer(&f);
				far_say_called(&f, "n1", "");
			}
		}
	}
	ck_assert_uint_eq(calls, 1);
	ck_assert(!far_has_ended(&f));
	for (size_t i = 0; i < OPEN; i++)
		far_free(&flood[i]);
	far_free(&f);
}
END_TEST

/* ---- no descriptor ---- */

enum { LIMIT = 128 };

static int fillers[LIMIT];
static size_t filled;

static void few_descriptors(void)
{
	const struct rlimit few = { LIMIT, LIMIT };

	ck_assert(!setrlimit(RLIMIT_NOFILE, &few));
}

static void fill_descriptors(void)
{
	while ((fillers[filled] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		filled++;
	close(fillers[--filled]); /* for the agent's end */
}

static void free_descriptors(void)
{
	while (filled)
		close(fillers[--filled]);
}

/* The oldest caller gives up its own. */
START_TEST(no_descriptor_is_left)
{
	enum { IDLE = 20 };
	struct far idle[IDLE], f;

	few_descriptors();
	for (size_t i = 0; i < IDLE; i++) {
		idle[i] = connected();
		rig_turn();
	}
	fill_descriptors();
	f = connected();
	good_call(&f);
	ck_assert(far_has_ended(&idle[0]));
	ck_assert(!far_has_ended(&idle[1]));
	free_descriptors();
	for (size_t i = 0; i < IDLE; i++)
		far_free(&idle[i]);
	far_free(&f);
}
END_TEST

static size_t accepts;
int __real_accept4(int fd, struct sockaddr *a, socklen_t *n, int flags);
int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *n, int flags);

int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	accepts++;
	return __real_accept4(fd, a, n, flags);
}

/* An agent waits, and the loop rests, until a descriptor is free. */
START_TEST(no_descriptor_and_no_caller)
{
	struct far f;

	few_descriptors();
	rig_turn();
	fill_descriptors();
	f = connected();
	for (int again = 0; again < 3; again++) {
		late = NULL;
		while (!late)
			rig_turn();
		ck_assert_uint_eq(late_ms, 100);
		accepts = 0;
		for (int i = 0; i < 100; i++)
			rig_turn();
		ck_assert_uint_eq(accepts, 0);
		event_active(late, EV_TIMEOUT, 0);
	}
	free_descriptors();
	good_call(&f);
	far_free(&f);
}
END_TEST

/* Its end comes in a pause. */
START_TEST(closed_while_it_waits)
{
	struct far f;

	few_descriptors();
	fill_descriptors();
	f = connected();
	late = NULL;
	while (!late)
		rig_turn();
	callback_close(door);
	door = NULL;
	free_descriptors();
	dropped(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("callback_flood");
	TCase *c = add_case(s, "flood");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(c, the_oldest_of_many_goes);
	tcase_add_test(c, an_agent_gets_in_through_a_flood);
	tcase_add_test(c, no_descriptor_is_left);
	tcase_add_test(c, no_descriptor_and_no_caller);
	tcase_add_test(c, closed_while_it_waits);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
