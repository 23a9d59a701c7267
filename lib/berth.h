/* berth.h - collectives for the processes ("ranks") of a training program.
 *
 *     berth_init(NULL);
 *     struct berth_desc d = BERTH_DESC(.kind = BERTH_ALLREDUCE, .type = BERTH_F32,
 *                                      .op = BERTH_AVG, .in = gradients,
 *                                      .out = gradients, .count = n);
 *     if (berth_run(&d, -1, NULL))
 *             fprintf(stderr, "%s\n", berth_last_error()->text);
 *     berth_shutdown();
 *
 * A descriptor names an operation; berth_run() does it, berth_submit() begins it.  All
 * ranks of a process set ask for the same operations.  Those with names match by their
 * names, in any order; those without match by their order.  Threads that block in
 * operations of one set do so in the same order on all ranks.  If operations do not
 * match, every rank gets an error that names both sides.  The library mixes no data of
 * different operations, but the contents of OUT are then undefined.
 *
 * Counts are elements, sizes bytes, times milliseconds.  Buffers belong to the caller,
 * and must stay valid until the call, or the wait for it, has returned.  A returned
 * pointer stays valid until the call that ends it.
 *
 * Threads: several threads may make all calls; only one at a time those for one
 * request.  The library prints nothing, ends no process and changes no signal.  It
 * starts a thread for all sets with the first operation that is submitted.
 *
 * Callbacks: a function that the library calls may make all calls but those that wait,
 * which return BERTH_STATE in it.  If it takes long, other process sets go on.
 *
 * Fork: a child of fork() is no rank.  It has none of the library's sockets.  In it
 * calls return BERTH_STATE, also berth_wait() for a request of its parent.
 * berth_rank(), berth_size() and berth_world() still say what its parent is.
 *
 * ABI: structs begin with their size, so that they may grow at their end.  A field
 * that is 0 or NULL is not given.  A field of a later version has to be 0 here, or the
 * call returns BERTH_UNSUPPORTED.  Numbers of an enum never change; new ones come at
 * its end.  While the version is 0.x, each minor version has its own soname and symbol
 * version.
 *
 * In C++20 BERTH_DESC takes its members in their order; before, it takes none. */
