/* lib/ops in a TensorFlow that is not there (tests/standin/tensorflow.h): what it
 * registers, the shapes, and what kernels do in a world of one rank.
 * takes_s: 0 */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/berth.h"
#include "lib/ops/tf_done.h"
#include "lib/ops/tf_register.h"
#include "lib/ops/tf_sets.h"
#include "tests/standin/tensorflow.h"

enum { ROWS = 3, WIDTH = 2, LONG_MS = 20000 };

static const int64_t sizes[] = { ROWS, WIDTH };
static atomic_int done_times, copies;
static TF_OpKernelContext ctx;

/* ---- a std::function of libstdc++ ---- */

static bool on_manage(void *to, const void *from, int what)
{
	(void)to;
	(void)from;
	copies += what == 2 ? 1 : -1;
	return false;
}

static void on_invoke(const void *functor)
{
	(void)functor;
	done_times++;
}

static struct tf_done callback = { .manage = on_manage, .invoke = on_invoke };

/* ---- what the tests share ---- */

static void begin(void)
{
	ck_assert_int_eq(berth_init(NULL), BERTH_OK);
}

static void end(void)
{
	ck_assert_int_eq(berth_shutdown(), BERTH_OK);
	ck_assert_int_eq(standin_tensors(), 0);
}

static int64_t bits_of(double x)
{
	int64_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* Of all attributes that an op may have. */
static TF_OpKernelConstruction node(const char *name, int64_t set, int64_t root)
{
	return (TF_OpKernelConstruction){ .node = name,
					  .attribute = {
						  { "process_set_id", set },
						  { "ignore_name_scope", 1 },
						  { "root_rank", root },
						  { "reduce_op", BERTH_SUM },
						  { "prescale_bits", bits_of(2) },
						  { "postscale_bits", bits_of(1) },
						  { "num_tensors", 2 } } };
}

/* One more input, with the numbers from 1 on. */
static void give(TF_DataType type, int ndims, const int64_t *dims)
{
	TF_Tensor *t = standin_tensor(type, 4, ndims, dims);

	for (int i = 0; i < TF_TensorElementCount(t); i++)
		if (type == TF_FLOAT)
			((float *)t->data)[i] = (float)(i + 1);
		else
			((int32_t *)t->data)[i] = i + 1;
	ctx.in[ctx.inputs++] = t;
}

static void run_kernel(const char *op, TF_OpKernelConstruction c)
{
	const struct TF_KernelBuilder *b = standin_kernel(op, "CPU");
	void *kernel = b->make(&c);

	ck_assert_msg(kernel != NULL, "%s", c.status.text);
	if (b->now)
		b->now(kernel, &ctx);
	else
		b->begin(kernel, &ctx, (TF_AsyncOpKernelDoneCallback *)&callback);
	for (int i = 0; b->begin && (!done_times || copies) && i < LONG_MS; i++)
		usleep(1000);
	ck_assert_int_eq(done_times, b->now ? 0 : 1);
	ck_assert_int_eq(copies, 0);
	done_times = 0;
	b->drop(kernel);
}

static void forget(void)
{
	for (int i = 0; i < STANDIN_TENSORS; i++) {
		if (ctx.in[i])
			TF_DeleteTensor(ctx.in[i]);
		if (ctx.out[i])
			TF_DeleteTensor(ctx.out[i]);
	}
	ctx = (TF_OpKernelContext){ 0 };
}

/* It has failed, so. */
static void failed(TF_Code code, const char *text)
{
	ck_assert_str_eq(ctx.status.text, text);
	ck_assert_int_eq(ctx.status.code, code);
	forget();
}

/* Output I has ROWS_ rows of the numbers from 1 on, each FACTOR times. */
static void has_rows(int i, int64_t rows, float factor)
{
	const TF_Tensor *t = ctx.out[i];

	ck_assert_str_eq(ctx.status.text, "");
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(t->ndims, 2);
	ck_assert_int_eq(t->dims[0], rows);
	ck_assert_int_eq(t->dims[1], WIDTH);
	for (int n = 0; n < rows * WIDTH; n++)
		ck_assert_float_eq(((const float *)t->data)[n],
				   factor * (float)(n + 1));
}

static void has_number(int i, int32_t number)
{
	ck_assert_str_eq(ctx.status.text, "");
	ck_assert_int_eq(ctx.out[i]->type, TF_INT32);
	ck_assert_int_eq(*(const int32_t *)ctx.out[i]->data, number);
}

/* ---- what is registered ---- */

START_TEST(ops_are_declared)
{
	const struct TF_KernelBuilder *b;

	ck_assert_uint_eq(standin_ops(), 9 * 2 + 5);
	ck_assert_str_eq(
		standin_op("BerthBroadcastNow")->text,
		"in:tensor: T, out:output: T, attr:T: {uint8, int8, int32, int64, "
		"float16, bfloat16, float32, float64, uint16, int16, uint32, "
		"uint64, bool}, attr:process_set_id: int = 0, "
		"attr:ignore_name_scope: int = 0, attr:root_rank: int");
	ck_assert_str_eq(standin_op("BerthJoin")->text, "out:output: int32, stateful");
	ck_assert_str_eq(standin_op("BerthSize")->text,
			 "out:output: int32, attr:process_set_id: int = 0, stateful");
	b = standin_kernel("BerthAlltoall", "GPU");
	ck_assert(b->begin && !b->now);
	ck_assert_str_eq(b->host, "tensor, splits, output, received_splits");
	b = standin_kernel("BerthAlltoallNow", "CPU");
	ck_assert(!b->begin && b->now);
	ck_assert_str_eq(b->host, ""); /* else no input's memory is taken */
	ck_assert_str_eq(berth_tf_wrong(),
			 "this TensorFlow was not built with libstdc++");
}
END_TEST

START_TEST(kernels_without_an_attribute)
{
	TF_OpKernelConstruction c = { .node = "x" };

	ck_assert_ptr_null(standin_kernel("BerthBroadcast", "CPU")->make(&c));
	ck_assert_str_eq(c.status.text, "process_set_id");
}
END_TEST

/* ---- shapes ---- */

static TF_ShapeInferenceContext shapes(const char *op, TF_ShapeHandle in, TF_Status *s)
{
	TF_ShapeInferenceContext c = { .in = { in, in }, .inputs = 2 };

	*s = (TF_Status){ 0 };
	standin_op(op)->shape(&c, s);
	return c;
}

START_TEST(shapes_of_outputs)
{
	const TF_ShapeHandle matrix = { 2, { 5, 7 } }, unknown = { -1, { 0 } },
			     number = { 0, { 0 } };
	TF_ShapeInferenceContext c;
	TF_Status s;

	c = shapes("BerthGroupedAllreduce", matrix, &s);
	ck_assert_int_eq(c.out[1].rank, 2);
	ck_assert_int_eq(c.out[1].dims[0], 5);
	c = shapes("BerthGroupedAllgather", matrix, &s);
	ck_assert_int_eq(c.out[1].rank, 2);
	ck_assert_int_eq(c.out[1].dims[0], -1);
	ck_assert_int_eq(c.out[1].dims[1], 7);
	c = shapes("BerthAllgather", unknown, &s);
	ck_assert_int_eq(c.out[0].rank, -1);
	ck_assert_int_eq(s.code, TF_OK);
	c = shapes("BerthAlltoall", matrix, &s);
	ck_assert_int_eq(c.out[1].rank, 1);
	ck_assert_int_eq(c.out[1].dims[0], -1);
	c = shapes("BerthSize", matrix, &s);
	ck_assert_int_eq(c.out[0].rank, 0);
	shapes("BerthAlltoall", number, &s);
	ck_assert_str_eq(
		s.text,
		"a tensor of one dimension or more is needed: this one has none");
	shapes("BerthReducescatter", number, &s);
	ck_assert_int_eq(s.code, TF_INVALID_ARGUMENT);
}
END_TEST

/* ---- kernels ---- */

/* Of graphs, and of eager mode. */
static const char *const modes[] = { "", "Now" };

static const char *op_of(const char *name, int mode)
{
	static char op[64];

	snprintf(op, sizeof op, "Berth%s%s", name, modes[mode]);
	return op;
}

START_TEST(collectives_of_one_tensor)
{
	static const struct {
		const char *name;
		float factor;
	} each[] = { { "Allreduce", 2 },
		     { "Allgather", 1 },
		     { "Broadcast", 1 },
		     { "Reducescatter", 2 } };

	for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
		const char *op = op_of(each[i].name, _i);

		give(TF_FLOAT, 2, sizes);
		run_kernel(op, node(_i ? op : "scope/x", 0, 0));
		has_rows(0, ROWS, each[i].factor);
		forget();
	}
}
END_TEST

