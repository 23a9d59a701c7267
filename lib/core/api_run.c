/* api_run.c - what berth.h declares of operations, requests, memory and observation. */
#include <stdlib.h>
#include <string.h>

#include "lib/backend/devices.h"
#include "lib/base/callback.h"
#include "lib/base/log.h"
#include "lib/boot/retired.h"
#include "lib/core/api.h"
#include "lib/core/engine.h"
#include "lib/core/handle.h"
#include "lib/core/op.h"
#include "lib/core/request.h"
#include "lib/core/sets.h"
#include "lib/core/trace.h"

/* ---- operations ---- */

/* D may be of another version: it has a set, and no more fields than any will have. */
static bool has_wrong_size(const struct berth_desc *d)
{
	enum { SIZE_MOST = 4096 };

	return !d || d->size < offsetof(struct berth_desc, in) || d->size > SIZE_MOST;
}

static berth_result wrong_size(const struct berth_desc *d)
{
	return api_wrong(BERTH_INVALID,
			 d ? "size is not that of struct berth_desc, as BERTH_DESC() "
			     "sets it"
			   : "d is NULL");
}

/* D is one of those that FIRST begins: structs as large as that says, which is how
 * large the caller's are. */
static berth_result submit_make(struct op *op, const struct berth_desc *d,
				const struct berth_desc *first,
				const struct berth_set *set)
{
	const char *text = d->size != first->size
				   ? "operations submitted together differ in size"
			   : d->set != first->set
				   ? "operations submitted together are of one set"
				   : op_make(op, d, set->members.n, set->members.me);

	return text ? set_refuse(d, text) : BERTH_OK;
}

static const struct berth_desc *submit_next(const struct berth_desc *d, size_t size)
{
	return (const void *)((const char *)d + size);
}

/* D's N operations as one request.  SET is entered. */
static berth_result submit_in(struct berth_set *set, const struct berth_desc *d,
			      size_t n, berth_request **request)
{
	const struct berth_desc *at = d;
	struct failure why;
	struct op one, *op = &one;
	berth_result rc = BERTH_OK;

	if (n > 1)
		op = calloc(n, sizeof *op);
	if (!op)
		return api_wrong(BERTH_MEMORY, "out of memory");
	for (size_t i = 0; !rc && i < n; i++, at = submit_next(at, d->size))
		rc = submit_make(&op[i], at, d, set);
	if (!rc) {
		rc = engine_submit(set, op, n, request, &why);
		set_tell(rc, &why);
	}
	if (n > 1)
		free(op);
	return rc;
}

/* As N requests.  (64 by way of an array of their operations: a sixth more
 * instructions.) */
static berth_result submit_each_in(struct berth_set *set, const struct berth_desc *d,
				   size_t n, berth_request **request)
{
	struct request_block *block = request_block_make(n);
	const struct berth_desc *at = d;
	struct failure why;
	struct op op;
	berth_result rc = BERTH_OK;
	size_t made = 0;

	for (; !rc && made < n; at = submit_next(at, d->size)) {
		rc = submit_make(&op, at, d, set);
		if (!rc)
			request[made] = request_make(set, &op, 1, block);
		if (!rc && !request[made])
			rc = api_wrong(BERTH_MEMORY, "out of memory");
		made += !rc;
	}
	if (block)
		request_block_close(block);
	if (!rc)
		return set_tell(engine_submit_each(set, request, n, &why), &why);
	while (made)
		request_drop(request[--made], false);
	return rc;
}

static berth_result api_submit(const struct berth_desc *d, size_t n, bool each,
			       berth_request **request)
{
	struct berth_set *set;
	berth_result rc;

	if (!n)
		return api_wrong(BERTH_INVALID, "n is 0");
	if (!request)
		return api_wrong(BERTH_INVALID,
				 each ? "requests is NULL" : "request is NULL");
	rc = has_wrong_size(d) ? wrong_size(d) : api_enter(d->set, &set);
	if (rc)
		return rc;
	rc = each ? submit_each_in(set, d, n, request) : submit_in(set, d, n, request);
	api_leave(set);
	return rc;
}

