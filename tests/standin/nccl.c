#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "lib/backend/nccl.h"
#include "tests/standin/standin.h"

#define CALL(result, name, arguments) result name arguments;
#include "lib/backend/nccl_calls.def"
#undef CALL

enum {
	RANKS = STANDIN_RANKS,
	CHUNK = 1 << 16, /* bytes of a reduction at a time */
	PART = 1 << 13,  /* of a message */
	OPS = 64,
	NAP_US = 20,
	LOOKS = 50,  /* naps from one look for a deadlock to the next */
	ALONE_S = 30 /* a kernel for which the others do not come, times SLOW */
};

/* NCCL's numbers. */
enum { SUM, PRODUCT, MAX, MIN, AVERAGE };
enum call { REDUCE, REDUCESCATTER, ALLREDUCE, BROADCAST, ALLGATHER, MESSAGES, CALLS };

static const berth_type types[] = { BERTH_I8,  BERTH_U8,  BERTH_I32, BERTH_U32,
				    BERTH_I64, BERTH_U64, BERTH_F16, BERTH_F32,
				    BERTH_F64, BERTH_BF16 };
static const berth_op ops[] = { BERTH_SUM, BERTH_PRODUCT, BERTH_MAX, BERTH_MIN };

/* The ranks of one communicator share it. */
struct shared {
	_Atomic int joined, gone, arrived[2], turn, came[CALLS];
	struct {
		_Atomic int pid, waits,
			runs;            /* kernel that waits for, or has, the GPU */
		_Atomic uint64_t what;   /* of the kernel: the same on all */
		_Atomic int more, first; /* first: the call that it launches so */
	} rank[RANKS];
	unsigned char data[RANKS][CHUNK];
	uint32_t bytes[RANKS][RANKS];
	unsigned char part[RANKS][RANKS][PART];
};

struct comm {
	struct shared *s;
	struct comm *next;
	int n, me, ops, number, groups;
	bool came[CALLS];
	_Atomic int async, ends, ended, busy, queued, turn, inside, launches;
	bool blocks; /* calls wait in their own thread */
	int children;
	struct nccl_id id;
};

struct message {
	void *p;
	size_t bytes;
};