START_TEST(collectives_of_several)
{
	static const struct {
		const char *name;
		float factor;
	} each[] = { { "GroupedAllreduce", 2 },
		     { "GroupedAllgather", 1 },
		     { "GroupedReducescatter", 2 } };

	for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
		give(TF_FLOAT, 2, sizes);
		give(TF_FLOAT, 2, sizes);
		ctx.iteration = (int64_t)i;
		run_kernel(op_of(each[i].name, _i), node("x", 0, 0));
		has_rows(0, ROWS, each[i].factor);
		has_rows(1, ROWS, each[i].factor);
		forget();
	}
}
END_TEST

START_TEST(rows_to_each)
{
	static const int64_t one = 1, none = 0;

	for (int n = 0; n < 2; n++) {
		give(TF_FLOAT, 2, sizes);
		give(TF_INT32, 1, n ? &none : &one); /* the split: 1 */
		run_kernel(op_of("Alltoall", _i), node("x", 0, 0));
		has_rows(0, n ? ROWS : 1, 1);
		has_number(1, n ? ROWS : 1);
		forget();
	}
}
END_TEST

static void alltoall_of(int32_t split, int64_t splits)
{
	give(TF_FLOAT, 2, sizes);
	give(TF_INT32, 1, &splits);
	*(int32_t *)ctx.in[1]->data = split;
	run_kernel("BerthAlltoallNow", node("x", 0, 0));
}

