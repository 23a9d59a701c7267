#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/backend/move.h"
#include "tests/standin/standin.h"

enum { STREAMS = 512, ALLOCS = 1 << 18, PAGE = 4096 };
static const size_t ARENA = (size_t)1 << 34;

struct item {
	void (*run)(void *arg);
	struct item *next;
	max_align_t arg[];
};

struct stream {
	pthread_mutex_t lock;
	pthread_cond_t bell;
	struct item *first, **last;
	uint64_t queued, done;
	unsigned seed;
	struct stream *gone; /* the one that was destroyed before it */
	bool blocking, ends; /* blocking: it orders itself with the legacy stream */
	/* of the library's, which makes its streams by another call than programs do */
	bool is_library;
	bool captures;
	struct stream *second; /* by mistake: of every other work */
	_Atomic unsigned records;
};

struct event {
	struct stream *s;
	uint64_t n;
};

static struct stream *stream[STREAMS], *legacy, *gone;
static unsigned nstreams, made;
static unsigned char *device, *alias;
static int arena;
static struct {
	size_t at, bytes;
	bool lives;
} alloc[ALLOCS]; /* in the order of places, which are not used again */
static unsigned nallocs;
static size_t top = PAGE;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local void *stack[16];
static _Thread_local unsigned depth; /* of contexts */
static uint64_t newest, early;       /* of cuMemAllocAsync(); early: freed by mistake */
static _Thread_local bool in_stream;
static _Thread_local int capture_mode; /* 0: global; 2: relaxed */
static _Atomic bool captures, capture_ended;
/* The host's memory that the device can reach. */
static struct pinned {
	struct pinned *next;
	uintptr_t at;
	size_t bytes;
} * pinned;

long standin_number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : otherwise;
}

void standin_fail(const char *text)
{
	fprintf(stderr, "STANDIN: %s\n", text);
	fflush(stderr);
	_exit(STANDIN_EXIT);
}

bool standin_makes(const char *mistake)
{
	const char *mine = getenv("STANDIN_MISTAKE");

	return mine && !strcmp(mine, mistake);
}

bool standin_is_device(const void *p)
{
	return device && (const unsigned char *)p >= device &&
	       (const unsigned char *)p < device + ARENA;
}

/* The last allocation that begins at AT or before it. */
static unsigned find(size_t at)
{
	unsigned from = 0, to = nallocs;

	while (to - from > 1) {
		unsigned middle = (from + to) / 2;

		if (alloc[middle].at <= at)
			from = middle;
		else
			to = middle;
	}
	return from;
}

void *standin_touch(const void *p, size_t bytes)
{
	const size_t at = (size_t)((const unsigned char *)p - device);
	unsigned i;
	bool lives;

	if (!standin_is_device(p))
		return (void *)(uintptr_t)p;
	if (!in_stream)
		standin_fail("device memory was touched outside of a stream");
	pthread_mutex_lock(&lock);
	i = find(at);
	lives = nallocs && alloc[i].lives && at >= alloc[i].at &&
		at + bytes <= alloc[i].at + alloc[i].bytes;
	pthread_mutex_unlock(&lock);
	if (!lives)
		standin_fail("a stream touched device memory that is not allocated, or "
			     "not any more");
	return alias + at;
}

/* ---- streams ---- */

static void take_done(struct stream *s, struct item *i)
{
	pthread_mutex_lock(&s->lock);
	s->first = i->next;
	if (!s->first)
		s->last = &s->first;
	s->done++;
	pthread_cond_broadcast(&s->bell);
	pthread_mutex_unlock(&s->lock);
	free(i);
}

static void *serve(void *arg)
{
	struct stream *s = arg;
	const unsigned delay = (unsigned)standin_number("STANDIN_DELAY_US", 200);

	in_stream = true;
	for (;;) {
		struct item *i;

		pthread_mutex_lock(&s->lock);
		while (!s->first && !s->ends)
			pthread_cond_wait(&s->bell, &s->lock);
		i = s->first;
		pthread_mutex_unlock(&s->lock);
		if (!i)
			return NULL;
		if (delay && rand_r(&s->seed) % 2)
			usleep((unsigned)rand_r(&s->seed) % delay);
		i->run(i->arg);
		take_done(s, i);
	}
}

/* A destroyed stream stays, for events; its place is not used again. */
static struct stream *make(bool blocking)
{
	struct stream *s = calloc(1, sizeof *s);
	pthread_t thread;

