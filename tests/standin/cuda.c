#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
static _Thread_local void *current;
static _Thread_local bool in_stream;
_Thread_local unsigned long standin_waits;

static long number(const char *name, long otherwise)
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
	const unsigned delay = (unsigned)number("STANDIN_DELAY_US", 200);

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

/* What was destroyed stays, for events; its place is not used again. */
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
	s->seed = (unsigned)(number("STANDIN_SEED", 1) * 1000 + getpid() % 7 * 131 +
			     (long)made++);
	if (nstreams == STREAMS)
		standin_fail("too many streams");
	stream[nstreams++] = s;
	pthread_mutex_unlock(&streams_lock);
	if (pthread_create(&thread, NULL, serve, s))
		standin_fail("no thread for a stream");
	pthread_detach(thread);
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

static struct stream *of(void *handle)
{
	return (uintptr_t)handle > 2 ? handle : legacy;
}

void standin_enqueue(void *handle, void (*run)(void *), const void *arg, size_t bytes)
{
	struct stream *s = of(handle);

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

static int block(struct stream *s)
{
	standin_waits++;
	await(s, queued(s));
	return CUDA_SUCCESS;
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

int cuDevicePrimaryCtxRetain(void **context, int dev)
{
	static char contexts[8];

	*context = &contexts[dev & 7];
	return CUDA_SUCCESS;
}

int cuCtxGetCurrent(void **context)
{
	*context = current;
	return CUDA_SUCCESS;
}

int cuCtxSetCurrent(void *context)
{
	current = context;
	return CUDA_SUCCESS;
}

int cuDeviceGetUuid(char uuid[16], int dev)
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
	if (!current && !in_stream)
		standin_fail("a call without a current context in this thread");
}

int cuMemAlloc(void **p, size_t bytes)
{
	needs_context();
	pthread_mutex_lock(&lock);
	if (nallocs == ALLOCS || top + bytes + 2 * PAGE > ARENA)
		standin_fail("the device's memory is used up");
	alloc[nallocs].at = top;
	alloc[nallocs].bytes = bytes;
	alloc[nallocs++].lives = true;
	memset(alias + top, 0xff, bytes);
	*p = device + top;
	top += (bytes + 2 * PAGE - 1) / PAGE * PAGE;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static void release(void *p)
{
	const size_t at = (size_t)((unsigned char *)p - device);
	unsigned i;

	pthread_mutex_lock(&lock);
	i = find(at);
	if (!standin_is_device(p) || alloc[i].at != at || !alloc[i].lives)
		standin_fail("what is freed was not allocated");
	alloc[i].lives = false;
	if (alloc[i].bytes >= PAGE)
		fallocate(arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			  (off_t)(alloc[i].bytes / PAGE * PAGE));
	pthread_mutex_unlock(&lock);
}

/* Waits for the whole device, as the real one does. */
int cuMemFree(void *p)
{
	struct stream *s = legacy;

	for (unsigned k = 0; s; k++) {
		block(s);
		pthread_mutex_lock(&streams_lock);
		s = k < nstreams ? stream[k] : NULL;
		pthread_mutex_unlock(&streams_lock);
	}
	release(p);
	return CUDA_SUCCESS;
}

/* In the order of a stream: the host waits for nothing. */
int cuMemAllocAsync(void **p, size_t bytes, void *handle)
{
	(void)handle;
	return cuMemAlloc(p, bytes);
}

static void run_free(void *arg)
{
	release(*(void **)arg);
}

int cuMemFreeAsync(void *p, void *handle)
{
	needs_context();
	standin_enqueue(handle, run_free, &p, sizeof p);
	return CUDA_SUCCESS;
}

/* Host memory is all alike: a copy of it is never waited for. */
int cuMemHostAlloc(void **p, size_t bytes)
{
	*p = malloc(bytes + 1);
	return *p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuMemFreeHost(void *p)
{
	free(p);
	return CUDA_SUCCESS;
}

/* ---- streams, events ---- */

int cuStreamCreate(void **s, unsigned flags)
{
	needs_context();
	*s = make(!(flags & CU_STREAM_NON_BLOCKING));
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
	return CUDA_SUCCESS;
}

int cuStreamSynchronize(void *s)
{
	return block(of(s));
}

int cuEventCreate(void **e)
{
	needs_context();
	*e = calloc(1, sizeof(struct event));
	return *e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuEventDestroy(void *e)
{
	free(e);
	return CUDA_SUCCESS;
}

int cuEventRecord(void *e, void *s)
{
	needs_context();
	*(struct event *)e = (struct event){ of(s), queued(of(s)) };
	return CUDA_SUCCESS;
}

int cuEventQuery(void *e)
{
	const struct event *x = e;
	bool done;

	if (!x->s)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&x->s->lock);
	done = x->s->done >= x->n;
	pthread_mutex_unlock(&x->s->lock);
	return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

int cuStreamWaitEvent(void *s, void *e)
{
	needs_context();
	if (((struct event *)e)->s)
		standin_enqueue(s, run_wait, e, sizeof(struct event));
	return CUDA_SUCCESS;
}

/* ---- what streams do ---- */

static void run_move(void *arg)
{
	const struct standin_table *t = arg;

	for (unsigned i = 0; i < t->n; i++)
		memmove(standin_touch(t->piece[i].to, t->piece[i].bytes),
			standin_touch(t->piece[i].from, t->piece[i].bytes),
			t->piece[i].bytes);
}

int cuLaunchMove(const struct standin_table *table, void *s)
{
	needs_context();
	standin_enqueue(s, run_move, table, sizeof *table);
	return CUDA_SUCCESS;
}

int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *s)
{
	const struct standin_table one = { .n = 1, .piece = { { from, to, bytes } } };

	return cuLaunchMove(&one, s);
}

struct set {
	void *to;
	int byte;
	size_t bytes;
};

static void run_set(void *arg)
{
	const struct set *t = arg;

	memset(standin_touch(t->to, t->bytes), t->byte, t->bytes);
}

int cuMemsetAsync(void *to, int byte, size_t bytes, void *s)
{
	const struct set t = { to, byte, bytes };

	needs_context();
	standin_enqueue(s, run_set, &t, sizeof t);
	return CUDA_SUCCESS;
}
