#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/backend/device.h"
#include "tests/standin/standin.h"

const char *standin_mistake;
const char *const standin_mistakes[] = { "ready", "done",  "buffer", "record",
					 "host",  "order", "count",  "thread",
					 "moved", "free",  NULL };
static bool lacks; /* it neither scales nor has an alltoall */

struct group {
	unsigned n, me;
	void *comm, *stream, *second, *token; /* token: for barriers */
	unsigned char *buffer;
	size_t buffer_bytes;
	unsigned works;
};

struct mark {
	void *event;
	bool is_ours;
};

static bool makes(const char *mistake)
{
	return standin_mistake && !strcmp(standin_mistake, mistake);
}

void standin_enter(void)
{
	void *context;

	cuInit(0);
	cuCtxGetCurrent(&context);
	if (context)
		return;
	cuDevicePrimaryCtxRetain(&context, 0);
	cuCtxSetCurrent(context);
}

/* ---- groups ---- */

static bool find(const void *p, int *device)
{
	*device = 0;
	return standin_is_device(p);
}

static berth_result card(int device, unsigned n, unsigned me,
			 unsigned char bytes[DEVICE_CARD_BYTES],
			 char why[DEVICE_WHY_BYTES])
{
	struct nccl_id id;

	(void)device;
	snprintf(why, DEVICE_WHY_BYTES, "too many ranks");
	if (n > STANDIN_RANKS)
		return BERTH_UNSUPPORTED;
	memset(bytes, 0, DEVICE_CARD_BYTES);
	if (me || ncclGetUniqueId(&id))
		return BERTH_OK;
	memcpy(bytes, &id, sizeof id);
	return BERTH_OK;
}

static berth_result join(const struct device_join *j, void **group,
			 char why[DEVICE_WHY_BYTES])
{
	const unsigned n = j->n, me = j->me;
	struct group *g = calloc(1, sizeof *g);
	struct nccl_id id;
	int rc;

	snprintf(why, DEVICE_WHY_BYTES, "the stand-in can't");
	if (!g)
		return BERTH_MEMORY;
	*group = g;
	g->n = n;
	g->me = me;
	if (makes("death") && me == n - 1)
		raise(SIGKILL);
	standin_enter();
	memcpy(&id, j->cards, sizeof id);
	cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING);
	cuStreamCreate(&g->second, CU_STREAM_NON_BLOCKING);
	cuMemAllocAsync(&g->token, sizeof(uint64_t), g->stream);
	cuMemsetAsync(g->token, 0, sizeof(uint64_t), g->stream);
	rc = ncclCommInitRank(&g->comm, (int)n, id, (int)me, !makes("record"));
	return rc && rc != NCCL_IN_PROGRESS ? BERTH_SYSTEM : BERTH_OK;
}

static berth_result joined(void *group)
{
	struct group *g = group;
	int rc;

	ncclCommGetAsyncError(g->comm, &rc);
	if (rc == NCCL_IN_PROGRESS)
		return BERTH_BUSY;
	return rc == NCCL_INVALID_USAGE ? BERTH_UNSUPPORTED
	       : rc                     ? BERTH_SYSTEM
					: BERTH_OK;
}

static const char *takes(const void *group, const struct coll *c)
{
	(void)group;
	if (lacks &&
	    (c->scale.divide || c->scale.has_prescale || c->scale.has_postscale))
		return "the device does not scale";
	return c->kind > BERTH_SCATTER || (lacks && c->kind == BERTH_ALLTOALL)
		       ? "the device has no such operation"
		       : NULL;
}

static void look(void)
{
}

static const char *says(const void *group)
{
	(void)group;
	return NULL;
}

/* No call of a back end waits for its device (device.h): since this one began, at
 * BEFORE. */
static void has_not_waited(unsigned long before)
{
	if (standin_waits != before)
		standin_fail("a back end has waited for the device");
}

static bool has_room(struct group *g, const struct device_work *w)
{
	size_t bytes = 0;
	void *p;

	for (size_t i = 0; i < w->n; i++)
		if (w->coll[i].npieces)
			bytes += w->coll[i].count * kern_size(w->coll[i].type);
	if (bytes <= g->buffer_bytes)
		return true;
	if (g->buffer)
		cuMemFreeAsync(g->buffer, g->stream);
	if (cuMemAllocAsync(&p, bytes, g->stream))
		return false;
	g->buffer = p;
	g->buffer_bytes = bytes;
	return true;
}

static void end_all(void *group)
{
	struct group *g = group;

	if (g->comm)
		ncclCommRevoke(g->comm);
}

static void leave(void *group)
{
	const unsigned long before = standin_waits;
	struct group *g = group;

	standin_enter();
	if (g->comm)
		ncclCommDestroy(g->comm);
	if (makes("free"))
		cuMemFree(g->token);
	else
		cuMemFreeAsync(g->token, g->stream);
	if (g->buffer)
		cuMemFreeAsync(g->buffer, g->stream);
	cuStreamDestroy(g->stream);
	cuStreamDestroy(g->second);
	free(g);
	has_not_waited(before);
}

