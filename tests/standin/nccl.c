#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/standin/standin.h"

enum {
	RANKS = STANDIN_RANKS,
	CHUNK = 1 << 16, /* bytes of a reduction at a time */
	PART = 1 << 13,  /* of a message */
	OPS = 64,
	NAP_US = 20,
	LOOKS = 50,   /* naps from one look for a deadlock to the next */
	ALONE_S = 30, /* a kernel for which the others do not come */
	NOBODY = -2
};

/* Of the ranks of one communicator. */
struct shared {
	_Atomic int joined, arrived[2], turn;
	struct {
		_Atomic int pid, waits,
			runs;          /* kernel that waits for, or has, the GPU */
		_Atomic uint64_t what; /* of the kernel: the same on all */
		_Atomic int more;
		char gpu[16];
	} rank[RANKS];
	unsigned char data[RANKS][CHUNK];
	uint32_t bytes[RANKS][RANKS];
	unsigned char part[RANKS][RANKS][PART];
};

struct comm {
	struct shared *s;
	struct comm *next;
	int n, me, ops, number;
	bool blocking;
	_Atomic int async, ends, busy, queued, turn, inside;
	struct nccl_id id;
};

struct message {
	void *p;
	size_t bytes;
};

struct op {
	struct comm *c;
	void *stream;
	bool is_messages;
	struct message send[RANKS], recv[RANKS];
	const void *in;
	void *out;
	size_t count;
	berth_type type;
	berth_op op;
	struct kern_scale scale;
	int root, number;
	uint64_t ticket;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms;
static int ncomms;
static _Atomic uint64_t tickets, served; /* of the GPU, which has room for one kernel */
static _Thread_local int depth;
static _Thread_local struct op group[OPS];
static _Thread_local int ngroup;

static void enter(struct comm *c)
{
	static _Atomic unsigned calls;

	if (atomic_fetch_add(&c->inside, 1))
		standin_fail("two threads are inside a communicator at once");
	if (atomic_fetch_add(&calls, 1) % 4 == 0) /* so that they meet */
		usleep(NAP_US);
	if (c->n < 0)
		standin_fail("a communicator is used after its end");
}

static int leave(struct comm *c, int rc)
{
	atomic_fetch_sub(&c->inside, 1);
	return rc;
}

/* ---- the kernel ---- */

/* Rank R of C, which runs kernel NUMBER here, waits for its GPU: does that run what
 * waits for this one? */
static void look_at(const struct comm *c, int number, int r)
{
	char text[256];

	for (struct comm *d = comms; d; d = d->next) {
		int waits;

		if (d == c || d->n < 0)
			continue;
		waits = atomic_load(&d->s->rank[d->me].waits);
		for (int q = 0; waits && q < d->n; q++) {
			if (atomic_load(&d->s->rank[q].pid) !=
				    atomic_load(&c->s->rank[r].pid) ||
			    atomic_load(&d->s->rank[q].runs) != waits ||
			    atomic_load(&c->s->rank[r].waits) != number)
				continue;
			snprintf(text, sizeof text,
				 "deadlock: rank %d runs communicator %d and waits for "
				 "rank %d, which runs communicator %d and waits for "
				 "rank %d: launched in another order",
				 c->me, c->number, r, d->number, d->me);
			standin_fail(text);
		}
	}
}

static void look_for_deadlock(const struct comm *c, int number)
{
	pthread_mutex_lock(&list_lock);
	for (int r = 0; r < c->n; r++)
		look_at(c, number, r);
	pthread_mutex_unlock(&list_lock);
}

static bool ends(struct comm *c)
{
	return atomic_load(&c->ends);
}

/* A barrier; false: the communicator ends. */
static bool meet(struct comm *c, int number)
{
	const int t = atomic_load(&c->turn), at = t & 1;
	const time_t begun = time(NULL);

	if (ends(c))
		return false;
	atomic_fetch_add(&c->turn, 1);
	if (atomic_fetch_add(&c->s->arrived[at], 1) + 1 == c->n) {
		atomic_store(&c->s->arrived[at], 0);
		atomic_store(&c->s->turn, t + 1);
	}
	for (int i = 0; atomic_load(&c->s->turn) <= t; i++) {
		if (ends(c))
			return false;
		if (i > LOOKS)
			usleep(NAP_US);
		else
			sched_yield();
		if (i % LOOKS == LOOKS - 1)
			look_for_deadlock(c, number);
		if (time(NULL) - begun > ALONE_S)
			standin_fail("a kernel has waited for 30 s for other ranks");
	}
	return true;
}

/* All launched the same? */
static bool compare(struct comm *c, int number, uint64_t what)
{
	atomic_store(&c->s->rank[c->me].what, what);
	if (!meet(c, number))
		return false;
	for (int r = 0; r < c->n; r++)
		if (atomic_load(&c->s->rank[r].what) != what)
			standin_fail("ranks launched different operations: NCCL would "
				     "hang, or mix them");
	return meet(c, number);
}

static void reduce(struct op *o)
{
	struct comm *c = o->c;
	const size_t size = kern_size(o->type), most = CHUNK / size;
	const void *source[RANKS];
	struct kern k;

	if (!compare(c, o->number,
		     (uint64_t)o->count << 16 | (uint64_t)o->type << 8 |
			     (uint64_t)o->op << 4 | (uint64_t)(o->root + 1)))
		return;
	kern_make(&k, o->type, o->op, &o->scale, KERN_ELEMENTS, KERN_ELEMENTS);
	for (int r = 0; r < c->n; r++)
		source[r] = c->s->data[r];
	for (size_t at = 0; at < o->count; at += most) {
		const size_t n = o->count - at < most ? o->count - at : most;
		const size_t byte = at * size;
		void *out;

		memcpy(c->s->data[c->me],
		       standin_touch((const char *)o->in + byte, n * size), n * size);
		if (!meet(c, o->number))
			return;
		if (o->root < 0 || o->root == c->me) {
			out = standin_touch((char *)o->out + byte, n * size);
			kern_reduce(&k, &out, 1, source, (unsigned)c->n, n, false);
		}
		if (!meet(c, o->number))
			return;
	}
}

/* ---- messages ---- */

static bool is_any_more(const struct comm *c)
{
	for (int r = 0; r < c->n; r++)
		if (atomic_load(&c->s->rank[r].more))
			return true;
	return false;
}

static size_t part_of(size_t bytes, size_t at)
{
	return bytes <= at ? 0 : bytes - at < PART ? bytes - at : PART;
}

/* What is sent is read first, since what comes may overwrite it. */
static void keep_sends(struct op *o, unsigned char **kept)
{
	for (int r = 0; r < o->c->n; r++) {
		const struct message *m = &o->send[r];

		kept[r] = malloc(m->bytes + 1);
		if (!kept[r])
			standin_fail("no memory for a message");
		if (m->bytes)
			memcpy(kept[r], standin_touch(m->p, m->bytes), m->bytes);
	}
}

static bool exchange_part(struct op *o, unsigned char **kept, size_t at)
{
	struct comm *c = o->c;
	struct shared *s = c->s;
	bool more = false;

	for (int r = 0; r < c->n; r++) {
		const size_t n = part_of(o->send[r].bytes, at);

		s->bytes[c->me][r] = (uint32_t)n;
		memcpy(s->part[c->me][r], kept[r] + at * (n > 0), n);
		more |= o->send[r].bytes > at + PART;
	}
	atomic_store(&s->rank[c->me].more, more);
	if (!meet(c, o->number))
		return false;
	for (int r = 0; r < c->n; r++) {
		const size_t n = part_of(o->recv[r].bytes, at);

		if (s->bytes[r][c->me] != n)
			standin_fail("a message has another size than its receiver "
				     "says: NCCL would hang, or write elsewhere");
		if (n)
			memcpy(standin_touch((char *)o->recv[r].p + at, n),
			       s->part[r][c->me], n);
	}
	more = is_any_more(c);
	return meet(c, o->number) && more;
}

static void exchange(struct op *o)
{
	unsigned char *kept[RANKS] = { NULL };
	size_t at = 0;

	if (!compare(o->c, o->number, UINT64_MAX))
		return;
	keep_sends(o, kept);
	while (exchange_part(o, kept, at))
		at += PART;
	for (int r = 0; r < o->c->n; r++)
		free(kept[r]);
}

/* ---- in a stream ---- */

static void nap(unsigned *looks)
{
	if (++*looks < LOOKS)
		sched_yield();
	else
		usleep(NAP_US);
}

static bool has_to_fail(const struct op *o, int *code)
{
	const char *text = getenv("STANDIN_NCCL_FAIL");
	int rank, number;

	return text && sscanf(text, "%d:%d:%d", &rank, &number, code) == 3 &&
	       rank == o->c->me && number == o->number;
}

static void run_op(void *arg)
{
	struct op *o = arg;
	struct comm *c = o->c;
	unsigned looks = 0;
	int code;

	atomic_store(&c->s->rank[c->me].waits, o->number);
	while (atomic_load(&served) != o->ticket)
		nap(&looks);
	atomic_store(&c->s->rank[c->me].runs, o->number);
	atomic_store(&c->s->rank[c->me].waits, 0);
	if (has_to_fail(o, &code)) {
		atomic_store(&c->async, code);
		while (!ends(c))
			usleep(NAP_US);
	} else if (!ends(c) && o->is_messages) {
		exchange(o);
	} else if (!ends(c)) {
		reduce(o);
	}
	atomic_store(&c->s->rank[c->me].runs, 0);
	atomic_fetch_add(&served, 1);
	atomic_fetch_sub(&c->queued, 1);
}

/* ---- communicators ---- */

int ncclGetUniqueId(struct nccl_id *id)
{
	static _Atomic int n;
	int fd;

	memset(id, 0, sizeof *id);
	snprintf(id->name, sizeof id->name, "/standin-%d-%d", getpid(),
		 atomic_fetch_add(&n, 1));
	fd = shm_open(id->name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(struct shared)))
		standin_fail("no shared memory for a communicator");
	close(fd);
	return NCCL_SUCCESS;
}