	if (!s)
		standin_fail("no memory for a stream");
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->bell, NULL);
	s->last = &s->first;
	s->blocking = blocking;
	pthread_mutex_lock(&streams_lock);
	s->seed = (unsigned)(standin_number("STANDIN_SEED", 1) * 1000 +
			     getpid() % 7 * 131 + (long)made++);
	if (nstreams == STREAMS)
		standin_fail("too many streams");
	stream[nstreams++] = s;
	pthread_mutex_unlock(&streams_lock);
	if (pthread_create(&thread, NULL, serve, s))
		standin_fail("no thread for a stream");
	pthread_detach(thread);
	standin_hold(STANDIN_STREAMS, 1);
	return s;
}

static uint64_t queued(struct stream *s)
{
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	n = s->queued;
	pthread_mutex_unlock(&s->lock);
	return n;
}

static void await(struct stream *s, uint64_t n)
{
	pthread_mutex_lock(&s->lock);
	while (s->done < n)
		pthread_cond_wait(&s->bell, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

static void run_wait(void *arg)
{
	const struct event *e = arg;

	await(e->s, e->n);
}

static void put(struct stream *s, void (*run)(void *), const void *arg, size_t bytes)
{
	struct item *i = malloc(sizeof *i + bytes);

	if (!i)
		standin_fail("no memory for a stream's item");
	i->run = run;
	i->next = NULL;
	memcpy(i->arg, arg, bytes);
	pthread_mutex_lock(&s->lock);
	if (s->ends)
		standin_fail("a stream is used after its end");
	*s->last = i;
	s->last = &i->next;
	s->queued++;
	pthread_cond_broadcast(&s->bell);
	pthread_mutex_unlock(&s->lock);
}

/* The library records two events for each work: when it runs, and when it is done. */
static struct stream *of(void *handle)
{
	struct stream *s = (uintptr_t)handle > 2 ? handle : legacy;

	return s->second && s->records / 2 % 2 ? s->second : s;
}

static bool is_library(void *handle)
{
	return (uintptr_t)handle > 2 && ((struct stream *)handle)->is_library;
}

void standin_enqueue(void *handle, void (*run)(void *), const void *arg, size_t bytes)
{
	struct stream *s = of(handle);

	if (s->captures)
		standin_fail("work for a stream that captures");
	pthread_mutex_lock(&streams_lock);
	for (unsigned i = 0; i < nstreams; i++) { /* the legacy stream's rule */
		struct stream *other = stream[i];
		const bool waits = (s == legacy && other->blocking) ||
				   (s->blocking && other == legacy);
		const struct event e = { other,
					 waits && other != s ? queued(other) : 0 };

		if (e.n)
			put(s, run_wait, &e, sizeof e);
	}
	put(s, run, arg, bytes);
	pthread_mutex_unlock(&streams_lock);
}

/* ---- contexts, memory ---- */

int cuInit(unsigned flags)
{
	(void)flags;
	pthread_mutex_lock(&lock);
	if (!device) {
		arena = memfd_create("device", MFD_CLOEXEC);
		if (arena < 0 || ftruncate(arena, (off_t)ARENA))
			standin_fail("no memory");
		device = mmap(NULL, ARENA, PROT_NONE, MAP_SHARED | MAP_NORESERVE, arena,
			      0);
		alias = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_NORESERVE, arena, 0);
		if (device == MAP_FAILED || alias == MAP_FAILED)
			standin_fail("no memory");
		madvise(alias, ARENA, MADV_DONTDUMP);
		legacy = make(false);
	}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

int cuDriverGetVersion(int *version)
{
	*version = (int)standin_number("STANDIN_DRIVER", 12000);
	return CUDA_SUCCESS;
}

int cuDeviceGet(int *dev, int ordinal)
{
	*dev = ordinal;
	return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

int cuDeviceGetCount(int *n)
{
	*n = 1;
	return CUDA_SUCCESS;
}

int cuDeviceGetName(char *text, int bytes, int dev)
{
	(void)dev;
	snprintf(text, (size_t)bytes, "a stand-in of a GPU");
	return CUDA_SUCCESS;
}

int cuDeviceGetPCIBusId(char *text, int bytes, int dev)
{
	const bool shared = getenv("STANDIN_GPU") || getenv("STANDIN_BUS");

	snprintf(text, (size_t)bytes, "%04x:17:00.%d", shared ? 0 : getpid() & 0xffff,
		 dev);
	return CUDA_SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int dev)
{
	enum { MAJOR = 75 };

	(void)dev;
	*value = attribute == MAJOR ? 8 : 0;
	return CUDA_SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int dev)
{
	static char contexts[8];

	*context = &contexts[dev & 7];
	standin_hold(STANDIN_CONTEXTS, 1);
	return CUDA_SUCCESS;
}

int cuCtxPushCurrent(void *context)
{
	if (depth == sizeof stack / sizeof *stack)
		standin_fail("a thread has too many contexts");
	stack[depth++] = context;
	standin_hold(STANDIN_CURRENT, 1);
	return CUDA_SUCCESS;
}

int cuCtxPopCurrent(void **context)
{
	if (!depth)
		standin_fail("a thread gives back a context that it does not have");
	*context = stack[--depth];
	standin_hold(STANDIN_CURRENT, -1);
	return CUDA_SUCCESS;
}

void standin_enter(void)
{
	void *context;

	cuInit(0);
	cuDevicePrimaryCtxRetain(&context, 0);
	if (!depth)
		cuCtxPushCurrent(context);
}

int cuGetErrorString(int rc, const char **text)
{
	*text = rc ? "an error of the stand-in" : "no error";
	return CUDA_SUCCESS;
}

int cuDeviceGetUuid(char *uuid, int dev)
{
	const char *name = getenv("STANDIN_GPU");

	memset(uuid, 0, 16);
	if (name)
		snprintf(uuid, 16, "%s", name);
	else
		snprintf(uuid, 16, "gpu%d of %d", dev, getpid());
	return CUDA_SUCCESS;
}

static void needs_context(void)
{
	if (!depth && !in_stream)
		standin_fail("a call without a current context in this thread");
}

/* A call that may wait ends a capture of the process, unless its thread is relaxed. */
static void ends_capture(void)
{
	if (captures && capture_mode != 2 && !in_stream)
		capture_ended = true;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	const int before = capture_mode;

	if (!standin_makes("capture"))
		capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

static uint64_t take_memory(size_t bytes)
{
	uint64_t p;

	needs_context();
	pthread_mutex_lock(&lock);
	if (nallocs == ALLOCS || top + bytes + 2 * PAGE > ARENA)
		standin_fail("the device's memory is used up");
	alloc[nallocs].at = top;
	alloc[nallocs].bytes = bytes;
	alloc[nallocs++].lives = true;
	memset(alias + top, 0xff, bytes);
	p = (uintptr_t)(device + top);
	top += (bytes + 2 * PAGE - 1) / PAGE * PAGE;
	pthread_mutex_unlock(&lock);
	standin_hold(STANDIN_ALLOCS, 1);
	standin_hold(STANDIN_BYTES, (long)bytes);
	return p;
}

/* Memory of this process alone is in use. */
int cuMemGetInfo(size_t *unused, size_t *all)
{
	needs_context();
	pthread_mutex_lock(&lock);
	*all = *unused = ARENA;
	for (unsigned i = 0; i < nallocs; i++)
		*unused -= alloc[i].lives ? alloc[i].bytes : 0;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

int cuMemAlloc(uint64_t *p, size_t bytes)
{
	ends_capture();
	standin_waited(STANDIN_ALLOC);
	*p = take_memory(bytes);
	return CUDA_SUCCESS;
}

static void release(uint64_t p)
{
	const size_t at = (size_t)(p - (uintptr_t)device);
	unsigned i;

	pthread_mutex_lock(&lock);
	i = find(at);
	if (!standin_is_device((void *)(uintptr_t)p) || alloc[i].at != at ||
	    !alloc[i].lives)
		standin_fail("what is freed was not allocated");
	alloc[i].lives = false;
	standin_hold(STANDIN_ALLOCS, -1);
	standin_hold(STANDIN_BYTES, -(long)alloc[i].bytes);
	if (alloc[i].bytes >= PAGE)
		fallocate(arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			  (off_t)(alloc[i].bytes / PAGE * PAGE));
	pthread_mutex_unlock(&lock);
}

void standin_wait_all(void)
{
	struct stream *one = legacy;

	for (unsigned k = 0; one; k++) {
		await(one, queued(one));
		pthread_mutex_lock(&streams_lock);
		one = k < nstreams ? stream[k] : NULL;
		pthread_mutex_unlock(&streams_lock);
	}
}

/* Waits for the whole device, as the real one does. */
int cuMemFree(uint64_t p)
{
	ends_capture();
	standin_waited(STANDIN_FREE);
	standin_wait_all();
	release(p);
	return CUDA_SUCCESS;
}

/* In the order of a stream: the host waits for nothing. */
int cuMemAllocAsync(uint64_t *p, size_t bytes, void *handle)
{
	(void)handle;
	*p = newest = take_memory(bytes);
	return CUDA_SUCCESS;
}

static void run_free(void *arg)
{
	release(*(uint64_t *)arg);
}

int cuMemFreeAsync(uint64_t p, void *handle)
{
	needs_context();
	if (standin_makes("wait"))
		return cuMemFree(p);
	if (p == early)
		return CUDA_SUCCESS;
	standin_enqueue(handle, run_free, &p, sizeof p);
	return CUDA_SUCCESS;
}

void standin_free_early(void *handle)
{
	if (!newest || newest == early)
		return;
	cuMemFreeAsync(newest, handle);
	early = newest;
}

/* ---- the host's memory ---- */

static void pin(void *p, size_t bytes)
{
	struct pinned *new = malloc(sizeof *new);

	if (!new)
		standin_fail("no memory for what is pinned");
	new->at = (uintptr_t)p;
	new->bytes = bytes;
	pthread_mutex_lock(&lock);
	new->next = pinned;
	pinned = new;
	pthread_mutex_unlock(&lock);
	standin_hold(STANDIN_HOST, 1);
	standin_hold(STANDIN_HOST_BYTES, (long)bytes);
}

static void unpin(void *p)
{
	struct pinned **at = &pinned, *old;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->at != (uintptr_t)p)
		at = &(*at)->next;
	old = *at;
	if (!old)
		standin_fail("host memory is given back that the device could not "
			     "reach");
	*at = old->next;
	pthread_mutex_unlock(&lock);
	standin_hold(STANDIN_HOST, -1);
	standin_hold(STANDIN_HOST_BYTES, -(long)old->bytes);
	free(old);
}

/* Are BYTES at P in memory that the device can't reach? */
static bool is_pageable(uint64_t p, size_t bytes)
{
	const struct pinned *in;

	if (!bytes || standin_is_device((void *)(uintptr_t)p) ||
	    getenv("STANDIN_UNIFIED"))
		return false;
	pthread_mutex_lock(&lock);
	in = pinned;
	while (in && (p < in->at || p + bytes > in->at + in->bytes))
		in = in->next;
	pthread_mutex_unlock(&lock);
	return !in;
}

int cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
	(void)flags;
	standin_waited(STANDIN_HOST_ALLOC);
	*p = malloc(bytes + 1);
	if (!*p)
		return CUDA_ERROR_INVALID_VALUE;
	pin(*p, bytes);
	return CUDA_SUCCESS;
}

int cuMemFreeHost(void *p)
{
	standin_waited(STANDIN_FREE);
	unpin(p);
	free(p);
	return CUDA_SUCCESS;
}

int cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
	(void)flags;
	standin_waited(STANDIN_REGISTER);
	pin(p, bytes);
	return CUDA_SUCCESS;
}

int cuMemHostUnregister(void *p)
{
	standin_waited(STANDIN_REGISTER);
	unpin(p);
	return CUDA_SUCCESS;
}

/* ---- streams, events ---- */

int cuStreamCreate(void **s, unsigned flags)
{
	needs_context();
	standin_waited(STANDIN_STREAM);
	*s = make(!(flags & CU_STREAM_NON_BLOCKING));
	return CUDA_SUCCESS;
}

int cuStreamCreateWithPriority(void **handle, unsigned flags, int priority)
{
	struct stream *s;

	(void)priority;
	cuStreamCreate(handle, flags);
	s = *handle;
	s->is_library = true;
	if (standin_makes("streams"))
		s->second = make(false);
	return CUDA_SUCCESS;
}

int cuStreamIsCapturing(void *s, int *status)
{
	*status = of(s)->captures;
	return CUDA_SUCCESS;
}

/* One at a time, of the global mode. */
int cuStreamBeginCapture(void *s, int mode)
{
	if (mode || captures)
		return CUDA_ERROR_INVALID_VALUE;
	of(s)->captures = captures = true;
	capture_ended = false;
	return CUDA_SUCCESS;
}

int cuStreamEndCapture(void *s, void **graph)
{
	of(s)->captures = captures = false;
	*graph = s;
	return capture_ended ? CUDA_ERROR_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

int cuGraphDestroy(void *graph)
{
	(void)graph;
	return CUDA_SUCCESS;
}

int cuStreamDestroy(void *handle)
{
	struct stream *s = handle;
	unsigned i = 0;

	pthread_mutex_lock(&streams_lock);
	while (stream[i] != s)
		i++;
	stream[i] = stream[--nstreams];
	s->gone = gone;
	gone = s;
	pthread_mutex_unlock(&streams_lock);
	pthread_mutex_lock(&s->lock);
	s->ends = true;
	pthread_cond_broadcast(&s->bell);
	pthread_mutex_unlock(&s->lock);
	standin_hold(STANDIN_STREAMS, -1);
	return CUDA_SUCCESS;
}

int cuStreamSynchronize(void *s)
{
	ends_capture();
	standin_waited(STANDIN_SYNC);
	await(of(s), queued(of(s)));
	return CUDA_SUCCESS;
}

int cuEventCreate(void **e, unsigned flags)
{
	(void)flags;
	needs_context();
	*e = calloc(1, sizeof(struct event));
	if (!*e)
		return CUDA_ERROR_INVALID_VALUE;
	standin_hold(STANDIN_EVENTS, 1);
	return CUDA_SUCCESS;
}

int cuEventDestroy(void *e)
{
	free(e);
	standin_hold(STANDIN_EVENTS, -1);
	return CUDA_SUCCESS;
}

int cuEventRecord(void *e, void *s)
{
	needs_context();
	if (of(s)->captures)
		standin_fail("an event of a stream that captures");
	*(struct event *)e = (struct event){ of(s), queued(of(s)) };
	if (is_library(s))
		((struct stream *)s)->records++;
	return CUDA_SUCCESS;
}

int cuEventQuery(void *e)
{
	const struct event *x = e;
	bool done;

	ends_capture();
	if (!x->s)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&x->s->lock);
	done = x->s->done >= x->n;
	pthread_mutex_unlock(&x->s->lock);
	standin_asked(e, x->n, done);
	return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

int cuStreamWaitEvent(void *s, void *e, unsigned flags)
{
	(void)flags;
	needs_context();
	if (standin_makes(is_library(s) ? "ready" : "done"))
		return CUDA_SUCCESS;
	if (((struct event *)e)->s)
		standin_enqueue(s, run_wait, e, sizeof(struct event));
	return CUDA_SUCCESS;
}

/* ---- what streams do ---- */

struct copy {
	uint64_t to, from;
	size_t bytes;
};

static void run_copy(void *arg)
{
	const struct copy *c = arg;

	memmove(standin_touch((void *)(uintptr_t)c->to, c->bytes),
		standin_touch((void *)(uintptr_t)c->from, c->bytes), c->bytes);
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *s)
{
	const struct copy c = { to, from, bytes };

	needs_context();
	if (is_pageable(to, bytes) || is_pageable(from, bytes))
		standin_waited(STANDIN_PAGEABLE);
	if (is_library(s) && standin_makes("moved"))
		standin_enqueue(s, run_copy, &(struct copy){ to + 65536, from, bytes },
				sizeof c);
	else
		standin_enqueue(s, run_copy, &c, sizeof c);
	return CUDA_SUCCESS;
}

/* The kernel of lib/backend/move.cu, by the library's arithmetic. */
static void run_move(void *arg)
{
	static const berth_type types[] = { BERTH_U8, BERTH_F32, BERTH_F64, BERTH_F16,
					    BERTH_BF16 };
	const struct move_args *a = arg;
	const berth_type type = types[a->type];
	const struct kern_scale scale = { .has_postscale = true,
					  .postscale = a->times,
					  .divide = (uint32_t)a->divide };
	struct kern k;

	kern_make(&k, type, BERTH_SUM, a->type ? &scale : NULL, KERN_ELEMENTS,
		  KERN_ELEMENTS);
	for (uint32_t i = 0; i < a->pieces; i++) {
		const size_t bytes = a->piece[i].bytes;
		const void *from;
		void *to;

		if (!bytes)
			continue;
		from = standin_touch((void *)(uintptr_t)a->piece[i].from, bytes);
		to = standin_touch((void *)(uintptr_t)a->piece[i].to, bytes);
		kern_reduce(&k, &to, 1, &from, 1, bytes / kern_size(type), false);
	}
}

int cuModuleLoadData(void **module, const void *image)
{
	needs_context();
	standin_waited(STANDIN_MODULE);
	*module = strstr(image, ".entry berth_move(") ? (void *)run_move : NULL;
	if (!*module)
		return CUDA_ERROR_INVALID_VALUE;
	standin_hold(STANDIN_MODULES, 1);
	return CUDA_SUCCESS;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	*function = module;
	return strcmp(name, "berth_move") ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

/* The first launch of a kernel loads it, which may wait for what runs. */
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx,
		   unsigned by, unsigned bz, unsigned shared, void *s, void **args,
		   void **extra)
{
	static _Atomic bool loaded;
	struct move_args a = *(struct move_args *)args[0];

	needs_context();
	if (!atomic_exchange(&loaded, true))
		standin_waited(STANDIN_MODULE);
	if (function != (void *)run_move || !x || y != a.pieces || z != 1 || !bx ||
	    by != 1 || bz != 1 || shared || extra || y > MOVE_PIECES || bx > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_library(s) && standin_makes("moved"))
		a.piece[0].to += 65536;
	standin_enqueue(s, run_move, &a, sizeof a);
	return CUDA_SUCCESS;
}

/* HEIGHT rows of WIDTH words of 1 or 4 bytes. */
struct set {
	uint64_t to;
	size_t pitch, size, width, height;
	unsigned word;
};

static void run_set(void *arg)
{
	const struct set *t = arg;

	for (size_t i = 0; i < t->height; i++) {
		const uintptr_t row = (uintptr_t)t->to + i * t->pitch;
		unsigned char *to = standin_touch((void *)row, t->width * t->size);

		if (t->size == 1)
			memset(to, (int)t->word, t->width);
		for (size_t k = 0; t->size > 1 && k < t->width; k++)
			memcpy(to + k * t->size, &t->word, t->size);
	}
}

static int set(void *s, struct set t)
{
	needs_context();
	standin_enqueue(s, run_set, &t, sizeof t);
	return CUDA_SUCCESS;
}

int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, void *s)
{
	return set(s, (struct set){ to, 0, 1, bytes, 1, byte });
}

int cuMemsetD32Async(uint64_t to, unsigned word, size_t n, void *s)
{
	return set(s, (struct set){ to, 0, 4, n, 1, word });
}

int cuMemsetD2D32Async(uint64_t to, size_t pitch, unsigned word, size_t width,
		       size_t height, void *s)
{
	return set(s, (struct set){ to, pitch, 4, width, height, word });
}

/* ---- what there is ---- */

int cuPointerGetAttributes(unsigned n, int *attribute, void **data, uint64_t p)
{
	enum { MEMORY_TYPE = 2, MANAGED = 8, ORDINAL = 9 };
	const bool is_device = standin_is_device((void *)(uintptr_t)p);

	for (unsigned i = 0; i < n; i++)
		if (attribute[i] == MEMORY_TYPE)
			*(unsigned *)data[i] = is_device ? 2 : 0;
		else if (attribute[i] == MANAGED)
			*(unsigned *)data[i] = 0;
		else if (attribute[i] == ORDINAL)
			*(int *)data[i] = is_device ? 0 : -2;
	return CUDA_SUCCESS;
}

/* A driver of VERSION finds NAME. */
static int find_call(const char *name, void **call, int version, long driver)
{
#define CALL(call, since, arguments) { #call, since, (void *)call },
	static const struct {
		const char *name;
		int since;
		void *call;
	} calls[] = {
#include "lib/backend/cuda_calls.def"
#include "tests/standin/cuda_calls.def"
	};
#undef CALL

	*call = NULL;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (!strcmp(calls[i].name, name) && calls[i].since <= version &&
		    calls[i].since <= driver)
			*call = calls[i].call;
	return *call ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

int cuGetProcAddress_v2(const char *name, void **call, int version, uint64_t flags,
			int *status)
{
	const long driver = standin_number("STANDIN_DRIVER", 12000);

	(void)flags;
	(void)status;
	return find_call(name, call, version, driver < 12000 ? 0 : driver);
}

/* CUDA 12's header has the name for the other form. */
int cuGetProcAddress(const char *name, void **call, int version, uint64_t flags)
{
	(void)flags;
	return find_call(name, call, version, standin_number("STANDIN_DRIVER", 12000));
}