berth_result berth_submit(const struct berth_desc *d, size_t n, berth_request **request)
{
	return api_submit(d, n, false, request);
}

berth_result berth_submit_each(const struct berth_desc *d, size_t n,
			       berth_request **requests)
{
	return api_submit(d, n, true, requests);
}

berth_result berth_run(const struct berth_desc *d, int64_t slice_ms,
		       berth_request **later)
{
	struct berth_set *set;
	berth_result rc;

	if (has_wrong_size(d))
		return wrong_size(d);
	if (callback_runs())
		return api_may_wait();
	if (slice_ms >= 0 && !later)
		return api_wrong(BERTH_INVALID, "later is NULL");
	set = handle_enter(d->set); /* not api_enter(): SET stays in a register, 2 ns */
	if (!api_can_begin(set))
		return api_refuse(set, d->set);
	rc = slice_ms < 0 ? set_run(set, d) : set_run_for(set, d, slice_ms, later);
	api_leave(set);
	return rc;
}

berth_result berth_join(berth_set *given, int *last)
{
	struct failure why;
	struct berth_set *set;
	unsigned place = 0;
	berth_result rc = api_may_wait();

	if (!rc)
		rc = api_enter(given, &set);
	if (rc)
		return rc;
	rc = engine_join(set, &place, &why);
	if (!rc && last)
		*last = (int)set->members.rank[place];
	rc = set_tell(rc, &why);
	api_leave(set);
	return rc;
}

/* ---- requests ---- */

static berth_result api_check(const berth_request *request)
{
	if (!request)
		return api_wrong(BERTH_INVALID, "request is NULL");
	return request_is_ours(request) ? BERTH_OK : api_too_late(NULL);
}

static berth_result api_tell(berth_result rc, const struct failure *why)
{
	return rc == BERTH_BUSY ? rc : set_tell(rc, why);
}

berth_result berth_poll(berth_request *request)
{
	struct failure why;
	berth_result rc = api_check(request);

	return rc ? rc : api_tell(engine_poll(request, &why), &why);
}

/* A callback may end its own request, or another that is done. */
berth_result berth_wait(berth_request *request, int64_t timeout_ms)
{
	struct failure why;
	berth_result rc = api_check(request);

	if (!rc && callback_runs() && engine_poll(request, &why) == BERTH_BUSY)
		rc = api_may_wait();
	return rc ? rc : api_tell(engine_wait(request, timeout_ms, &why), &why);
}

berth_result berth_wait_any(berth_request *const *requests, size_t n,
			    int64_t timeout_ms, size_t *which)
{
	struct failure why;
	size_t given = 0;
	berth_result rc = api_may_wait();

	if (!rc && (!requests || !which))
		rc = api_wrong(BERTH_INVALID,
			       which ? "requests is NULL" : "which is NULL");
	for (size_t i = 0; !rc && i < n; i++) {
		given += requests[i] != NULL;
		rc = requests[i] ? api_check(requests[i]) : BERTH_OK;
	}
	if (!rc && !given)
		rc = api_wrong(BERTH_INVALID, "there is no request to wait for");
	return rc ? rc
		  : api_tell(engine_wait_any(requests, n, timeout_ms, which, &why),
			     &why);
}

berth_result berth_then(berth_request *request,
			void (*done)(void *ctx, berth_result result), void *ctx)
{
	berth_result rc = api_check(request);

	if (!rc && !done)
		rc = api_wrong(BERTH_INVALID, "done is NULL");
	if (!rc && request_then(request, done, ctx))
		rc = api_wrong(BERTH_STATE, "the request has a callback already");
	return rc;
}

berth_result berth_wait_stream(berth_request *request, void *stream, int64_t timeout_ms)
{
	struct failure why;
	berth_result rc;

	rc = api_check(request);
	if (!rc && callback_runs() && engine_poll(request, &why) == BERTH_BUSY)
		rc = api_may_wait();
	if (rc)
		return rc;
	rc = engine_wait_stream(request, stream, timeout_ms, &why);
	return rc == BERTH_BUSY ? rc : api_tell(rc, &why);
}