static void *join(void *arg)
{
	struct comm *c = arg;
	int rc = NCCL_SUCCESS;

	atomic_fetch_add(&c->s->joined, 1);
	while (atomic_load(&c->s->joined) < c->n && !ends(c))
		usleep(NAP_US);
	for (int i = 0; i < c->n && !ends(c); i++)
		for (int k = 0; k < i; k++)
			if (!memcmp(c->s->rank[i].gpu, c->s->rank[k].gpu, 16))
				rc = NCCL_INVALID_USAGE; /* one GPU twice */
	if (c->me == 0)
		shm_unlink(c->id.name);
	atomic_store(&c->async, rc);
	atomic_store(&c->busy, 0);
	return NULL;
}

int ncclCommInitRank(void **out, int n, struct nccl_id id, int me, bool blocking)
{
	struct comm *c = calloc(1, sizeof *c);
	int fd = shm_open(id.name, O_RDWR, 0);
	void *context = NULL;
	pthread_t t;

	cuCtxGetCurrent(&context);
	if (!context)
		standin_fail("a communicator is made without a current context");
	if (!c || fd < 0 || n > RANKS) {
		free(c);
		return NCCL_INVALID_ARGUMENT;
	}
	c->s = mmap(NULL, sizeof *c->s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	c->id = id;
	c->n = n;
	c->me = me;
	c->blocking = blocking;
	atomic_store(&c->s->rank[me].pid, getpid());
	cuDeviceGetUuid(c->s->rank[me].gpu, 0);
	atomic_store(&c->async, NCCL_IN_PROGRESS);
	atomic_store(&c->busy, 1);
	pthread_mutex_lock(&list_lock);
	c->number = ncomms++;
	c->next = comms;
	comms = c;
	pthread_mutex_unlock(&list_lock);
	*out = c;
	if (pthread_create(&t, NULL, join, c))
		standin_fail("no thread for a communicator");
	pthread_detach(t);
	return NCCL_IN_PROGRESS;
}

int ncclCommGetAsyncError(void *p, int *rc)
{
	struct comm *c = p;

	*rc = atomic_load(&c->async);
	return NCCL_SUCCESS;
}

int ncclCommRevoke(void *p)
{
	atomic_store(&((struct comm *)p)->ends, 1);
	return NCCL_SUCCESS;
}

/* It is kept, so that later use is seen. */
int ncclCommDestroy(void *p)
{
	struct comm *c = p;

	enter(c);
	while (atomic_load(&c->queued) || atomic_load(&c->busy))
		usleep(NAP_US);
	pthread_mutex_lock(&list_lock);
	c->n = -1;
	munmap(c->s, sizeof *c->s);
	pthread_mutex_unlock(&list_lock);
	return leave(c, NCCL_SUCCESS);
}

/* ---- launches ---- */

struct launch {
	int n;
	struct op op[];
};

static void enqueue(struct op *o, int n)
{
	for (int i = 0; i < n; i++) {
		atomic_fetch_add(&o[i].c->queued, 1);
		o[i].ticket = atomic_fetch_add(&tickets, 1);
		standin_enqueue(o[i].stream, run_op, &o[i], sizeof *o);
	}
}

static void *launch_later(void *arg)
{
	struct launch *l = arg;

	usleep((unsigned)(getpid() + l->op[0].number * 37) % 300);
	enqueue(l->op, l->n);
	for (int i = 0; i < l->n; i++)
		atomic_store(&l->op[i].c->async, NCCL_SUCCESS);
	free(l);
	return NULL;
}

int ncclGroupStart(void)
{
	depth++;
	return NCCL_SUCCESS;
}

static int launch_in_thread(void)
{
	struct launch *l = malloc(sizeof *l + sizeof(struct op) * (size_t)ngroup);
	pthread_t t;

	if (!l)
		standin_fail("no memory for a launch");
	l->n = ngroup;
	memcpy(l->op, group, sizeof(struct op) * (size_t)ngroup);
	for (int i = 0; i < ngroup; i++)
		atomic_store(&group[i].c->async, NCCL_IN_PROGRESS);
	if (pthread_create(&t, NULL, launch_later, l))
		standin_fail("no thread for a launch");
	pthread_detach(t);
	return NCCL_IN_PROGRESS;
}

int ncclGroupEnd(void)
{
	int rc = NCCL_SUCCESS;

	if (--depth > 0 || !ngroup)
		return rc;
	if (group[0].c->blocking)
		enqueue(group, ngroup);
	else
		rc = launch_in_thread();
	ngroup = 0;
	return rc;
}

/* C is whole; NULL, or why not. */
static struct op *add(struct comm *c, void *stream)
{
	struct op *o;

	if (c->n >= 0 && atomic_load(&c->async) == NCCL_IN_PROGRESS)
		standin_fail("a communicator is used before it is whole, or while it "
			     "launches");
	if (ngroup == OPS)
		standin_fail("too many operations in a group");
	o = &group[ngroup++];
	memset(o, 0, sizeof *o);
	o->c = c;
	o->stream = stream;
	o->number = ++c->ops;
	return o;
}

int ncclReduceAny(const void *in, void *out, size_t count, berth_type type, berth_op op,
		  const struct kern_scale *scale, int root, void *p, void *stream)
{
	struct comm *c = p;
	struct op *o;

	enter(c);
	ncclGroupStart();
	o = add(c, stream);
	o->in = in;
	o->out = out;
	o->count = count;
	o->type = type;
	o->op = op;
	o->scale = *scale;
	o->root = root;
	leave(c, 0);
	if (count && (!standin_is_device(in) ||
		      ((root < 0 || root == c->me) && !standin_is_device(out))))
		standin_fail("NCCL was given what is no device memory");
	return ncclGroupEnd();
}

/* That of the group's, or a new one. */
static struct op *messages_of(struct comm *c, void *stream)
{
	struct op *o;

	for (int i = 0; i < ngroup; i++)
		if (group[i].c == c && group[i].is_messages)
			return &group[i];
	o = add(c, stream);
	o->is_messages = true;
	return o;
}

static int add_message(bool sends, void *p, size_t bytes, int peer, struct comm *c,
		       void *stream)
{
	struct op *o;

	enter(c);
	if (!depth)
		standin_fail("a message outside of a group");
	o = messages_of(c, stream);
	*(sends ? &o->send[peer] : &o->recv[peer]) = (struct message){ p, bytes };
	if (bytes && !standin_is_device(p))
		standin_fail("NCCL was given what is no device memory");
	return leave(c, NCCL_SUCCESS);
}

int ncclSend(const void *in, size_t bytes, int peer, void *comm, void *stream)
{
	return add_message(true, (void *)(uintptr_t)in, bytes, peer, comm, stream);
}

int ncclRecv(void *out, size_t bytes, int peer, void *comm, void *stream)
{
	return add_message(false, out, bytes, peer, comm, stream);
}
