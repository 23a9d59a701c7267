/* berth.h - collectives for the processes ("ranks") of a training program.
 *
 *     berth_init(NULL);
 *     struct berth_desc d = BERTH_DESC(.in = gradients, .out = gradients, .count = n,
 *                                      .type = BERTH_F32, .op = BERTH_AVG);
 *     if (berth_allreduce(&d))
 *             fprintf(stderr, "%s\n", berth_last_error()->text);
 *     berth_shutdown();
 *
 * Every rank of a set makes the same calls on it in the same order.  What does not
 * match is an error on every rank that names both sides; nothing is mixed, but what
 * OUT holds then is of no use.  Only asynchronous operations with names may be
 * submitted in another order on each rank.
 *
 * Counts are elements, sizes bytes, times milliseconds.  Buffers belong to the
 * caller and stay his until the call, or the wait for it, has returned.  Pointers
 * that are returned stay valid until the call that ends them says otherwise.
 *
 * All calls may be made from several threads.  The library prints nothing, ends no
 * process, touches no signal; it starts a thread with the first asynchronous
 * operation.  Structs begin with their size, so that they may grow.
 *
 * In C++20 BERTH_DESC takes its members in their order; before, none: BERTH_DESC(). */
#ifndef BERTH_H
#define BERTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#pragma GCC system_header /* -Wextra would name what BERTH_DESC leaves out */
extern "C" {
#endif
#pragma GCC visibility push(default)

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 1
#define BERTH_VERSION_PATCH 0
#define BERTH_VERSION_NUMBER                                                           \
	(BERTH_VERSION_MAJOR * 10000 + BERTH_VERSION_MINOR * 100 + BERTH_VERSION_PATCH)

typedef enum berth_result {
	BERTH_OK,
	BERTH_BUSY,        /* berth_poll(), berth_wait(): it is not done yet */
	BERTH_INVALID,     /* an argument */
	BERTH_STATE,       /* the wrong time: before berth_init(), for instance */
	BERTH_NO_PEERS,    /* there are more ranks, and no way to them */
	BERTH_MISMATCH,    /* the ranks called for different things */
	BERTH_PEER_LOST,   /* a rank of the set has ended */
	BERTH_TIMEOUT,     /* in the time given a rank did not come */
	BERTH_ABORTED,     /* the set was removed, or shut down, meanwhile */
	BERTH_MEMORY,      /* out of it */
	BERTH_AUTH,        /* who connected does not have the job's key */
	BERTH_UNSUPPORTED, /* by this build, or this back end */
	BERTH_SYSTEM       /* a system call failed */
} berth_result;

typedef enum berth_type {
	BERTH_U8,
	BERTH_I8,
	BERTH_U16,
	BERTH_I16,
	BERTH_I32,
	BERTH_U32,
	BERTH_I64,
	BERTH_U64,
	BERTH_F16,  /* summed in f32 */
	BERTH_BF16, /* summed in f32 */
	BERTH_F32,
	BERTH_F64,
	BERTH_BOOL, /* a byte, 0 or 1: sum and max are "or", product and min "and" */
	BERTH_TYPES
} berth_type;

typedef enum berth_op {
	BERTH_SUM,
	BERTH_AVG, /* sum / ranks; of integers rounded toward zero; not of bool */
	BERTH_MIN,
	BERTH_MAX,
	BERTH_PRODUCT,
	BERTH_BAND, /* integers and bool only, as are the next two */
	BERTH_BOR,
	BERTH_BXOR,
	BERTH_ADASUM, /* allreduce of floats only */
	BERTH_OPS
} berth_op;

/* ---- the beginning and the end ---- */

enum berth_log_level {
	BERTH_LOG_ERROR,
	BERTH_LOG_WARNING,
	BERTH_LOG_INFO,
	BERTH_LOG_DEBUG
};

struct berth_config {
	size_t size;
	/* What is worth knowing, a line each, without its end; from any thread. */
	void (*log)(void *ctx, enum berth_log_level level, const char *text);
	void *log_ctx;
	int64_t timeout_ms; /* where none is given; 0: BERTH_OP_TIMEOUT; -1: none */
};

/* Join the other ranks: those of the job that started this process, or, only if
 * nothing says that there are others, alone.  CONFIG may be NULL.  Calls are
 * counted: as many to berth_shutdown() end it.  All ranks, at the same time.
 * BERTH_NO_PEERS: a launcher was seen that gives no way to the other ranks; the text
 * of berth_last_error() says what to add. */
berth_result berth_init(const struct berth_config *config);
/* Operations in flight end with BERTH_ABORTED.  No other rank is waited for. */
berth_result berth_shutdown(void);

/* In the whole job; -1 before berth_init().  Local: among those of this host.  Cross:
 * among those of each host that have this local rank. */
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
	const char *tensor; /* name of the operation's, or "" */
	const int *missing; /* ranks that did not come, or not for the same */
	size_t nmissing;
	const char *text; /* one sentence, no full stop */
};

/* The last error of this thread; result BERTH_OK if there was none.  Valid until its
 * next call here. */
const struct berth_error *berth_last_error(void);
/* "out of memory"; of any number. */
const char *berth_result_text(berth_result result);

/* ---- sets of ranks ---- */

typedef struct berth_set berth_set; /* NULL: all ranks */

/* RANKS: of the whole job, in any order, each once; the order in the set is ascending.
 * All ranks of the job call it, those that are not in it as well: they get a set in
 * which their rank is -1 and every operation BERTH_INVALID. */
