#include "lib/ops/tf_run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/tf_done.h"
#include "lib/ops/tf_kernel.h"
#include "lib/ops/tf_part.h"
#include "lib/ops/tf_status.h"

enum {
	/* Iterations of one loop that may run together: at most its
	 * parallel_iterations, which are 10 by default. */
	LOOP_WINDOW = 64,
	SHAPE_BYTES = 256
};

/* One call. */
struct flight {
	TF_OpKernelContext *ctx;
	const struct tf_kernel *k;
	struct tf_group group;
	berth_request *request;
	struct tf_done done;
	TF_Tensor *splits;
	int last; /* of a join */
	int n;
	struct berth_desc *d; /* N of them */
	struct tf_part part[];
};

static void run_drop(struct flight *f)
{
	for (int i = 0; i < f->n; i++)
		tf_part_drop(&f->part[i]);
	if (f->splits)
		TF_DeleteTensor(f->splits);
	free(f);
}

/* False: the op has failed. */
static bool run_find_group(TF_OpKernelContext *ctx, const struct tf_kernel *k,
			   struct tf_group *group)
{
	char why[128];
	bool is_found = tf_sets_group(k->attribute[TF_ATTRIBUTE_process_set_id], group,
				      why, sizeof why);

	if (!is_found)
		tf_status_fail(ctx, TF_FAILED_PRECONDITION, "%s: %s", k->label, why);
	return is_found;
}

/* A call of N tensors, with room for what its parts need of each rank.  NULL: the op
 * has failed. */
static struct flight *run_new(TF_OpKernelContext *ctx, const struct tf_kernel *k, int n)
{
	struct tf_group group = { NULL, -1, -1 };
	size_t count = (size_t)n, numbers;
	struct flight *f;
	uint64_t *number;

	if (!run_find_group(ctx, k, &group))
		return NULL;
	if (group.rank < 0 || group.ranks < 1) {
		tf_status_fail(ctx, TF_INVALID_ARGUMENT,
			       "%s: this rank is not in the process set", k->label);
		return NULL;
	}
	numbers = (size_t)tf_part_numbers(k->op->kind) * (size_t)group.ranks;
	f = calloc(1, sizeof *f + count * (sizeof *f->part + sizeof *f->d +
					   numbers * sizeof *number));
	if (!f) {
		tf_status_fail(ctx, TF_RESOURCE_EXHAUSTED, "out of memory");
		return NULL;
	}
	f->ctx = ctx;
	f->k = k;
	f->group = group;
	f->n = n;
	f->d = (struct berth_desc *)&f->part[n];
	number = (uint64_t *)&f->d[n];
	for (int i = 0; i < n; i++) {
		f->part[i].ctx = ctx;
		f->part[i].i = i;
		f->part[i].received = number + (size_t)i * numbers;
	}
	return f;
}

/* Label the operation of tensor I: a grouped op has several, and iterations of a loop
 * may run together. */
static const char *run_label(const struct flight *f, int i, char *room, size_t bytes)
{
	uint64_t frame = TF_GetFrameId(f->ctx);
	int64_t iteration = TF_GetIterId(f->ctx);
	bool is_loop = frame || iteration;

	if (f->n == 1 && !is_loop)
		return f->k->label;
	if (f->n == 1)
		snprintf(room, bytes, "%s#%d", f->k->label,
			 (int)(iteration % LOOP_WINDOW));
	else if (!is_loop)
		snprintf(room, bytes, "%s.%dof%d", f->k->label, i + 1, f->n);
	else
		snprintf(room, bytes, "%s.%dof%d#%d", f->k->label, i + 1, f->n,
			 (int)(iteration % LOOP_WINDOW));
	return room;
}

/* Describe all tensors, and give them to GIVE.  ROOM is for texts, which libberth
 * copies. */
static bool run_describe(struct flight *f, bool is_named, char *room, size_t each)
{
	const struct tf_kernel *k = f->k;

	if (k->op->kind == BERTH_ALLTOALL) {
		TF_Status *s = TF_NewStatus();

		TF_GetInput(f->ctx, 1, &f->splits, s);
		if (tf_status_end(f->ctx, s))
			return false;
	}
	for (int i = 0; i < f->n; i++) {
		char *text = room + (size_t)i * each;
		uint64_t *numbers = f->part[i].received;

		f->part[i].received = NULL;
		if (!tf_part_begin(&f->part[i], k, &f->group, f->splits, numbers, text,
				   SHAPE_BYTES, &f->d[i]))
			return false;
		if (is_named)
			f->d[i].name =
				run_label(f, i, text + SHAPE_BYTES, each - SHAPE_BYTES);
	}
	return true;
}

/* NULL: the op has failed. */
static struct flight *run_make(TF_OpKernelContext *ctx, const struct tf_kernel *k,
			       bool is_named, char **room)
{
	int n = k->op->kind == BERTH_ALLTOALL ? 1 : TF_NumInputs(ctx);
	size_t each = SHAPE_BYTES + strlen(k->label) + 64;
	struct flight *f = run_new(ctx, k, n);

	if (!f)
		return NULL;
	*room = malloc((size_t)n * each);
	if (!*room)
		tf_status_fail(ctx, TF_RESOURCE_EXHAUSTED, "out of memory");
	if (*room && run_describe(f, is_named, *room, each))
		return f;
	free(*room);
	run_drop(f);
	return NULL;
}