/* ---- memory ---- */

static berth_result check_memory(berth_memory memory, int device)
{
	if (memory > BERTH_CUDA)
		return api_wrong(BERTH_INVALID, "no such memory");
	if (memory == BERTH_CUDA)
		return BERTH_OK;
	return device ? api_wrong(BERTH_INVALID, "the host has no device but 0")
		      : BERTH_OK;
}

void *berth_alloc(size_t bytes, berth_memory memory, int device)
{
	const struct memory *m = &api_world.memory;
	const char *why = m->heap ? "the heap that ranks of this host share is full"
				  : "the heap that ranks of this host share can't be "
				    "mapped";
	berth_result rc = BERTH_OK;
	struct berth_set *set;
	void *p = NULL;

	if (check_memory(memory, device) || api_enter(NULL, &set))
		return NULL;
	if (memory == BERTH_CUDA)
		rc = device_of(memory)->alloc(device, bytes, &p, &why);
	else
		p = memory_give(&api_world.memory, bytes);
	if (rc || !p)
		api_wrong(rc ? rc : BERTH_MEMORY, why);
	else if (memory == BERTH_CUDA)
		device_look();
	api_leave(set);
	return rc ? NULL : p;
}

void berth_free(void *p)
{
	struct berth_set *set;
	berth_memory memory;
	int device;

	if (!p)
		return;
	memory = device_is_there ? device_find(p, &device) : BERTH_HOST;
	if (memory != BERTH_HOST) {
		device_of(memory)->discard(p, device);
		return;
	}
	set = handle_enter(NULL);
	if (set) {
		if (!memory_free(&api_world.memory, p))
			retired_try(p);
		api_leave(set);
	} else if (api_has_left()) {
		retired_free(p);
	}
}

berth_result berth_register(void *p, size_t bytes, berth_memory memory, int device)
{
	struct berth_set *set;
	berth_result rc = p ? check_memory(memory, device)
			    : api_wrong(BERTH_INVALID, "p is NULL");

	(void)bytes;
	if (!rc && memory == BERTH_CUDA && device_find(p, &device) != memory)
		rc = api_wrong(BERTH_INVALID, "p is not in the memory of a GPU");
	if (!rc)
		rc = api_enter(NULL, &set);
	if (!rc)
		api_leave(set);
	return rc;
}

berth_result berth_deregister(void *p)
{
	return berth_register(p, 0, BERTH_ANYWHERE, 0);
}

/* ---- observation ---- */

berth_result berth_metrics(struct berth_metrics *m)
{
	struct berth_metrics sum;
	struct berth_set *set;
	berth_result rc = api_enter(NULL, &set);

	if (rc)
		return rc;
	set_count_all(&api_world, &sum);
	api_leave(set);
	if (!m || m->size < sizeof m->size)
		return api_wrong(BERTH_INVALID,
				 "size is not that of struct berth_metrics");
	api_give(m, m->size, &sum, sizeof sum);
	return BERTH_OK;
}

size_t berth_algorithms(char *text, size_t bytes)
{
	struct berth_set *set;
	size_t n;

	if (bytes)
		*text = '\0';
	if (api_may_wait() || api_enter(NULL, &set))
		return 0;
	n = engine_algorithms(set, text, bytes);
	api_leave(set);
	return n;
}

berth_result berth_timeline_start(const char *path)
{
	char why[256];
	struct berth_set *set;
	berth_result rc;

	if (!path || !*path)
		return api_wrong(BERTH_INVALID, "no path for the timeline");
	rc = api_enter(NULL, &set);
	if (rc)
		return rc;
	rc = timeline_start(path, api_world.who.rank, api_world.who.clock_offset_ns,
			    why, sizeof why);
	api_leave(set);
	return rc ? log_error(rc, "", NULL, 0, "%s", why) : BERTH_OK;
}

berth_result berth_timeline_stop(void)
{
	char why[256];
	berth_result rc = timeline_stop(TIMELINE_CALLER, why, sizeof why);

	return rc ? api_wrong(rc, why) : BERTH_OK;
}
