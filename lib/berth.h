/* berth.h - collectives for the processes ("ranks") of a training program.
 *
 *     berth_init(NULL);
 *     struct berth_desc d = BERTH_DESC(.in = gradients, .out = gradients, .count = n,
 *                                      .type = BERTH_F32, .op = BERTH_AVG);
 *     if (berth_allreduce(&d))
 *             fprintf(stderr, "%s\n", berth_last_error()->text);
 *     berth_shutdown();
 *
 * Every rank of a process set makes the same calls on it in the same order.  If calls
 * do not match, every rank gets an error that names both sides.  The library mixes no
 * data of different operations, but the contents of OUT are then undefined.  Only
 * asynchronous operations with names may be submitted in a different order on each
 * rank.
 *
 * Counts are elements, sizes bytes, times milliseconds.  Buffers belong to the caller,
 * and must stay valid until the call, or the wait for it, has returned.  A returned
 * pointer stays valid until the call that ends it.
 *
 * Several threads may make all calls.  The library prints nothing, ends no process and
 * changes no signal.  It starts a thread with the first asynchronous operation.
 * Structs begin with their size, so that they may grow.  Numbers of an enum never
 * change; new ones come at its end.
 *
 * A child of fork() is no rank.  It has none of the library's sockets.  In it calls
 * return BERTH_STATE, also berth_wait() for a request of its parent.  berth_rank() and
 * the other five numbers are those of its parent.
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
#define BERTH_VERSION_MINOR 1
#define BERTH_VERSION_PATCH 0
#define BERTH_VERSION_NUMBER                                                           \
	(BERTH_VERSION_MAJOR * 10000 + BERTH_VERSION_MINOR * 100 + BERTH_VERSION_PATCH)

typedef enum berth_result {
	BERTH_OK = 0,
	BERTH_BUSY = 1,      /* berth_poll(), berth_wait(): not done yet */
	BERTH_INVALID = 2,   /* an argument is not valid */
	BERTH_STATE = 3,     /* a call at the wrong time, as before berth_init() */
	BERTH_NO_PEERS = 4,  /* there are other ranks, but they cannot be reached */
	BERTH_MISMATCH = 5,  /* the ranks called different operations */
	BERTH_PEER_LOST = 6, /* a rank of the process set has ended */
	BERTH_TIMEOUT = 7,   /* a rank did not call the operation in time */
	BERTH_ABORTED = 8,   /* the process set was removed, or the library shut down */
	BERTH_MEMORY = 9,    /* out of memory */
	BERTH_AUTH = 10,     /* a peer does not have the job's key */
	BERTH_UNSUPPORTED = 11, /* not in this build, or not in this back end */
	BERTH_SYSTEM = 12       /* a system call failed */
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

/* ---- begin and end ---- */

enum berth_log_level {
	BERTH_LOG_ERROR = 0,
	BERTH_LOG_WARNING = 1,
	BERTH_LOG_INFO = 2,
	BERTH_LOG_DEBUG = 3
};

struct berth_config {
	size_t size;
	/* Gets each message: one line without its newline, from any thread. */
	void (*log)(void *ctx, enum berth_log_level level, const char *text);
	void *log_ctx;
	int64_t timeout_ms; /* the default; 0: BERTH_OP_TIMEOUT; -1: none */
};

/* Begin an init round: join the other ranks of the job that started this process.  If
 * the environment names no other ranks, this rank is alone.  All ranks call it at the
 * same time.  CONFIG may be NULL.  Calls are counted: the same number of
 * berth_shutdown() ends it.  BERTH_NO_PEERS: the launcher gives no way to reach the
 * other ranks; the text of berth_last_error() says what to add. */
berth_result berth_init(const struct berth_config *config);
/* Operations that still run end with BERTH_ABORTED, also those in which other threads
 * are.  It does not wait for other ranks.  Process sets end with it.  Requests remain
 * until berth_wait(). */
berth_result berth_shutdown(void);

/* The rank in the whole job, and the number of ranks; -1 before berth_init(), and after
 * berth_shutdown().  Local:
 * among the ranks of this host.  Cross: among the ranks of all hosts with this local
 * rank. */
int berth_rank(void);
int berth_size(void);
int berth_local_rank(void);
int berth_local_size(void);
int berth_cross_rank(void);
int berth_cross_size(void);

/* "0.1.0" */
const char *berth_version(void);

struct berth_error {
	size_t size;
	berth_result result;
	const char *tensor; /* the name of the operation's tensor, or "" */
	const int *missing; /* ranks that did not call it, or called a different one */
	size_t nmissing;
	const char *text; /* one sentence, no full stop */
};

/* The last error of this thread; its result is BERTH_OK if there was none.  Valid until
 * the next call of this thread. */
const struct berth_error *berth_last_error(void);
/* A short text such as "out of memory", for any number. */
const char *berth_result_text(berth_result result);

/* ---- process sets ---- */

/* NULL: all ranks.  A set that was removed, or that was made before berth_shutdown(),
 * stays invalid: calls with it return BERTH_STATE, berth_set_remove() too, and its
 * rank, size and members are -1.  There is nothing left to free. */
typedef struct berth_set berth_set;

/* RANKS: ranks of the whole job, in any order, each once.  Their order in the process
 * set is ascending.  All ranks of the job call it.  A rank that is not in the set gets
 * a set in which its rank is -1 and every operation returns BERTH_INVALID. */
berth_result berth_set_add(const int *ranks, size_t n, berth_set **set);
/* One set for each COLOR, ordered by KEY, then by rank.  With color -1 the rank is in
 * no set, and SET gets NULL.  All ranks of PARENT call it. */