START_TEST(splits_that_are_wrong)
{
	static const char sum[] =
		"the entries of splits have to be 0 or more, and their sum "
		"at most the 3 rows of the tensor";

	alltoall_of(1, 2);
	failed(TF_INVALID_ARGUMENT,
	       "splits has 2 entries: it has to have one for each of 1 ranks");
	alltoall_of(-1, 1);
	failed(TF_INVALID_ARGUMENT, sum);
	alltoall_of(ROWS + 1, 1);
	failed(TF_INVALID_ARGUMENT, sum);
}
END_TEST

/* A row of no elements: the ranks still learn how many rows come. */
START_TEST(rows_without_elements)
{
	static const int64_t empty[] = { ROWS, 0 };

	give(TF_FLOAT, 2, empty);
	run_kernel(op_of("Allgather", _i), node("x", 0, 0));
	ck_assert_str_eq(ctx.status.text, "");
	ck_assert_int_eq(ctx.out[0]->dims[0], ROWS);
	forget();
}
END_TEST

START_TEST(arguments_that_are_wrong)
{
	TF_OpKernelConstruction c = node("BerthAllreduceNow", 0, 0);

	give(TF_FLOAT, 2, sizes);
	run_kernel("BerthBroadcast", node("x", 0, 1));
	failed(TF_INVALID_ARGUMENT, "broadcast: root rank 1 is not in the process set");
	give(TF_FLOAT, 0, NULL);
	run_kernel("BerthAllgather", node("a/x", 0, 0));
	failed(TF_INVALID_ARGUMENT, "allgather.x: a tensor of one dimension or more is "
				    "needed: this one has none");
	give(TF_FLOAT, 2, sizes);
	run_kernel("BerthAllreduce", node("x", 5, 0));
	failed(TF_FAILED_PRECONDITION,
	       "allreduce.x: there is no process set 5: it is not "
	       "added yet, or was removed");
	give(TF_FLOAT, 2, sizes);
	run_kernel("BerthAlltoall", node("x", 0, 0)); /* without splits */
	failed(TF_INVALID_ARGUMENT, "there is no such input");
	c.attribute[3].value = 99; /* no berth_op */
	give(TF_FLOAT, 2, sizes);
	run_kernel("BerthAllreduceNow", c);
	ck_assert_int_eq(ctx.status.code, TF_INVALID_ARGUMENT);
	ck_assert_int_eq(strncmp(ctx.status.text, "libberth: ", 10), 0);
	forget();
}
END_TEST