#ifndef BERTH_H
#define BERTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#pragma GCC system_header /* -Wextra would name members that BERTH_DESC leaves out */
extern "C" {
#endif
#pragma GCC visibility push(default)

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 2
#define BERTH_VERSION_PATCH 0
#define BERTH_VERSION_NUMBER                                                           \
	(BERTH_VERSION_MAJOR * 10000 + BERTH_VERSION_MINOR * 100 + BERTH_VERSION_PATCH)

typedef enum berth_result {
	BERTH_OK = 0,
	BERTH_BUSY = 1,      /* not done yet */
	BERTH_INVALID = 2,   /* an argument is not valid */
	BERTH_STATE = 3,     /* a call at the wrong time, as before berth_init() */
	BERTH_NO_PEERS = 4,  /* there are other ranks, but they cannot be reached */
	BERTH_MISMATCH = 5,  /* the ranks called different operations */
	BERTH_PEER_LOST = 6, /* a rank of the process set has ended */
	BERTH_TIMEOUT = 7,   /* a rank did not call the operation in time */
	BERTH_ABORTED = 8,   /* the process set was aborted or removed, or the library
				shut down or changed its world */
	BERTH_MEMORY = 9,    /* out of memory */
	BERTH_AUTH = 10, /* a peer does not have the job's key, or did not send it */
	BERTH_UNSUPPORTED = 11, /* not in this build, or not in this back end */
	BERTH_SYSTEM = 12       /* a system call failed, or the end of an operation in
				   GPU memory hangs: its arrays stay in use */
} berth_result;

typedef enum berth_type {
	BERTH_U8 = 0,
	BERTH_I8 = 1,
	BERTH_U16 = 2,
	BERTH_I16 = 3,
	BERTH_I32 = 4,
	BERTH_U32 = 5,
	BERTH_I64 = 6,
	BERTH_U64 = 7,
	BERTH_F16 = 8,  /* summed in f32 */
	BERTH_BF16 = 9, /* summed in f32 */
	BERTH_F32 = 10,
	BERTH_F64 = 11,
	BERTH_BOOL =
		12, /* a byte, 0 or 1: sum and max are "or", product and min "and" */
	BERTH_F8_E4M3 = 13, /* torch's float8_e4m3fn, 448 at most; summed in f32 */
	BERTH_F8_E5M2 = 14  /* torch's float8_e5m2; summed in f32 */
} berth_type;

typedef enum berth_op {
	BERTH_SUM = 0,
	/* The sum as it is accumulated, divided by the ranks of the set, then rounded
	 * to the type; of integers toward zero.  Not for bool. */
	BERTH_AVG = 1,
	/* MIN and MAX of floats: minimum and maximum of IEEE 754-2019; a NaN comes
	 * out. */
	BERTH_MIN = 2,
	BERTH_MAX = 3,
	BERTH_PRODUCT = 4,
	BERTH_BAND = 5, /* only integers and bool, as the next two */
	BERTH_BOR = 6,
	BERTH_BXOR = 7,
	BERTH_ADASUM = 8 /* only allreduce of floats */
} berth_op;

/* The numbers of kinds begin with 1: a kind has to be given. */
typedef enum berth_kind {
	BERTH_ALLREDUCE = 1,
	BERTH_REDUCE = 2,
	BERTH_REDUCESCATTER = 3,
	BERTH_ALLGATHER = 4,
	BERTH_BROADCAST = 5,
	BERTH_ALLTOALL = 6,
	BERTH_BARRIER = 7,
	BERTH_GATHER = 8,
	BERTH_SCATTER = 9,
	BERTH_SEND = 10,
	BERTH_RECV = 11
} berth_kind;

/* Where an array lies. */
typedef enum berth_memory {
	/* The library finds out.  It knows of GPUs where libcuda was loaded before
	 * berth_init(), or after the first operation with BERTH_CUDA or a stream. */
	BERTH_ANYWHERE = 0,
	BERTH_HOST = 1,
	BERTH_CUDA = 2 /* of a GPU; BERTH_UNSUPPORTED without NCCL */
} berth_memory;

/* ---- begin and end ---- */

enum berth_log_level {
	BERTH_LOG_ERROR = 0,
	BERTH_LOG_WARNING = 1,
	BERTH_LOG_INFO = 2,
	BERTH_LOG_DEBUG = 3
};

/* How processes find each other.  The library uses it only while the call that takes it
 * lasts, in the thread of that call. */
struct berth_bootstrap {
	size_t size;
	int rank, ranks;
	/* IN, BYTES of each process, to OUT in the order of ranks.  0, or anything else
	 * if it failed.  All processes call it equally often. */
	int (*allgather)(void *ctx, const void *in, void *out, size_t bytes);
	void *ctx;
	/* 32 bytes, the same on all processes.  NULL: rank 0 makes it, and it is as
	 * secret as what allgather sends. */
	const unsigned char *key;
	const char *host; /* processes with equal names share memory; NULL: found out */
};

struct berth_config {
	size_t size;
	/* Gets each message: one line without its newline, from any thread. */
	void (*log)(void *ctx, enum berth_log_level level, const char *text);
	void *log_ctx;
	int64_t timeout_ms; /* the default; 0: BERTH_OP_TIMEOUT; -1: none */
	const struct berth_bootstrap *bootstrap; /* NULL: the agent, PMIx, or alone */
};

/* Begin an init round: join the other ranks of the job that started this process, or
 * those of CONFIG's bootstrap.  If the environment names no other ranks, this rank is
 * alone.  All ranks call it at the same time.  CONFIG may be NULL.  Calls are counted:
 * the same number of berth_shutdown() ends it.  BERTH_NO_PEERS: the launcher gives no
 * way to reach the other ranks; the text of berth_last_error() says what to add. */
berth_result berth_init(const struct berth_config *config);
/* Leave this world, and join the next one, as berth_init() does: rank, size and epoch
 * are others then.  The count of berth_init() stays, and so do log and timeout_ms that
 * CONFIG does not give.  With a bootstrap, processes that call berth_init() may join
 * the same world.  Without, in a job of runner's, all ranks that are left call this:
 * those that have not ended, in their old order.
 * Operations and process sets of the old world end as with berth_shutdown(), but the
 * memory of berth_alloc() stays until berth_free().
 *
 * If it fails, berth_rank() says whether this process is still in its old world.  If it
 * is -1, this process is in none: calls return BERTH_STATE, and berth_change() may be
 * called again, or berth_shutdown().  BERTH_UNSUPPORTED, in the old world: a PMIx
 * server started the ranks, and CONFIG has no bootstrap. */
berth_result berth_change(const struct berth_config *config);
/* Operations that still run end with BERTH_ABORTED, also those in which other threads
 * are.  It does not wait for other ranks.  Process sets end with it.  Requests remain
 * until berth_wait(). */
berth_result berth_shutdown(void);

/* The rank in the whole job, and the number of ranks; -1 before berth_init(), and after
 * berth_shutdown(). */
int berth_rank(void);
int berth_size(void);

/* Local: among the ranks of this host.  Cross: among the ranks of all hosts with this
 * local rank. */
struct berth_world {
	size_t size;
	uint64_t epoch; /* from 1; the same on all ranks; berth_change() raises it */
	int rank, ranks;
	int local_rank, local_size;
	int cross_rank, cross_size;
	int changed; /* 0, or enum berth_changed: berth_change() is due */
};
berth_result berth_world(struct berth_world *world);

enum berth_changed {
	BERTH_RANKS_LOST = 1, /* ranks of this world have ended */
	BERTH_RANKS_WAIT      /* ranks that are in no world yet wait for the next one */
};

/* CAN 1: this rank calls berth_change() when berth_world() says so, at the latest after
 * BERTH_PEER_LOST.  0: it does not, as at the beginning.  It stays for later worlds.
 * With runner's --restarts, if all ranks that run have said 1, a rank that fails starts
 * again while the others go on: its berth_init() waits for the world that they change
 * to next, in which it comes after them.  A thread that sleeps until berth_shutdown()
 * shows them that this process dies before the kernel has freed its memory.  Without
 * runner it does nothing. */
berth_result berth_elastic(int can);

/* "0.2.0" */
const char *berth_version(void);

struct berth_error {
	size_t size;
	berth_result result;
	const char *tensor; /* the name of the operation's tensor, or "" */
	const int *missing; /* ranks that did not call it, or called a different one */
	size_t nmissing;
	const char *text; /* one sentence, no full stop */
};

/* The last error of this thread; its result is BERTH_OK if there was none.  In a
 * callback: the error of its operation.  Valid until the next call of this thread. */
const struct berth_error *berth_last_error(void);
/* A short text such as "out of memory", for any number. */
const char *berth_result_text(berth_result result);

/* ---- process sets ---- */

/* NULL: all ranks.  A set that was removed, or that was made before berth_shutdown() or
 * berth_change(), stays invalid: calls with it return BERTH_STATE, berth_set_remove()
 * too, and its rank, size and members are -1.  There is nothing left to free. */
typedef struct berth_set berth_set;

/* RANKS: ranks of the whole job, in any order, each once.  Their order in the process
 * set is ascending.  All ranks of the job call it.  A rank that is not in the set gets
 * a set in which its rank is -1 and every operation returns BERTH_INVALID. */
berth_result berth_set_add(const int *ranks, size_t n, berth_set **set);
/* One set for each COLOR, ordered by KEY, then by rank in PARENT.  With color -1 the
 * rank is in no set, and SET gets NULL.  All ranks of PARENT call it. */
berth_result berth_set_split(berth_set *parent, int color, int key, berth_set **set);
/* A set that its members alone make: those of BOOTSTRAP, ranks of one world, in the
 * order of its ranks.  Other ranks do not call. */
berth_result berth_set_make(const struct berth_bootstrap *bootstrap, berth_set **set);
/* Operations of all ranks in the set, those that run and those that come, end with
 * BERTH_ABORTED.  WHY, or NULL, stands in the text of the error.  It returns at once.
 * A rank that waits, on any host, gets the error within 0.2 s. */
berth_result berth_set_abort(berth_set *set, const char *why);
/* This rank leaves the set, and waits for no other.  SET is then no longer valid, even
 * if the call fails.  Operations of this rank that still run in it end with
 * BERTH_ABORTED, and so do operations of other ranks that this rank has not
 * called.  A message to it or from it ends with BERTH_PEER_LOST. */
berth_result berth_set_remove(berth_set *set);
int berth_set_rank(const berth_set *set); /* of this process, or -1 */
int berth_set_size(const berth_set *set);
/* The rank of member I in the whole job. */
int berth_set_member(const berth_set *set, int i);

/* ---- operations ----
 *
 * ALLREDUCE      OUT = the sum (or another op) of IN over all ranks, COUNT elements.
 * REDUCE         The same, but only to OUT of ROOT.
 * REDUCESCATTER  Each rank gets its part of the sum: COUNT / ranks elements, and the
 *                first ranks one more if there is a remainder; or IN_COUNTS[rank], with
 *                the sum COUNT.
 * ALLGATHER      OUT = IN of all ranks in the order of ranks, COUNT elements each.
 *                OUT_COUNTS: the count of each rank, where the counts differ.
 * BROADCAST      OUT = IN of ROOT, COUNT elements.
 * ALLTOALL       Part I of IN goes to rank I.  Part I of OUT comes from rank I.  A part
 *                has COUNT / ranks elements, and COUNT is a multiple of ranks; or
 *                IN_COUNTS[I] elements, with the sum COUNT.
 * BARRIER        Wait until all ranks of SET have called it.
 * GATHER         OUT of ROOT = IN of all ranks in the order of ranks, COUNT each.
 * SCATTER        OUT = this rank's part of IN of ROOT, COUNT elements each.
 * SEND, RECV     IN of COUNT elements to rank ROOT; from rank ROOT, or from any
 *                (BERTH_ANY), to OUT with room for ROOM elements.  TAG is the same on
 *                both sides.  Those of one sender with one tag arrive in their order.
 *
 * Counts that only this rank knows: an allgather or an alltoall with RECEIVED writes
 * there how many elements came from each rank (RECV: one number).  OUT has room for
 * ROOM elements.  If more come, every rank gets BERTH_MISMATCH, and OUT is as it was.
 * If OUT is NULL, ALLOC is called with the bytes that come, in a thread of the library
 * or in the one that waits; without ALLOC, *MADE is memory for berth_free().
 * OUT_COUNTS says what is expected: a difference is BERTH_MISMATCH.
 *
 * In place: IN may be OUT, but for a reducescatter and a scatter: of these OUT may be
 * this rank's part of IN.  IN of an allgather or a gather may be this rank's part of
 * OUT.  No other overlap.
 *
 * Floats of 32 bits and fewer are accumulated in f32, and rounded to their type once,
 * at the end; f64 is accumulated in f64.  Integers wrap.  A prescaled element is
 * rounded to the accumulator's type before it is added; a scaled integer goes by way of
 * f64, is rounded toward zero, and stays in the range of its type.
 *
 * The order of a sum depends only on which ranks share a host: the ranks of each host
 * in the order of their ranks, then the hosts, numbered in the order of their first
 * ranks, in the order S(0, 1) with S(i, m) = S(i, 2m) + S(i + m, 2m): of four,
 * (0 + 2) + (1 + 3).  So every rank and every run gets the same bits, for any size and
 * any algorithm.
 *
 * In GPU memory NCCL, 2.18 or later, does it, in the order of STREAM.  A rank has one
 * GPU for each set, and all ranks of the set take the same way:
 *   by NCCL                           sum, average, min, max, product of u8, i8, i32,
 *                                     u32, i64, u64, f16, bf16, f32, f64; of bool no
 *                                     average; scaled only floats; the collectives
 *                                     that reduce nothing, of all types
 *   through the host's memory         bit operations; reductions of u16, i16 and f8;
 *                                     scaled integers; Adasum; all operations of a set
 *                                     of which two ranks share a GPU, unless
 *                                     NCCL_HOSTID tells them apart, or have different
 *                                     NCCLs, or one has none, or that can't join them;
 *                                     messages; a request to which other ranks give
 *                                     host memory where this one gives a GPU's
 *   BERTH_UNSUPPORTED                 MADE; counts of one's own in place; a stream that
 *                                     captures a CUDA graph; a rank without a driver of
 *                                     CUDA 11.4 or later
 * Through the host's memory the result is that of host memory, and a blocking call
 * waits until it is there, and its copy to OUT is on the stream; of messages, until the
 * copy is done.  A message needs page-locked memory of its size, which the library
 * keeps for others.  One rank then says why NCCL is not used (berth_config's log).
 * BERTH_DEVICE=host in the environment asks for that way.  With BERTH_DEVICE=nccl-only
 * it is an error, BERTH_UNSUPPORTED.
 * A send and a receive may have different memories, and so may the ranks of any
 * operation.  This takes longer, since the ranks tell each other each time what they
 * have.
 *
 * What differs by NCCL: each addition may round to the type.  The order of a sum is
 * NCCL's: all ranks get the same bits, another size or another run may give others.
 * A NaN may not come out of min and max.  A scale, and an average where the number of
 * ranks is no power of two, is a pass of its own over the array, in f32 (f64 in f64),
 * which rounds to the type: a sum of f16 that overflows before it is scaled stays
 * infinite.  NCCL's connections between hosts are neither authenticated nor encrypted:
 * with BERTH_NET_SECURE=aead arrays go through the host's memory between hosts, unless
 * BERTH_NCCL_CLEAR=1.
 *
 * When berth_wait() returns, with an error, too, NCCL uses the arrays no longer.  If
 * what ends it hangs for 10 s, the error is BERTH_SYSTEM: the arrays stay in use. */

#define BERTH_ANY (-1) /* root of BERTH_RECV: any rank */
/* A stream on which nothing waits; other streams as DLPack numbers them. */
#define BERTH_HOST_STREAM ((void *)-1)

struct berth_desc {
	size_t size;
	berth_kind kind;
	berth_type type;
	berth_op op;
	int root;          /* a rank in the set */
	const char *name;  /* of the tensor; NULL: only the order matches it */
	const char *shape; /* any text: compared, and quoted where it differs */
	berth_set *set;
	const void *in;
	void *out;
	void *(*alloc)(void *ctx, uint64_t bytes);
	void *alloc_ctx;
	void **made;
	uint64_t count; /* elements of IN, unless the operation says otherwise */
	uint64_t room;
	const uint64_t *in_counts, *out_counts; /* one for each rank */
	uint64_t *received;
	int *from; /* of RECV: the rank that it came from; NULL: nobody asks */
	/* Each element is multiplied by PRESCALE before it is added, and the result by
	 * POSTSCALE.  NULL: neither. */
	const double *prescale, *postscale;
	uint64_t tag;
	int64_t timeout_ms; /* 0: the default; -1: none */
	int priority;       /* of submitted operations; a higher one is earlier */
	int device;         /* of MEMORY */
	berth_memory memory;
	/* In the memory of a device: STREAM wrote IN and will read OUT.  OUT is not
	 * written if a rank leaves its world, or is lost, before.  READY is an event
	 * after which IN may be read. */
	void *stream, *ready;
};
#define BERTH_DESC(...)                                                                \
	{                                                                              \
		.size = sizeof(struct berth_desc), __VA_ARGS__                         \
	}

/* Operations that were submitted.  A request remains until berth_wait() or
 * berth_wait_any() ends it, also after berth_shutdown() or berth_change(): if its
 * operations were not done before, it comes to BERTH_ABORTED. */
typedef struct berth_request berth_request;

/* Do the operation D.  A rank that calls this and a rank that submits the same do one
 * operation.  SLICE_MS -1: return when it is done.  Else, after SLICE_MS milliseconds,
 * return BERTH_BUSY and *LATER, a request for it: so an interpreter can look at signals
 * now and then. */
berth_result berth_run(const struct berth_desc *d, int64_t slice_ms,
		       berth_request **later);
/* Begin N operations of one set, of any kinds, as one request.  Either all of its
 * collectives are done, or none.  Its sends and receives make progress together.  The
 * structs are D->size apart.  They are copied, with all that they point to but IN, OUT,
 * RECEIVED, FROM and MADE. */
berth_result berth_submit(const struct berth_desc *d, size_t n,
			  berth_request **request);
/* Begin N operations of one set as N requests, REQUESTS[0] to REQUESTS[N - 1]: as N
 * calls of berth_submit(), in one step.  If one of them cannot begin, none does, and
 * REQUESTS is undefined. */
berth_result berth_submit_each(const struct berth_desc *d, size_t n,
			       berth_request **requests);
/* BERTH_BUSY, or the result.  The request remains.  It gives no core away. */
berth_result berth_poll(berth_request *request);
/* Wait until it is done, at most TIMEOUT_MS (-1: no limit).  After BERTH_BUSY the
 * request remains.  Each other result is that of the operations, and ends the
 * request. */
berth_result berth_wait(berth_request *request, int64_t timeout_ms);
/* Wait until one of N is done, NULLs left out.  WHICH: its place.  Its result ends that
 * request; the others remain. */
berth_result berth_wait_any(berth_request *const *requests, size_t n,
			    int64_t timeout_ms, size_t *which);
/* Let STREAM of the caller's device wait.  The call returns when the operations have
 * begun on the device, or after TIMEOUT_MS (-1: no limit) with BERTH_BUSY.  The request
 * remains.  BERTH_INVALID: nothing of the request is in the memory of a device. */
berth_result berth_wait_stream(berth_request *request, void *stream,
			       int64_t timeout_ms);
/* Call DONE when the request is done, once, in a thread of the library or in one that
 * waits; at once if it is done already.  berth_wait() returns after DONE has.  The
 * request remains; DONE may end it with berth_wait(), if no other thread waits for it.
 * One for each request: another is BERTH_STATE. */
berth_result berth_then(berth_request *request,
			void (*done)(void *ctx, berth_result result), void *ctx);
/* This rank has no more data.  Until all ranks of SET have joined, it takes part in
 * each allreduce of the others with zeros (or ones, or the least value, as the
 * operation needs), and in each barrier; an average still divides by all ranks.  Every
 * other collective returns BERTH_STATE on all ranks that call it meanwhile.  LAST: the
 * rank of the job that joined last, the same on all ranks. */
berth_result berth_join(berth_set *set, int *last);

/* ---- memory ---- */

/* Memory that is aligned to 64 bytes, and zero.  NULL: out of memory, or no such
 * memory.  BERTH_HOST: all ranks of this host can access it, and operations on it copy
 * nothing; DEVICE is 0.  After berth_change() it is this process' alone.  BERTH_CUDA:
 * of GPU DEVICE.  To get it or to free it may wait for that GPU. */
void *berth_alloc(size_t bytes, berth_memory memory, int device);
void berth_free(void *p);
/* Announce memory of the caller that will be used often, for back ends that need
 * this.  BERTH_INVALID: it is not such memory. */
berth_result berth_register(void *p, size_t bytes, berth_memory memory, int device);
berth_result berth_deregister(void *p);

/* ---- observation ---- */

struct berth_metrics {
	size_t size;
	uint64_t operations, bytes; /* that were done, and the bytes of their inputs */
	uint64_t fused;             /* operations that were done together with others */
	uint64_t negotiations;      /* rounds in which ranks had to agree on an order */
	uint64_t stalls, errors;
	uint64_t wait_ns; /* the time that callers waited for other ranks */
};
berth_result berth_metrics(struct berth_metrics *m);

/* The algorithm of allreduce for each range of sizes, as measured so far, and how
 * arrays in GPU memory go, where there was one: lines in TEXT of BYTES, cut to fit.
 * Returns the length of the whole text. */
size_t berth_algorithms(char *text, size_t bytes);

/* Write Chrome's trace format, rank 0 to PATH, rank N to PATH.N, all on one clock. */
berth_result berth_timeline_start(const char *path);
berth_result berth_timeline_stop(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