/* ---- marks ---- */

static berth_result mark(int device, void *stream, void *ready, void **out)
{
	struct mark *m;

	(void)device;
	*out = NULL;
	if (stream == BERTH_HOST_STREAM && !ready)
		return BERTH_OK;
	m = calloc(1, sizeof *m);
	if (!m)
		return BERTH_MEMORY;
	standin_enter();
	m->event = ready;
	m->is_ours = !ready;
	if (!ready) {
		cuEventCreate(&m->event);
		cuEventRecord(m->event, stream);
	}
	*out = m;
	return BERTH_OK;
}

static void forget(void *p)
{
	struct mark *m = p;

	if (m->is_ours)
		cuEventDestroy(m->event);
	free(m);
}

/* ---- operations, to NCCL's ---- */

static const char *at_element(const void *p, uint64_t at, const struct coll *c)
{
	return (const char *)p + at * kern_size(c->type);
}

static void copy_own(struct group *g, void *to, const void *from, uint64_t n,
		     const struct coll *c, void *stream)
{
	(void)g;
	if (n && to != from)
		cuMemcpyAsync(to, from, n * kern_size(c->type), stream);
}

static void reduce(struct group *g, const struct coll *c, const void *in, void *out,
		   uint64_t count, int root, void *stream)
{
	if (makes("count") && g->me == 1 && g->works == 3 && count)
		count--;
	if (count)
		ncclReduceAny(in, out, count, c->type, c->op, &c->scale, root, g->comm,
			      stream);
}

static void reduce_parts(struct group *g, const struct coll *c, void *stream)
{
	ncclGroupStart();
	for (unsigned i = 0; i < g->n; i++)
		reduce(g, c, at_element(c->in, coll_part_at(c, g->n, i), c), c->out,
		       coll_part(c, g->n, i), (int)i, stream);
	ncclGroupEnd();
}

static void send_to(struct group *g, const void *p, uint64_t n, unsigned peer,
		    const struct coll *c, void *stream)
{
	ncclSend(p, n * kern_size(c->type), (int)peer, g->comm, stream);
}

static void receive(struct group *g, const void *p, uint64_t n, unsigned peer,
		    const struct coll *c, void *stream)
{
	ncclRecv((void *)(uintptr_t)p, n * kern_size(c->type), (int)peer, g->comm,
		 stream);
}

static void move_all(struct group *g, const struct coll *c, void *stream)
{
	const bool parts = c->kind == BERTH_ALLTOALL;
	const uint64_t mine = parts ? coll_part(c, g->n, g->me) : c->count;
	const char *own =
		parts ? at_element(c->in, coll_part_at(c, g->n, g->me), c) : c->in;
	const char *to = at_element(c->out, coll_got_at(c, g->n, g->me), c);

	/* in the kernel, of which all that is sent is read first */
	ncclGroupStart();
	for (unsigned i = 0; i < g->n; i++) {
		const char *from =
			parts ? at_element(c->in, coll_part_at(c, g->n, i), c) : c->in;

		if (i == g->me && own == to)
			continue;
		send_to(g, from, parts ? coll_part(c, g->n, i) : mine, i, c, stream);
		receive(g, at_element(c->out, coll_got_at(c, g->n, i), c),
			coll_got(c, g->n, i), i, c, stream);
	}
	if (g->n == 1 && own == to) /* nothing */
		send_to(g, NULL, 0, 0, c, stream);
	ncclGroupEnd();
}

static void move_one(struct group *g, const struct coll *c, void *stream)
{
	const bool out = c->kind != BERTH_GATHER, is_root = g->me == c->root;
	const uint64_t step = c->kind == BERTH_BROADCAST ? 0 : c->count;
	const void *big = out ? c->in : c->out;

	ncclGroupStart();
	for (unsigned i = 0; is_root && i < g->n; i++) {
		const char *p = at_element(big, step * i, c);

		if (i == g->me && out)
			copy_own(g, c->out, p, c->count, c, stream);
		else if (i == g->me)
			copy_own(g, (void *)(uintptr_t)p, c->in, c->count, c, stream);
		else if (out)
			send_to(g, p, c->count, i, c, stream);
		else
			receive(g, p, c->count, i, c, stream);
	}
	if (!is_root && out)
		receive(g, c->out, c->count, c->root, c, stream);
	else if (!is_root)
		send_to(g, c->in, c->count, c->root, c, stream);
	ncclGroupEnd();
}

static void move_pieces(struct group *g, const struct coll *c, bool in, void *stream)
{
	struct standin_table t = { .n = 0 };
	const size_t size = kern_size(c->type);

	for (size_t i = 0; i < c->npieces; i++) {
		const struct coll_piece *p = &c->piece[i];
		const uint64_t end = i + 1 < c->npieces ? c->piece[i + 1].at : c->count;
		unsigned char *packed = g->buffer + p->at * size;

		t.piece[t.n].from = in ? p->in : packed;
		t.piece[t.n].to = in ? packed : p->out;
		t.piece[t.n].bytes = (end - p->at) * size;
		if (!in && makes("moved") && g->works == 4)
			t.piece[t.n].to = (char *)p->out + 65536;
		if (++t.n < STANDIN_PIECES && i + 1 < c->npieces)
			continue;
		cuLaunchMove(&t, stream);
		t.n = 0;
	}
}

