/* lib/backend/cuda: on the path of an operation nobody looks for libcuda.  A search
 * costs 50 us where there is none. */
#include <check.h>
#include <dlfcn.h>
#include <string.h>

#include "lib/backend/cuda.h"
#include "lib/backend/devices.h"
#include "lib/backend/nccl.h"

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

static unsigned searches;
static int last_flags;

/* There is no libcuda, whatever the machine has. */
void *__wrap_dlopen(const char *name, int flags)
{
	searches++;
	last_flags = flags;
	return __real_dlopen(strcmp(name, "libcuda.so.1") ? name : "libnone.so", flags);
}

START_TEST(no_search_for_each_operation)
{
	int x, device = 7;

	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(device_find(&x, &device), BERTH_HOST);
	ck_assert_int_eq(device, 0);
	ck_assert_uint_eq(searches, 0);
	device_look();
	ck_assert_uint_eq(searches, 1);
	ck_assert_int_ne(last_flags & RTLD_NOLOAD, 0);
	ck_assert_int_eq(device_find(&x, &device), BERTH_HOST);
	ck_assert_uint_eq(searches, 1);
}
END_TEST

/* The first operation on a GPU's memory does, once; and says why there is none. */
START_TEST(why_there_is_none)
{
	const struct device_options none = { .nccl = NULL };
	unsigned char card[DEVICE_CARD_BYTES];
	char why[DEVICE_WHY_BYTES];
	const char *text = NULL;
	void *mark = card;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(nccl_backend.card(&none, 0, 2, 0, card, why),
				 BERTH_SYSTEM);
	ck_assert_uint_eq(searches, 1);
	ck_assert_int_eq(last_flags & RTLD_NOLOAD, 0);
	ck_assert_ptr_nonnull(strstr(why, "no NVIDIA driver: libnone.so"));
	/* all ranks hear of it from the cards */
	ck_assert_int_eq(nccl_backend.mark(0, NULL, NULL, &mark, &text), BERTH_OK);
	ck_assert_ptr_null(mark);
	device_look();
	ck_assert_uint_eq(searches, 1);
}
END_TEST

static int make_event(void **event, unsigned flags)
{
	(void)flags;
	*event = event;
	return CUDA_OK;
}

/* Operations have it together: it is used again when all have forgotten it. */
START_TEST(a_mark_is_shared)
{
	struct cuda_event *e, *other;

	cuda.cuEventCreate = make_event;
	e = cuda_event_take(0);
	nccl_backend.share(e);
	nccl_backend.share(e);
	nccl_backend.forget(e);
	nccl_backend.forget(e);
	other = cuda_event_take(0);
	ck_assert_ptr_ne(other, e);
	nccl_backend.forget(e);
	ck_assert_ptr_eq(cuda_event_take(0), e);
	nccl_backend.forget(e);
	ck_assert_ptr_eq(cuda_event_take(0), e);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda");
	TCase *t = tcase_create("cuda");
	SRunner *r = srunner_create(s);
	int failures;

	suite_add_tcase(s, t);
	tcase_add_test(t, no_search_for_each_operation);
	tcase_add_test(t, why_there_is_none);
	tcase_add_test(t, a_mark_is_shared);
	srunner_run_all(r, CK_ENV);
	failures = srunner_ntests_failed(r);
	srunner_free(r);
	return failures != 0;
}
