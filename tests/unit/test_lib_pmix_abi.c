/* lib/boot/pmix_abi.h against PMIx's own headers, where they are installed: what
 * differs does not compile, or fails here. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/boot/pmix_abi.h"

#if __has_include(<pmix.h>)
#include <pmix.h>

#define SAME(a, b) _Static_assert((a) == (b), #a " is " #b)
#define SAME_MEMBER(ours, our, theirs, their)                                          \
	SAME(offsetof(struct ours, our), offsetof(theirs, their));                     \
	SAME(sizeof(((struct ours *)0)->our), sizeof(((theirs *)0)->their))

SAME(sizeof(struct px_proc), sizeof(pmix_proc_t));
SAME_MEMBER(px_proc, nspace, pmix_proc_t, nspace);
SAME_MEMBER(px_proc, rank, pmix_proc_t, rank);
SAME(sizeof(struct px_value), sizeof(pmix_value_t));
SAME_MEMBER(px_value, type, pmix_value_t, type);
SAME_MEMBER(px_value, data, pmix_value_t, data);
SAME_MEMBER(px_value, data.flag, pmix_value_t, data.flag);
SAME_MEMBER(px_value, data.uint32, pmix_value_t, data.uint32);
SAME_MEMBER(px_value, data.bytes, pmix_value_t, data.bo);
SAME_MEMBER(px_value, data.bytes.bytes, pmix_value_t, data.bo.bytes);
SAME_MEMBER(px_value, data.bytes.size, pmix_value_t, data.bo.size);
SAME(sizeof(struct px_info), sizeof(pmix_info_t));
SAME_MEMBER(px_info, key, pmix_info_t, key);
SAME_MEMBER(px_info, flags, pmix_info_t, flags);
SAME_MEMBER(px_info, value, pmix_info_t, value);
SAME(PX_SUCCESS, PMIX_SUCCESS);
SAME(PX_DONE, PMIX_OPERATION_SUCCEEDED);
SAME(PX_BOOL, PMIX_BOOL);
SAME(PX_UINT32, PMIX_UINT32);
SAME(PX_BYTES, PMIX_BYTE_OBJECT);
SAME(PX_GLOBAL, PMIX_GLOBAL);
SAME(PX_RANK_ALL, PMIX_RANK_WILDCARD);
SAME(sizeof(pmix_scope_t), 1);
SAME(sizeof(pmix_status_t), sizeof(int));

START_TEST(keys)
{
	ck_assert_str_eq(PX_JOB_SIZE, PMIX_JOB_SIZE);
	ck_assert_str_eq(PX_COLLECT_DATA, PMIX_COLLECT_DATA);
}
END_TEST

/* The functions take what ours are called with. */
#define TAKES(call) _Static_assert(sizeof(call) > 0, #call)

__attribute__((unused)) static void calls(void)
{
	pmix_proc_t proc;
	pmix_value_t value;
	pmix_info_t info;
	pmix_op_cbfunc_t op = (void (*)(pmix_status_t, void *))NULL;
	pmix_value_cbfunc_t got = (void (*)(pmix_status_t, pmix_value_t *, void *))NULL;

	TAKES(PMIx_Init(&proc, &info, (size_t)0));
	TAKES(PMIx_Finalize(&info, (size_t)0));
	TAKES(PMIx_Put((uint8_t)PX_GLOBAL, "key", &value));
	TAKES(PMIx_Commit());
	TAKES(PMIx_Fence_nb(&proc, (size_t)0, &info, (size_t)1, op, NULL));
	TAKES(PMIx_Get_nb(&proc, "key", &info, (size_t)0, got, NULL));
	TAKES(PMIx_Error_string(0));
}

int main(void)
{
	Suite *s = suite_create("pmix_abi");
	TCase *c = tcase_create("pmix_abi");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, c);
	tcase_add_test(c, keys);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
#else
int main(void)
{
	const char *tap = getenv("CK_TAP_LOG_FILE_NAME");
	FILE *f = fopen(tap ? tap : "/dev/stdout", "w");

	fputs("1..0 # skip: no headers of PMIx (tests/deps launchers installs them)\n",
	      f ? f : stderr);
	return f && fclose(f);
}
#endif