static void run_output_number(TF_OpKernelContext *ctx, int32_t number)
{
	TF_Status *s = TF_NewStatus();
	TF_Tensor *t = TF_AllocateOutput(ctx, 0, TF_INT32, NULL, 0, sizeof number, s);

	if (t) {
		memcpy(TF_TensorData(t), &number, sizeof number);
		TF_DeleteTensor(t);
	}
	tf_status_end(ctx, s);
}

/* The op gives its result, or fails. */
static void run_result(struct flight *f, berth_result result)
{
	if (result)
		tf_status_fail_as(f->ctx, f->k->label, result);
	else if (f->k->op->kind == TF_JOIN)
		run_output_number(f->ctx, f->last);
	else
		for (int i = 0; i < f->n; i++)
			if (!tf_part_end(&f->part[i], f->k->op->kind, f->group.ranks))
				return;
}

/* The done of a request. */
static void run_finished(void *p, berth_result result)
{
	struct flight *f = p;
	struct tf_done done;

	run_result(f, result);
	if (f->request)
		berth_wait(f->request, 0);
	/* It may be moved: libstdc++ keeps inside only what may. */
	done = f->done;
	run_drop(f);
	tf_done_run(&done); /* the last, as the context ends with it */
}

static void *run_join(void *p)
{
	struct flight *f = p;

	run_finished(f, berth_join(f->group.set, &f->last));
	return NULL;
}

/* Block until all are done. */
static berth_result run_blocking(struct flight *f)
{
	berth_request *request;
	berth_result result;

	if (f->k->op->kind == TF_JOIN)
		return berth_join(f->group.set, &f->last);
	if (f->n == 1)
		return berth_run(f->d, -1, NULL);
	result = berth_submit(f->d, (size_t)f->n, &request);
	return result ? result : berth_wait(request, -1);
}

/* Begin what run_finished() ends.  berth_join() blocks until all ranks have joined, so
 * it has a thread of its own. */
static void run_begin(struct flight *f)
{
	berth_result result;
	pthread_t thread;

	if (f->k->op->kind == TF_JOIN) {
		if (pthread_create(&thread, NULL, run_join, f))
			run_finished(f, BERTH_SYSTEM);
		else
			pthread_detach(thread);
		return;
	}
	result = berth_submit(f->d, (size_t)f->n, &f->request);
	if (!result)
		result = berth_then(f->request, run_finished, f);
	if (result)
		run_finished(f, result);
}

void tf_run_begin(void *p, TF_OpKernelContext *ctx, TF_AsyncOpKernelDoneCallback *done)
{
	struct tf_kernel *k = p;
	berth_result result = BERTH_STATE;
	char *room = NULL;
	struct flight *f = k->op->kind == TF_JOIN ? run_new(ctx, k, 0)
						  : run_make(ctx, k, true, &room);

	if (!f) {
		TF_RunAsyncOpKernelDoneCallback(done);
		return;
	}
	/* A rank alone waits for nobody, and libberth's thread would have to be woken
	 * [190 us].  BERTH_STATE: this is a callback of libberth's, in which nothing
	 * may block. */
	if (f->group.ranks == 1 && k->op->kind != TF_JOIN) {
		result = BERTH_OK;
		for (int i = 0; i < f->n && !result; i++)
			result = berth_run(&f->d[i], -1, NULL);
	}
	if (result == BERTH_STATE && tf_done_keep(&f->done, done)) {
		run_begin(f);
	} else {
		if (result == BERTH_STATE)
			result = run_blocking(f);
		run_result(f, result);
		run_drop(f);
		TF_RunAsyncOpKernelDoneCallback(done);
	}
	free(room);
}

void tf_run_now(void *p, TF_OpKernelContext *ctx)
{
	struct tf_kernel *k = p;
	char *room = NULL;
	struct flight *f = k->op->kind == TF_JOIN ? run_new(ctx, k, 0)
						  : run_make(ctx, k, false, &room);

	if (!f)
		return;
	run_result(f, run_blocking(f));
	run_drop(f);
	free(room);
}

void tf_run_scalar(void *p, TF_OpKernelContext *ctx)
{
	const struct tf_kernel *k = p;
	struct berth_world world = { .size = sizeof world };
	struct tf_group group;

	if (!run_find_group(ctx, k, &group))
		return;
	berth_world(&world);
	switch (k->op->kind) {
	case TF_SIZE:
		run_output_number(ctx, group.ranks);
		break;
	case TF_INCLUDED:
		run_output_number(ctx, group.rank >= 0);
		break;
	case TF_LOCAL_SIZE:
		run_output_number(ctx, world.local_size);
		break;
	case TF_RANK:
		run_output_number(ctx, world.rank);
		break;
	case TF_LOCAL_RANK:
		run_output_number(ctx, world.local_rank);
		break;
	}
}