struct op {
	struct comm *c;
	void *stream;
	enum call call;
	struct message send[RANKS], recv[RANKS];
	const void *in;
	void *out;
	size_t count;
	berth_type type;
	berth_op op;
	struct kern_scale scale;
	int root, number;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm *comms;
static int ncomms;
static _Atomic unsigned nended;
static _Atomic int gpu_taken; /* it has room for one kernel */
static _Thread_local int depth;
static _Thread_local struct op group[OPS];
static _Thread_local int ngroup;

/* Do calls and launches take their time? */
static bool delays(void)
{
	return standin_number("STANDIN_DELAY_US", 1);
}

static void enter(struct comm *c)
{
	static _Atomic unsigned calls;

	if (atomic_fetch_add(&c->inside, 1))
		standin_fail("two threads are inside a communicator at once");
	if (atomic_fetch_add(&calls, 1) % 4 == 0 && delays()) /* so that they meet */
		standin_nap(NAP_US);
	if (atomic_load(&c->ended))
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

		if (d == c || atomic_load(&d->ended))
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
		if (time(NULL) - begun > ALONE_S * standin_number("SLOW", 1))
			standin_fail(
				"a kernel has waited for too long for other ranks");
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

/* All ranks have to agree on this. */
static uint64_t what_of(const struct op *o)
{
	if (o->call == MESSAGES)
		return UINT64_MAX;
	return (uint64_t)o->count << 24 | (uint64_t)o->call << 20 |
	       (uint64_t)o->type << 12 | (uint64_t)o->op << 8 | (uint64_t)(o->root + 1);
}

/* COUNT elements from AT of all to ROOT, or to all if that is -1. */
static bool reduce_part(struct op *o, size_t first, size_t count, int root)
{
	struct comm *c = o->c;
	const size_t size = kern_size(o->type), most = CHUNK / size;
	const void *source[RANKS];
	struct kern k;

	kern_make(&k, o->type, o->op, &o->scale, KERN_ELEMENTS, KERN_ELEMENTS);
	for (int r = 0; r < c->n; r++)
		source[r] = c->s->data[r];
	for (size_t at = 0; at < count; at += most) {
		const size_t n = count - at < most ? count - at : most;
		void *out;

		memcpy(c->s->data[c->me],
		       standin_touch((const char *)o->in + (first + at) * size,
				     n * size),
		       n * size);
		if (!meet(c, o->number))
			return false;
		if (root < 0 || root == c->me) {
			out = standin_touch((char *)o->out + at * size, n * size);
			kern_reduce(&k, &out, 1, source, (unsigned)c->n, n, false);
		}
		if (!meet(c, o->number))
			return false;
	}
	return true;
}

static void reduce(struct op *o)
{
	const int parts = o->call == REDUCESCATTER ? o->c->n : 1;

	for (int r = 0; r < parts; r++)
		if (!reduce_part(o, (size_t)r * o->count, o->count,
				 parts > 1 ? r : o->root))
			return;
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

/* Sends are read first, since what comes may overwrite them. */
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
	int code, nobody = 0;

	atomic_store(&c->s->rank[c->me].waits, o->number);
	while (!atomic_compare_exchange_weak(&gpu_taken, &nobody, 1)) {
		nobody = 0;
		nap(&looks);
	}
	atomic_store(&c->s->rank[c->me].runs, o->number);
	atomic_store(&c->s->rank[c->me].waits, 0);
	if (has_to_fail(o, &code)) {
		atomic_store(&c->async, code);
		while (!ends(c))
			usleep(NAP_US);
	} else if (!ends(c) && compare(c, o->number, what_of(o))) {
		if (o->call <= ALLREDUCE)
			reduce(o);
		else
			exchange(o);
	}
	atomic_store(&c->s->rank[c->me].runs, 0);
	atomic_store(&gpu_taken, 0);
	atomic_fetch_sub(&c->queued, 1);
}

/* ---- communicators ---- */

int ncclGetVersion(int *version)
{
	*version = (int)standin_number("STANDIN_NCCL", 21800);
	return NCCL_SUCCESS;
}

const char *ncclGetErrorString(int rc)
{
	return rc == NCCL_SYSTEM_ERROR ? "unhandled system error" : "another error";
}

const char *ncclGetLastError(void *p)
{
	(void)p;
	return getenv("STANDIN_NCCL_FAIL") ? "the stand-in was told to fail" : "";
}

int ncclGetUniqueId(struct nccl_id *id)
{
	static _Atomic int n;
	int fd;

	memset(id, 0, sizeof *id);
	snprintf(id->bytes, sizeof id->bytes, "/standin-%d-%d", getpid(),
		 atomic_fetch_add(&n, 1));
	fd = shm_open(id->bytes, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(struct shared)))
		standin_fail("no shared memory for a communicator");
	close(fd);
	return NCCL_SUCCESS;
}

static void *join(void *arg)
{
	struct comm *c = arg;

	atomic_fetch_add(&c->s->joined, 1);
	while (atomic_load(&c->s->joined) < c->n && !ends(c))
		usleep(NAP_US);
	if (c->me == 0)
		shm_unlink(c->id.bytes);
	atomic_store(&c->async, NCCL_SUCCESS);
	atomic_store(&c->busy, 0);
	return NULL;
}

static bool is_config(const struct nccl_config *c)
{
	return c && c->size >= sizeof *c && c->magic == 0xcafebeef &&
	       c->version <= (unsigned)standin_number("STANDIN_NCCL", 21800) &&
	       (!c->blocking || getenv("STANDIN_BLOCKING"));
}

/* *OUT is NULL after an error. */
int ncclCommInitRankConfig(void **out, int n, struct nccl_id id, int me,
			   struct nccl_config *config)
{
	struct comm *c = calloc(1, sizeof *c);
	int fd = shm_open(id.bytes, O_RDWR, 0);
	pthread_t t;