berth_result berth_set_split(berth_set *parent, int color, int key, berth_set **set);
/* All ranks that made the set call it, and it waits for them.  SET is then no longer
 * valid, even if the call fails.  Operations of all ranks that still run in it end with
 * BERTH_ABORTED. */
berth_result berth_set_remove(berth_set *set);
int berth_set_rank(const berth_set *set); /* of this process, or -1 */
int berth_set_size(const berth_set *set);
/* The rank of member I in the whole job. */
int berth_set_member(const berth_set *set, int i);

/* ---- operations ---- */

struct berth_desc {
	size_t size;
	const char *name; /* of the tensor; NULL: only the order matches it */
	berth_set *set;
	const void *in; /* may be OUT, except for reducescatter; no other overlap */
	void *out;
	uint64_t count; /* elements of IN, unless the operation says otherwise */
	berth_type type;
	berth_op op;
	/* Each element is multiplied by PRESCALE before it is added, and the result by
	 * POSTSCALE.  NULL: neither. */
	const double *prescale, *postscale;
	int root; /* a rank in the set, for broadcast and reduce */
	const uint64_t
		*in_counts; /* for alltoallv and reducescatter: one for each rank */
	const uint64_t
		*out_counts; /* for allgatherv and alltoallv: one for each rank */
	int64_t timeout_ms;  /* 0: the default; -1: none */
	int priority;        /* of asynchronous operations; a higher one is earlier */
};
#define BERTH_DESC(...)                                                                \
	{                                                                              \
		.size = sizeof(struct berth_desc), __VA_ARGS__                         \
	}

/* OUT = the sum (or another op) of IN over all ranks, COUNT elements each.
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
 * any algorithm.  This is also the order of berth_reduce() and
 * berth_reducescatter(). */
berth_result berth_allreduce(const struct berth_desc *d);
/* The same, but only to OUT of ROOT. */
berth_result berth_reduce(const struct berth_desc *d);
/* Each rank gets its part of the sum: COUNT / ranks elements, and the first ranks one
 * more if there is a remainder; or IN_COUNTS[rank], with the sum COUNT. */
berth_result berth_reducescatter(const struct berth_desc *d);
/* OUT = IN of all ranks in the order of ranks, COUNT elements each; or
 * OUT_COUNTS[rank], where COUNT is the number of this rank. */
berth_result berth_allgather(const struct berth_desc *d);
/* OUT = IN of ROOT, COUNT elements. */
berth_result berth_broadcast(const struct berth_desc *d);
/* Part I of IN goes to rank I.  Part I of OUT comes from rank I.  A part has COUNT /
 * ranks elements, and COUNT is a multiple of ranks; or the parts have IN_COUNTS[rank]
 * elements, with the sum COUNT, and OUT_COUNTS[rank] elements. */
berth_result berth_alltoall(const struct berth_desc *d);
/* Wait until all ranks of SET have called it. */
berth_result berth_barrier(berth_set *set);
/* This rank has no more data.  Until all ranks have joined, it takes part in each
 * allreduce of the others with zeros (or ones, or the least value, as the operation
 * needs), and in each barrier; an average still divides by all ranks.  Every other
 * operation is BERTH_INVALID on all ranks that call it meanwhile.  LAST: the rank that
 * joined last, the same on all ranks. */
berth_result berth_join(int *last);

/* Asynchronous operations.  One thread at a time polls or waits for a request.  It
 * remains until berth_wait() ends it, also after berth_shutdown(): if its operations
 * were not done before, it comes to BERTH_ABORTED. */
typedef struct berth_request berth_request;

enum berth_kind {
	BERTH_ALLREDUCE = 0,
	BERTH_REDUCE = 1,
	BERTH_REDUCESCATTER = 2,
	BERTH_ALLGATHER = 3,
	BERTH_BROADCAST = 4,
	BERTH_ALLTOALL = 5,
	BERTH_BARRIER = 6,
	BERTH_GATHER = 7,
	BERTH_SCATTER = 8
};

/* Submit N operations of KIND as one request.  Either all of them are done, or none. */
berth_result berth_submit(enum berth_kind kind, const struct berth_desc *d, size_t n,
			  berth_request **request);
/* BERTH_BUSY, or the result.  The request remains. */
berth_result berth_poll(berth_request *request);
/* Wait until it is done, at most TIMEOUT_MS (-1: no limit).  After BERTH_BUSY the
 * request remains.  Each other result is that of the operations, and ends the
 * request. */
berth_result berth_wait(berth_request *request, int64_t timeout_ms);
/* Let STREAM of the caller's device wait.  BERTH_UNSUPPORTED without a GPU back end. */
berth_result berth_wait_stream(berth_request *request, void *stream);

/* ---- memory ---- */

/* Memory that all ranks of this host can access: operations on it copy nothing.  It is
 * aligned to 64 bytes, and zero.  NULL: out of memory. */
void *berth_alloc(size_t bytes);
void berth_free(void *p);
/* Announce memory of the caller that will be used often, for back ends that need
 * this. */
berth_result berth_register(void *p, size_t bytes);
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

/* The algorithm of allreduce for each range of sizes, as measured so far: lines in TEXT
 * of BYTES, cut to fit.  Returns the length of the whole text. */
size_t berth_algorithms(char *text, size_t bytes);

/* Write PATH.RANK in Chrome's trace format, one file for each rank, all on one
 * clock. */
berth_result berth_timeline_start(const char *path);
berth_result berth_timeline_stop(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