START_TEST(numbers_of_the_world)
{
	static const struct {
		const char *op;
		int32_t number;
	} each[] = { { "BerthSize", 1 },
		     { "BerthProcessSetIncluded", 1 },
		     { "BerthLocalSize", 1 },
		     { "BerthRank", 0 },
		     { "BerthLocalRank", 0 } };

	for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
		run_kernel(each[i].op, node("x", 0, 0));
		has_number(0, each[i].number);
		forget();
	}
	run_kernel("BerthSize", node("x", 3, 0));
	ck_assert_int_eq(ctx.status.code, TF_FAILED_PRECONDITION);
	forget();
}
END_TEST

START_TEST(join)
{
	run_kernel(op_of("Join", _i), node("x", 0, 0));
	has_number(0, 0);
	forget();
}
END_TEST

START_TEST(sets_by_number)
{
	berth_set *set;
	const int me = 0;

	ck_assert_int_eq(berth_set_add(&me, 1, &set), BERTH_OK);
	ck_assert_int_ne(berth_tf_set(0, set, 1), 0);
	ck_assert_int_eq(berth_tf_set(40, set, 1), 0);
	give(TF_FLOAT, 2, sizes);
	run_kernel("BerthAllreduce", node("x", 40, 0));
	has_rows(0, ROWS, 2);
	forget();
	ck_assert_int_eq(berth_tf_set(40, NULL, 0), 0);
	run_kernel("BerthSize", node("x", 40, 0));
	ck_assert_int_eq(ctx.status.code, TF_FAILED_PRECONDITION);
	forget();
}
END_TEST

START_TEST(before_init)
{
	give(TF_FLOAT, 2, sizes);
	run_kernel("BerthAllreduce", node("x", 0, 0));
	failed(TF_FAILED_PRECONDITION,
	       "allreduce.x: Horovod has not been initialized; use hvd.init().");
	run_kernel("BerthRank", node("x", 0, 0));
	ck_assert_int_eq(ctx.status.code, TF_FAILED_PRECONDITION);
}
END_TEST

/* A callback of another layout is run before the kernel returns. */
START_TEST(callback_of_another_layout)
{
	int word = 0;
	struct tf_done kept, other = callback;

	memcpy(&other.manage, &(void *){ &word }, sizeof other.manage);
	ck_assert(!tf_done_keep(&kept, (TF_AsyncOpKernelDoneCallback *)&other));
	run_kernel("BerthJoin", node("x", 0, 0));
	has_number(0, 0);
	forget();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ops");
	TCase *alone = tcase_create("alone"), *c = tcase_create("world");
	SRunner *r;
	int failures;

	tcase_add_test(alone, ops_are_declared);
	tcase_add_test(alone, kernels_without_an_attribute);
	tcase_add_test(alone, shapes_of_outputs);
	tcase_add_test(alone, before_init);
	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, begin, end);
	tcase_add_loop_test(c, collectives_of_one_tensor, 0, 2);
	tcase_add_loop_test(c, collectives_of_several, 0, 2);
	tcase_add_loop_test(c, rows_to_each, 0, 2);
	tcase_add_test(c, splits_that_are_wrong);
	tcase_add_loop_test(c, rows_without_elements, 0, 2);
	tcase_add_test(c, arguments_that_are_wrong);
	tcase_add_test(c, numbers_of_the_world);
	tcase_add_loop_test(c, join, 0, 2);
	tcase_add_test(c, sets_by_number);
	tcase_add_test(c, callback_of_another_layout);
	suite_add_tcase(s, alone);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failures = srunner_ntests_failed(r);
	srunner_free(r);
	return failures ? 1 : 0;
}