	*out = NULL;
	standin_waited(STANDIN_COMM);
	standin_wait_all();
	if (standin_makes("die-joining") && me == n - 1)
		raise(SIGKILL);
	if (!c || fd < 0 || n > RANKS || !is_config(config) ||
	    (standin_makes("join-fails") && me == n - 1)) {
		free(c);
		return NCCL_INVALID_ARGUMENT;
	}
	c->s = mmap(NULL, sizeof *c->s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	c->id = id;
	c->n = n;
	c->me = me;
	atomic_store(&c->s->rank[me].pid, getpid());
	atomic_store(&c->async, NCCL_IN_PROGRESS);
	atomic_store(&c->busy, 1);
	pthread_mutex_lock(&list_lock);
	c->number = ncomms++;
	c->next = comms;
	comms = c;
	pthread_mutex_unlock(&list_lock);
	standin_hold(STANDIN_COMMS, 1);
	*out = c;
	c->blocks = config->blocking;
	if (c->blocks) {
		join(c);
		return NCCL_SUCCESS;
	}
	if (pthread_create(&t, NULL, join, c))
		standin_fail("no thread for a communicator");
	pthread_detach(t);
	return NCCL_IN_PROGRESS;
}

/* All ranks give one COLOR, and keep their places. */
int ncclCommSplit(void *p, int color, int key, void **out, struct nccl_config *config);
int ncclCommSplit(void *p, int color, int key, void **out, struct nccl_config *config)
{
	struct comm *c = p;
	struct nccl_id id = { "" };
	int fd;

	if (color || key != c->me)
		return NCCL_INVALID_ARGUMENT;
	snprintf(id.bytes, sizeof id.bytes, "%.100s.%d", c->id.bytes, ++c->children);
	fd = shm_open(id.bytes, O_RDWR | O_CREAT, 0600); /* the first makes it */
	if (fd < 0 || ftruncate(fd, sizeof(struct shared)))
		standin_fail("no shared memory for a communicator");
	close(fd);
	return ncclCommInitRankConfig(out, c->n, id, c->me, config);
}

int ncclCommGetAsyncError(void *p, int *rc)
{
	struct comm *c = p;

	enter(c);
	*rc = atomic_load(&c->async);
	if (standin_makes("record") && *rc == NCCL_IN_PROGRESS &&
	    !atomic_load(&c->busy))
		*rc = NCCL_SUCCESS;
	return leave(c, NCCL_SUCCESS);
}

/* It is kept, so that later use is seen. */
static void end(struct comm *c)
{
	while (atomic_load(&c->queued) || atomic_load(&c->busy) ||
	       atomic_load(&c->launches))
		usleep(NAP_US);
	pthread_mutex_lock(&list_lock);
	munmap(c->s, sizeof *c->s);
	pthread_mutex_unlock(&list_lock);
	standin_hold(STANDIN_COMMS, -1);
	atomic_fetch_add(&nended, 1);
}

unsigned standin_ended(void)
{
	return atomic_load(&nended);
}

int ncclCommAbort(void *p)
{
	struct comm *c = p;

	enter(c);
	standin_waited(STANDIN_COMM);
	atomic_store(&c->ended, 1);
	while (standin_makes("abort-hangs"))
		usleep(NAP_US);
	atomic_store(&c->ends, 1);
	end(c);
	return NCCL_SUCCESS;
}

int ncclCommDestroy(void *p)
{
	struct comm *c = p;

	enter(c);
	standin_waited(STANDIN_COMM);
	atomic_store(&c->ended, 1);
	atomic_fetch_add(&c->s->gone, 1);
	while (atomic_load(&c->s->gone) < c->n)
		usleep(NAP_US);
	end(c);
	return NCCL_SUCCESS;
}

/* ---- launches ---- */

struct launch {
	int n;
	struct op op[];
};

/* The first time, NCCL makes its connections for a call. */
static void come_first(struct comm *c, enum call call)
{
	if (c->came[call])
		return;
	c->came[call] = true;
	atomic_store(&c->s->rank[c->me].first, (int)call + 1);
	atomic_fetch_add(&c->s->came[call], 1);
	while (atomic_load(&c->s->came[call]) < c->n && !ends(c)) {
		usleep(NAP_US);
		for (int r = 0; r < c->n; r++) {
			const int other = atomic_load(&c->s->rank[r].first);

			if (other && other != (int)call + 1 &&
			    atomic_load(&c->s->came[other - 1]) < c->n &&
			    atomic_load(&c->s->came[call]) < c->n)
				standin_fail("ranks launch different calls for the "
					     "first time: NCCL would hang");
		}
	}
	atomic_store(&c->s->rank[c->me].first, 0);
}

/* By mistake, behind the next launch of another communicator. */
static void launch_late(const struct comm *c)
{
	static _Atomic int launched;
	const int before = atomic_fetch_add(&launched, 1);

	if (!standin_makes("order") || c->me || c->groups != 2)
		return;
	for (int i = 0; i < 10000 && atomic_load(&launched) == before + 1; i++)
		usleep(NAP_US);
}

static void *launch(void *arg)
{
	struct launch *l = arg;

	for (int i = 0; i < l->n; i++)
		come_first(l->op[i].c, l->op[i].call);
	if (delays())
		usleep((unsigned)(getpid() + l->op[0].number * 37) % 300);
	launch_late(l->op[0].c);
	for (int i = 0; i < l->n; i++) {
		atomic_fetch_add(&l->op[i].c->queued, 1);
		standin_enqueue(l->op[i].stream, run_op, &l->op[i], sizeof l->op[i]);
	}
	for (int i = 0; i < l->n; i++) {
		int launching = NCCL_IN_PROGRESS; /* a kernel may have failed */

		atomic_compare_exchange_strong(&l->op[i].c->async, &launching,
					       NCCL_SUCCESS);
		atomic_fetch_sub(&l->op[i].c->launches, 1);
	}
	free(l);
	return NULL;
}

int ncclGroupStart(void)
{
	depth++;
	return NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
	struct launch *l;
	pthread_t t;

	if (--depth > 0 || !ngroup)
		return NCCL_SUCCESS;
	if (standin_makes("die-launching") && group[0].c->me == group[0].c->n - 1)
		raise(SIGKILL);
	if (standin_makes("temp"))
		standin_free_early(group[0].stream);
	l = malloc(sizeof *l + sizeof(struct op) * (size_t)ngroup);
	if (!l)
		standin_fail("no memory for a launch");
	l->n = ngroup;
	memcpy(l->op, group, sizeof(struct op) * (size_t)ngroup);
	group[0].c->groups++;
	for (int i = 0; i < ngroup; i++) {
		atomic_store(&group[i].c->async,
			     standin_makes("order") ? NCCL_SUCCESS : NCCL_IN_PROGRESS);
		atomic_fetch_add(&group[i].c->launches, 1);
	}
	ngroup = 0;
	if (l->op[0].c->blocks) {
		launch(l);
		return NCCL_SUCCESS;
	}
	if (pthread_create(&t, NULL, launch, l))
		standin_fail("no thread for a launch");
	pthread_detach(t);
	return NCCL_IN_PROGRESS;
}

static struct op *add(struct comm *c, enum call call, void *stream)
{
	struct op *o;

