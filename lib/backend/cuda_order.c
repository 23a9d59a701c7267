#include "lib/backend/cuda_order.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/backend/cuda.h"

enum {
	NON_BLOCKING = 1, /* of a stream: it does not wait for the legacy one */
	PORTABLE = 1      /* memory of the host for all contexts */
};

struct cuda_stage {
	struct cuda_stage *next;
	int device;
	void *stream, *room;
	size_t bytes;
};

static pthread_mutex_t cuda_order_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_stage *unused_stages;

/* ---- marks ---- */

static const char cuda_captures[] = "its stream captures a CUDA graph, and a graph "
				    "can't wait for other ranks: call "
				    "it before the capture, or after";

berth_result cuda_mark(int device, void *stream, void *ready, void **mark,
		       const char **why)
{
	struct cuda_event *e;
	int captures = 0;

	*mark = NULL;
	if (cuda_load() || !cuda_enter(device)) /* card() tells it to all ranks */
		return BERTH_OK;
	*why = NULL;
	e = ready ? calloc(1, sizeof *e) : cuda_event_take(device);
	if (e && stream != BERTH_HOST_STREAM &&
	    (cuda.cuStreamIsCapturing(stream, &captures) || captures))
		*why = cuda_captures;
	else if (e && !ready && cuda.cuEventRecord(e->event, stream))
		*why = "its stream can't be used";
	if (e && ready) {
		e->event = ready;
		e->device = CUDA_FOREIGN;
		e->holders = 1;
	}
	cuda_leave();
	if (e && *why)
		cuda_event_give(e);
	else
		*mark = e;
	if (!e)
		*why = "out of memory";
	return !e ? BERTH_MEMORY : *why ? BERTH_UNSUPPORTED : BERTH_OK;
}

berth_result cuda_passed(void *mark)
{
	const struct cuda_event *e = mark;
	int rc;

	if (!cuda_enter(e->device))
		return BERTH_SYSTEM;
	rc = cuda.cuEventQuery(e->event);
	cuda_leave();
	if (rc == CUDA_NOT_READY)
		return BERTH_BUSY;
	return rc ? BERTH_SYSTEM : BERTH_OK;
}

berth_result cuda_await(void *mark, void *stream)
{
	const struct cuda_event *e = mark;
	int rc;

	if (!cuda_enter(e->device))
		return BERTH_SYSTEM;
	rc = cuda.cuStreamWaitEvent(stream, e->event, 0);
	cuda_leave();
	return rc ? BERTH_INVALID : BERTH_OK;
}

/* Operations that begin together have one mark, each beside the next. */
int cuda_await_all(void *stream, void *const *mark, size_t n)
{
	int rc = CUDA_OK;

	for (size_t i = 0; !rc && i < n; i++) {
		const struct cuda_event *e = mark[i];

		if (!i || mark[i] != mark[i - 1])
			rc = cuda.cuStreamWaitEvent(stream, e->event, 0);
	}
	return rc;
}

/* ---- stages ---- */

static struct cuda_stage *cuda_find_unused(int device, size_t bytes)
{
	struct cuda_stage **at = &unused_stages, *found;

	pthread_mutex_lock(&cuda_order_lock);
	while (*at && ((*at)->device != device || (*at)->bytes < bytes))
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&cuda_order_lock);
	return found;
}

static struct cuda_stage *cuda_make_stage(int device, size_t bytes, const char **why)
{
	struct cuda_stage *s = calloc(1, sizeof *s);
	int rc;

	*why = s ? NULL : "out of memory";
	if (s && !cuda_enter(device))
		*why = cuda_no_gpu;
	if (*why) {
		free(s);
		return NULL;
	}
	s->device = device;
	s->bytes = bytes;
	rc = cuda.cuStreamCreateWithPriority(&s->stream, NON_BLOCKING, -1);
	rc = rc ? rc : cuda.cuMemHostAlloc(&s->room, bytes, PORTABLE);
	cuda_leave();
	if (!rc)
		return s;
	*why = cuda_text(rc);
	free(s); /* where no memory can be had, a stream is the least */
	return NULL;
}

berth_result cuda_stage(int device, size_t bytes, void **stage, void **room,
			const char **why)
{
	struct cuda_stage *s;

	*why = cuda_load();
	if (*why)
		return BERTH_UNSUPPORTED;
	s = cuda_find_unused(device, bytes);
	if (!s)
		s = cuda_make_stage(device, bytes, why);
	if (!s)
		return BERTH_MEMORY;
	*stage = s;
	*room = s->room;
	return BERTH_OK;
}

void cuda_unstage(void *stage)
{
	struct cuda_stage *s = stage;

	pthread_mutex_lock(&cuda_order_lock);
	s->next = unused_stages;
	unused_stages = s;
	pthread_mutex_unlock(&cuda_order_lock);
}

berth_result cuda_copy(void *stage, const struct device_copy *copy, size_t n,
		       void *const *ready, size_t nready, void **mark)
{
	const struct cuda_stage *s = stage;
	struct cuda_event *e = NULL;
	int rc;

	if (!cuda_enter(s->device))
		return BERTH_SYSTEM;
	rc = cuda_await_all(s->stream, ready, nready);
	for (size_t i = 0; !rc && i < n; i++)
		rc = cuda.cuMemcpyAsync((uintptr_t)copy[i].to, (uintptr_t)copy[i].from,
					copy[i].bytes, s->stream);
	if (!rc && mark) {
		e = cuda_event_take(s->device);
		rc = e ? cuda.cuEventRecord(e->event, s->stream) : CUDA_NOT_READY;
		*mark = e;
	}
	cuda_leave();
	if (rc && e)
		cuda_event_give(e);
	return !rc ? BERTH_OK : mark && !e ? BERTH_MEMORY : BERTH_SYSTEM;
}