berth_result berth_set_add(const int *ranks, size_t n, berth_set **set);
/* One set for each COLOR, ordered by KEY, then rank; color -1: in none, SET gets NULL.
 * All ranks of PARENT call it. */
berth_result berth_set_split(berth_set *parent, int color, int key, berth_set **set);
/* All ranks that made it; the handle is gone. */
berth_result berth_set_remove(berth_set *set);
int berth_set_rank(const berth_set *set); /* this process' place in it, or -1 */
int berth_set_size(const berth_set *set);
/* Rank in the whole job of member I. */
int berth_set_member(const berth_set *set, int i);

/* ---- operations ---- */

struct berth_desc {
	size_t size;
	const char *name; /* of the tensor; NULL: matched by order alone */
	berth_set *set;
	const void *in; /* may be OUT, but of reducescatter; no other overlap */
	void *out;
	uint64_t count; /* elements of IN, where nothing else is said */
	berth_type type;
	berth_op op;
	double prescale;  /* each element is multiplied before; 0: 1 */
	double postscale; /* and after; 0: 1 */
	int root;         /* in the set, of broadcast and reduce */
	const uint64_t
		*in_counts; /* of alltoallv and reducescatter: one for each rank */
	const uint64_t *out_counts; /* of allgatherv and alltoallv: one for each rank */
	int64_t timeout_ms;         /* 0: the default; -1: none */
	int priority;               /* of asynchronous ones, higher is earlier */
};
#define BERTH_DESC(...)                                                                \
	{                                                                              \
		.size = sizeof(struct berth_desc), __VA_ARGS__                         \
	}

/* OUT = the sum (or another op) over all ranks of IN, COUNT elements each.  On one
 * host in the order of ranks, whatever the size; over several every rank gets the
 * same bits. */
berth_result berth_allreduce(const struct berth_desc *d);
/* The same to OUT of ROOT alone. */
berth_result berth_reduce(const struct berth_desc *d);
/* Each rank gets its part of the sum: COUNT / ranks elements, the first ones one
 * more if there is a rest; or IN_COUNTS[rank], which add up to COUNT. */
berth_result berth_reducescatter(const struct berth_desc *d);
/* OUT = all ranks' IN in the order of ranks, COUNT elements each; or
 * OUT_COUNTS[rank], of which COUNT is this rank's. */
berth_result berth_allgather(const struct berth_desc *d);
/* OUT = ROOT's IN, COUNT elements. */
berth_result berth_broadcast(const struct berth_desc *d);
/* Part I of IN to rank I, whose part for us comes at the place of its rank in OUT.
 * COUNT / ranks elements each, COUNT a multiple of ranks; or IN_COUNTS[rank], which
 * add up to COUNT, and OUT_COUNTS[rank]. */
berth_result berth_alltoall(const struct berth_desc *d);
/* Until all ranks of SET have come. */
berth_result berth_barrier(berth_set *set);
/* This rank has no more data: until all ranks have joined, it takes part in what others
 * call for with zeros (ones, the least, ... as the operation needs).  LAST: who joined
 * last. */
berth_result berth_join(int *last);

/* What an operation returned, later.  One thread at a time polls or waits for it. */
typedef struct berth_request berth_request;

enum berth_kind {
	BERTH_ALLREDUCE,
	BERTH_REDUCE,
	BERTH_REDUCESCATTER,
	BERTH_ALLGATHER,
	BERTH_BROADCAST,
	BERTH_ALLTOALL,
	BERTH_BARRIER,
	BERTH_KINDS
};

/* Submit N operations of KIND, done together or not at all; one request for them. */
berth_result berth_submit(enum berth_kind kind, const struct berth_desc *d, size_t n,
			  berth_request **request);
/* BERTH_BUSY, or what it came to; the request remains. */
berth_result berth_poll(berth_request *request);
/* Until it is done, TIMEOUT_MS at most (-1: without limit).  BERTH_BUSY leaves the
 * request, everything else is what it came to, and ends it. */
berth_result berth_wait(berth_request *request, int64_t timeout_ms);
/* On a stream of the caller's device.  BERTH_UNSUPPORTED without a GPU back end. */
berth_result berth_wait_stream(berth_request *request, void *stream);

/* ---- memory ---- */

/* Memory that the other ranks of this host reach too: operations on it copy nothing.
 * NULL: out of memory.  Aligned to 64 bytes, zero. */
void *berth_alloc(size_t bytes);
void berth_free(void *p);
/* Memory of the caller's that will be used often; for back ends that gain by it. */
berth_result berth_register(void *p, size_t bytes);
berth_result berth_deregister(void *p);

/* ---- looking ---- */

struct berth_metrics {
	size_t size;
	uint64_t operations, bytes; /* done, and their inputs */
	uint64_t fused;             /* operations that went together with others */
	uint64_t negotiations;      /* rounds in which ranks had to agree on an order */
	uint64_t stalls, errors;
	uint64_t wait_ns; /* in which callers waited for other ranks */
};
berth_result berth_metrics(struct berth_metrics *m);

/* How an allreduce of which size is done, as was measured so far, in lines: TEXT of
 * BYTES, cut to fit.  Its whole length. */
size_t berth_ways(char *text, size_t bytes);

/* Chrome's trace format, a file for each rank, on one clock: PATH.RANK. */
berth_result berth_timeline_start(const char *path);
berth_result berth_timeline_stop(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