	if (atomic_load(&c->async) == NCCL_IN_PROGRESS)
		standin_fail("a communicator is used before it is whole, or while it "
			     "launches");
	if (ngroup == OPS)
		standin_fail("too many operations in a group");
	o = &group[ngroup++];
	memset(o, 0, sizeof *o);
	o->c = c;
	o->call = call;
	o->stream = stream;
	o->number = ++c->ops;
	o->root = -1;
	return o;
}

static void check_memory(const void *p, size_t bytes)
{
	if (bytes && !standin_is_device(p) && !getenv("STANDIN_UNIFIED"))
		standin_fail("NCCL was given what is no device memory");
}

/* ---- reductions ---- */

static void *use_too(void *p)
{
	int rc;

	for (;;)
		ncclCommGetAsyncError(p, &rc);
	return NULL;
}

/* Mistakes of a back end that calls for a reduction. */
static void spoil(struct comm *c, struct op *o)
{
	pthread_t t;

	if (standin_makes("count") && c->me == 1 && c->ops == 3 && o->count)
		o->count--;
	if (standin_makes("pointer") &&
	    ((uintptr_t)o->in / 4096 + (unsigned)c->me) % 3 == 0)
		o->call = REDUCESCATTER;
	if (standin_makes("host"))
		*(volatile const char *)o->in;
	if (standin_makes("thread") && c->ops == 1 && !c->me &&
	    !pthread_create(&t, NULL, use_too, c))
		pthread_detach(t);
}

static int add_reduction(enum call call, const void *in, void *out, size_t n, int type,
			 int op, int root, struct comm *c, void *stream)
{
	struct op *o;
	size_t bytes;

	if (type < 0 || type >= (int)(sizeof types / sizeof *types) || op < 0 ||
	    op > AVERAGE)
		return NCCL_INVALID_ARGUMENT;
	enter(c);
	ncclGroupStart();
	o = add(c, call, stream);
	o->in = in;
	o->out = out;
	o->count = n;
	o->type = types[type];
	o->op = op < AVERAGE ? ops[op] : BERTH_SUM;
	if (op == AVERAGE)
		o->scale.divide = (uint32_t)c->n;
	o->root = root;
	bytes = n * kern_size(o->type);
	check_memory(in, bytes);
	if (root < 0 || root == c->me)
		check_memory(out, bytes);
	spoil(c, o);
	leave(c, 0);
	return ncclGroupEnd();
}

int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, void *comm,
		  void *stream)
{
	return add_reduction(ALLREDUCE, in, out, n, type, op, -1, comm, stream);
}

int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root,
	       void *comm, void *stream)
{
	return add_reduction(REDUCE, in, out, n, type, op, root, comm, stream);
}