static void do_coll(struct group *g, const struct coll *c, void *stream)
{
	if (c->npieces)
		move_pieces(g, c, true, stream);
	switch (c->kind) {
	case BERTH_BARRIER:
		ncclReduceAny(g->token, g->token, 1, BERTH_U64, BERTH_SUM, &c->scale,
			      -1, g->comm, stream);
		break;
	case BERTH_ALLREDUCE:
		reduce(g, c, c->npieces ? g->buffer : c->in,
		       c->npieces ? g->buffer : c->out, c->count, -1, stream);
		break;
	case BERTH_REDUCE:
		reduce(g, c, c->in, c->out, c->count, (int)c->root, stream);
		break;
	case BERTH_REDUCESCATTER:
		reduce_parts(g, c, stream);
		break;
	case BERTH_ALLGATHER:
	case BERTH_ALLTOALL:
		move_all(g, c, stream);
		break;
	default:
		move_one(g, c, stream);
	}
	if (c->npieces) {
		int rc = NCCL_IN_PROGRESS;

		while (rc == NCCL_IN_PROGRESS && !makes("record"))
			ncclCommGetAsyncError(g->comm, &rc);
		move_pieces(g, c, false, stream);
	}
}

/* ---- works ---- */

static void *in_nccl_too(void *arg)
{
	struct group *g = arg;
	int rc = 0;

	standin_enter();
	while (!rc) {
		ncclCommGetAsyncError(g->comm, &rc);
		ncclGroupStart();
		ncclSend(NULL, 0, 0, g->comm, NULL);
	}
	return NULL;
}

static void launch(struct group *g, struct device_work *w)
{
	void *s = makes("buffer") && g->works % 2 ? g->second : g->stream;
	int rc = NCCL_IN_PROGRESS;

	for (size_t i = 0; !makes("ready") && i < w->nready; i++)
		cuStreamWaitEvent(s, ((struct mark *)w->ready[i])->event);
	for (size_t i = 0; i < w->n; i++)
		do_coll(g, &w->coll[i], s);
	while (rc == NCCL_IN_PROGRESS && !makes("record"))
		ncclCommGetAsyncError(g->comm, &rc);
	cuEventRecord(w->own, s);
}

/* By mistake: launched after the next work of another group, BEFORE's. */
static struct device_work *late;
static struct group *before;

static berth_result start(void *group, struct device_work *w)
{
	struct group *g = group;
	pthread_t thread;

	standin_enter();
	if (makes("host") && w->coll->count)
		*(volatile char *)(uintptr_t)(w->coll->npieces ? w->coll->piece->in
							       : w->coll->in);
	if (!has_room(g, w))
		return BERTH_MEMORY;
	w->runs = true;
	g->works++;
	cuEventCreate(&w->own);
	if (makes("thread") && g->works == 1 && !g->me &&
	    !pthread_create(&thread, NULL, in_nccl_too, g))
		pthread_detach(thread);
	if (makes("order") && !g->me && !late && g->works == 2) {
		before = g; /* after the next one of another set */
		late = w;
		return BERTH_OK;
	}
	launch(g, w);
	if (late && before != g) {
		launch(before, late);
		late = NULL;
		before = NULL;
	}
	return BERTH_OK;
}

static berth_result test(void *group, struct device_work *w)
{
	struct group *g = group;
	int rc;

	if (w == late)
		return BERTH_BUSY;
	if (makes("done") || cuEventQuery(w->own) == CUDA_SUCCESS)
		return BERTH_OK;
	ncclCommGetAsyncError(g->comm, &rc);
	return rc && rc != NCCL_IN_PROGRESS ? BERTH_SYSTEM : BERTH_BUSY;
}

static berth_result follow(void *group, struct device_work *w, void *stream)
{
	(void)group;
	standin_enter();
	if (w != late && !makes("done"))
		cuStreamWaitEvent(stream, w->own);
	return BERTH_OK;
}

static void end(void *group, struct device_work *w)
{
	(void)group;
	cuEventDestroy(w->own);
}

static struct device_backend standin = {
	.name = "stand-in",
	.memory = BERTH_CUDA,
	.find = find,
	.card = card,
	.join = join,
	.joined = joined,
	.takes = takes,
	.look = look,
	.says = says,
	.mark = mark,
	.forget = forget,
	.start = start,
	.test = test,
	.follow = follow,
	.end = end,
	.revoke = end_all,
	.leave = leave,
};

void standin_register(void)
{
	standin_mistake = getenv("STANDIN_MISTAKE");
	lacks = getenv("STANDIN_LACKS");
	device_register(&standin);
}