int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, void *comm,
		      void *stream)
{
	return add_reduction(REDUCESCATTER, in, out, n, type, op, -1, comm, stream);
}

/* ---- moves ---- */

/* That of the group's, or a new one. */
static struct op *messages_of(struct comm *c, void *stream)
{
	for (int i = 0; i < ngroup; i++)
		if (group[i].c == c && group[i].call == MESSAGES)
			return &group[i];
	return add(c, MESSAGES, stream);
}

static int add_message(bool sends, void *p, size_t n, int type, int peer,
		       struct comm *c, void *stream)
{
	const size_t bytes = n * kern_size(types[type]);
	struct op *o;

	enter(c);
	if (!depth)
		standin_fail("a message outside of a group");
	o = messages_of(c, stream);
	*(sends ? &o->send[peer] : &o->recv[peer]) = (struct message){ p, bytes };
	check_memory(p, bytes);
	return leave(c, NCCL_SUCCESS);
}

int ncclSend(const void *in, size_t n, int type, int peer, void *comm, void *stream)
{
	return add_message(true, (void *)(uintptr_t)in, n, type, peer, comm, stream);
}

int ncclRecv(void *out, size_t n, int type, int peer, void *comm, void *stream)
{
	return add_message(false, out, n, type, peer, comm, stream);
}

/* N elements of each rank in FROM. */
static struct op *add_move(enum call call, size_t n, int type, int root, struct comm *c,
			   void *stream)
{
	struct op *o;

	enter(c);
	ncclGroupStart();
	o = add(c, call, stream);
	o->count = n;
	o->type = types[type];
	o->root = root;
	return o;
}

int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, void *comm,
		  void *stream)
{
	struct op *o = add_move(BROADCAST, n, type, root, comm, stream);
	const size_t bytes = n * kern_size(o->type);

	for (int r = 0; o->c->me == root && r < o->c->n; r++)
		o->send[r] = (struct message){ (void *)(uintptr_t)in, bytes };
	o->recv[root] = (struct message){ out, bytes };
	check_memory(out, bytes);
	leave(o->c, 0);
	return ncclGroupEnd();
}

/* In place only where this rank's part is. */
int ncclAllGather(const void *in, void *out, size_t n, int type, void *comm,
		  void *stream)
{
	struct op *o = add_move(ALLGATHER, n, type, -1, comm, stream);
	const size_t bytes = n * kern_size(o->type);
	const char *from = in, *to = out, *own = to + (size_t)o->c->me * bytes;

	if (bytes && from != own && from < to + bytes * (size_t)o->c->n &&
	    to < from + bytes)
		standin_fail("an allgather in place, and not where the rank's part is: "
			     "NCCL would mix them");
	for (int r = 0; r < o->c->n; r++) {
		o->send[r] = (struct message){ (void *)(uintptr_t)in, bytes };
		o->recv[r] = (struct message){ (char *)out + (size_t)r * bytes, bytes };
	}
	check_memory(in, bytes);
	check_memory(out, bytes);
	leave(o->c, 0);
	return ncclGroupEnd();
}
