#include "lib/backend/nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend/cuda.h"
#include "lib/backend/cuda_order.h"
#include "lib/backend/move.h"
#include "lib/backend/nccl_places.h"
#include "lib/base/clock.h"
#include "lib/base/kern.h"
#include "lib/base/thread.h"

enum {
	NON_BLOCKING = 1, /* of a stream: it does not wait for the legacy one */
	MAJOR = 75,       /* attributes of a device: its compute capability */
	MINOR = 76,
	MAGIC = 0xcafebeef,
	ALIGN = 64 /* bytes, of what is packed */
};

/* For ncclCommAbort() to end what runs. */
#define ABORT_NS 10000000000

/* NCCL's numbers. */
enum { NCCL_OK, NCCL_INVALID_USAGE = 5, NCCL_REMOTE = 6, NCCL_IN_PROGRESS = 7 };
enum { NCCL_U8 = 1, NCCL_F32 = 7, NCCL_U64 = 5 };
enum { NCCL_SUM, NCCL_PRODUCT, NCCL_MAX, NCCL_MIN, NCCL_AVERAGE, NCCL_NONE = -1 };

static struct {
#define CALL(result, name, arguments) result(*name) arguments;
#include "lib/backend/nccl_calls.def"
#undef CALL
	int version;
} nccl;

/* The works of a GPU are on its stream, which stays. */
static struct {
	void *stream, *token; /* token: 8 bytes for barriers */
	unsigned char *room;  /* for what is packed */
	size_t room_bytes;
} gpu[CUDA_DEVICES];

static pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;

/* A rank's card. */
struct nccl_card {
	struct nccl_id id; /* of place 0 */
	char uuid[16], bus[24];
	char host[48]; /* as NCCL tells hosts apart: NCCL_HOSTID, or the boot's id */
	int version, driver, chip;
};

struct nccl_group {
	unsigned n, me;
	int device;
	void *comm, *stream;
	bool revoked;
	bool hangs; /* the end that revoke() began */
	uint64_t revoked_ns;
	_Atomic bool ended; /* the communicator, after that */
	_Atomic int holders;
	int failed; /* the last code of CUDA that is not 0 */
};

/* A work, from begin() to end(). */
struct nccl_work {
	struct cuda_event *runs, *done;
	uint64_t apart; /* memory of an IN that was copied; 0: none */
};

/* ---- the library ---- */

/* That of the process, as torch has it, or FILE, or another.  NULL: WHY not. */
static void *nccl_open(const char *file, char *why)
{
	void *lib = dlopen(NCCL_LIBRARY, RTLD_NOW | RTLD_NOLOAD);

	if (!lib)
		lib = nccl_open_found(file);
	if (!lib && file)
		snprintf(why, DEVICE_WHY_BYTES, "BERTH_NCCL: %s", dlerror());
	else if (!lib)
		snprintf(why, DEVICE_WHY_BYTES,
			 "no NCCL: neither the loader nor a Python environment "
			 "has " NCCL_LIBRARY
			 " (try: pip install nvidia-nccl-cu13, or BERTH_NCCL)");
	return lib;
}

static const char *nccl_take(const char *file, char *why)
{
	void *lib = nccl_open(file, why);
	char version[24];

	if (!lib)
		return why;
#define CALL(result, name, arguments)                                                  \
	nccl.name = (result(*) arguments)dlsym(lib, #name);                            \
	if (!nccl.name)                                                                \
		return "no NCCL: " NCCL_LIBRARY " is older than 2.18, it has "         \
		       "no " #name;
#include "lib/backend/nccl_calls.def"
#undef CALL
	if (!nccl.ncclGetVersion(&nccl.version) && nccl.version >= NCCL_OLDEST)
		return NULL;
	snprintf(why, DEVICE_WHY_BYTES, "no NCCL: version %s is older than 2.18",
		 nccl_version_text(version, nccl.version));
	return why;
}

/* NULL, or why it can't be had, the same each time. */
static const char *nccl_load(const char *file)
{
	static char text[DEVICE_WHY_BYTES];
	static const char *why;
	static bool tried;

	pthread_mutex_lock(&nccl_lock);
	if (!tried)
		why = nccl_take(file, text);
	tried = true;
	pthread_mutex_unlock(&nccl_lock);
	return why;
}

static void nccl_tells(char text[DEVICE_WHY_BYTES])
{
	char version[24];
	Dl_info from;

	snprintf(text, DEVICE_WHY_BYTES, "NCCL %s of %s",
		 nccl_version_text(version, nccl.version),
		 dladdr((void *)(uintptr_t)nccl.ncclGetVersion, &from) && from.dli_fname
			 ? from.dli_fname
			 : NCCL_LIBRARY);
}

static berth_result nccl_result(int rc)
{
	switch (rc) {
	case NCCL_OK:
		return BERTH_OK;
	case NCCL_IN_PROGRESS:
		return BERTH_BUSY;
	case NCCL_INVALID_USAGE:
		return BERTH_UNSUPPORTED;
	case NCCL_REMOTE:
		return BERTH_PEER_LOST;
	default:
		return BERTH_SYSTEM;
	}
}

/* BERTH_BUSY: it is not whole yet, or it launches. */
static berth_result nccl_look(void *group)
{
	const struct nccl_group *g = group;
	int rc;

	if (nccl.ncclCommGetAsyncError(g->comm, &rc))
		return BERTH_SYSTEM;
	return nccl_result(rc);
}

static bool nccl_hangs(const void *group)
{
	return ((const struct nccl_group *)group)->hangs;
}

static const char *nccl_says(const void *group)
{
	const struct nccl_group *g = group;

	if (g->failed)
		return cuda_text(g->failed);
	return g->revoked || !g->comm ? NULL : nccl.ncclGetLastError(g->comm);
}

/* ---- joining ---- */

/* Fills in DEVICE, whose context is this thread's.  NULL, or why it can't be done. */
static const char *nccl_describe(struct nccl_card *c, int device)
{
	const char *id = getenv("NCCL_HOSTID");
	FILE *f = id ? NULL : fopen("/proc/sys/kernel/random/boot_id", "re");
	int d, major = 0, minor = 0, rc;

	snprintf(c->host, sizeof c->host, "%s", id ? id : "");
	if (f && !fgets(c->host, sizeof c->host, f))
		*c->host = '\0';
	if (f)
		fclose(f);
	rc = cuda.cuDeviceGet(&d, device);
	rc = rc ? rc : cuda.cuDriverGetVersion(&c->driver);
	rc = rc ? rc : cuda.cuDeviceGetUuid(c->uuid, d);
	rc = rc ? rc : cuda.cuDeviceGetPCIBusId(c->bus, sizeof c->bus, d);
	rc = rc ? rc : cuda.cuDeviceGetAttribute(&major, MAJOR, d);
	rc = rc ? rc : cuda.cuDeviceGetAttribute(&minor, MINOR, d);
	c->chip = major * 10 + minor;
	return rc ? cuda_text(rc) : NULL;
}

static berth_result nccl_card(const struct device_options *options, int device,
			      unsigned n, unsigned me,
			      unsigned char bytes[DEVICE_CARD_BYTES],
			      char why[DEVICE_WHY_BYTES])
{
	struct nccl_card c = { .version = 0 };
	const char *wrong = cuda_load(), *no_nccl = NULL;

	_Static_assert(sizeof c <= DEVICE_CARD_BYTES, "a card of NCCL");
	(void)n;
	if (!wrong && !cuda_enter(device))
		wrong = cuda_no_gpu;
	if (!wrong) {
		wrong = nccl_describe(&c, device);
		if (!wrong && !options->by_host)
			no_nccl = nccl_load(options->nccl);
		if (!wrong && !no_nccl && !options->by_host && !me &&
		    nccl.ncclGetUniqueId(&c.id))
			no_nccl = "NCCL finds no network between ranks";
		cuda_leave();
	}
	if (wrong || no_nccl) {
		snprintf(why, DEVICE_WHY_BYTES, "%s", wrong ? wrong : no_nccl);
		return wrong ? BERTH_SYSTEM : BERTH_UNSUPPORTED;
	}
	c.version = nccl.version;
	memcpy(bytes, &c, sizeof c);
	return BERTH_OK;
}

/* Can't the ranks be joined?  All of them come to the same words. */
static bool nccl_refuses(const struct device_join *j, char why[DEVICE_WHY_BYTES])
{
	struct nccl_card a, b;
	char one[24], other[24];

	for (unsigned i = 0; i < j->n; i++)
		for (unsigned k = 0; k < i; k++) {
			memcpy(&a, j->cards + (size_t)k * DEVICE_CARD_BYTES, sizeof a);
			memcpy(&b, j->cards + (size_t)i * DEVICE_CARD_BYTES, sizeof b);
			if (a.version != b.version)
				snprintf(why, DEVICE_WHY_BYTES,
					 "rank %u has NCCL %s, rank %u has %s",
					 j->rank[k], nccl_version_text(one, a.version),
					 j->rank[i],
					 nccl_version_text(other, b.version));
			else if (!memcmp(a.host, b.host, sizeof a.host) &&
				 (!memcmp(a.uuid, b.uuid, sizeof a.uuid) ||
				  /* MIG; on a host that is known */
				  (*a.host && !memcmp(a.bus, b.bus, sizeof a.bus))))
				snprintf(why, DEVICE_WHY_BYTES,
					 "ranks %u and %u share GPU %.24s, which NCCL "
					 "can't (NCCL %s, driver of CUDA %d.%d)",
					 j->rank[k], j->rank[i], b.bus,
					 nccl_version_text(one, b.version),
					 b.driver / 1000, b.driver % 1000 / 10);
			else
				continue;
			return true;
		}
	return false;
}

/* The device's stream, and what is allocated in its order. */
static int nccl_prepare(int device)
{
	uint64_t token = 0;
	int rc = CUDA_OK;

	pthread_mutex_lock(&nccl_lock);
	if (!gpu[device].stream)
		rc = cuda.cuStreamCreateWithPriority(&gpu[device].stream, NON_BLOCKING,
						     -1);
	if (!rc && !gpu[device].token) {
		rc = cuda.cuMemAllocAsync(&token, sizeof token, gpu[device].stream);
		rc = rc ? rc
			: cuda.cuMemsetD8Async(token, 0, sizeof token,
					       gpu[device].stream);
		gpu[device].token = (void *)(uintptr_t)token;
	}
	pthread_mutex_unlock(&nccl_lock);
	return rc ? rc : move_load(device, gpu[device].stream);
}

static berth_result nccl_join(const struct device_join *j, void **group,
			      char why[DEVICE_WHY_BYTES])
{
	struct nccl_config config = { sizeof config, MAGIC,   NCCL_OLDEST, 0,
				      INT_MIN,       INT_MIN, INT_MIN,     NULL,
				      INT_MIN };
	struct nccl_group *g;
	struct nccl_card first;
	int rc;

	_Static_assert(sizeof config == 48, "the configuration of NCCL 2.17");
	if (nccl_refuses(j, why))
		return BERTH_UNSUPPORTED;
	g = calloc(1, sizeof *g);
	if (!g || !cuda_enter(j->device)) {
		free(g);
		return BERTH_MEMORY;
	}
	*group = g;
	g->n = j->n;
	g->me = j->me;
	g->device = j->device;
	g->holders = 1;
	memcpy(&first, j->cards, sizeof first);
	g->failed = nccl_prepare(j->device);
	g->stream = gpu[j->device].stream;
	rc = g->failed ? NCCL_OK
		       : nccl.ncclCommInitRankConfig(&g->comm, (int)j->n, first.id,
						     (int)j->me, &config);
	cuda_leave();
	if (!g->failed && (!rc || rc == NCCL_IN_PROGRESS))
		return BERTH_OK;
	snprintf(why, DEVICE_WHY_BYTES, "%s",
		 g->failed ? cuda_text(g->failed) : nccl.ncclGetErrorString(rc));
	return BERTH_SYSTEM;
}

/* ---- the end ---- */

static void nccl_let_go(struct nccl_group *g)
{
	if (atomic_fetch_sub(&g->holders, 1) == 1)
		free(g);
}

static void *nccl_end_comm(void *p)
{
	struct nccl_group *g = p;

	if (cuda_enter(g->device)) {
		(g->revoked ? nccl.ncclCommAbort : nccl.ncclCommDestroy)(g->comm);
		cuda_leave();
	}
	atomic_store(&g->ended, true);
	nccl_let_go(g);
	return NULL;
}

/* Without a thread the communicator stays for good, and G with it. */
static void nccl_begin_end(struct nccl_group *g)
{
	pthread_t t;

	atomic_fetch_add(&g->holders, 1);
	if (thread_start(&t, "berth-nccl-end", nccl_end_comm, g))
		pthread_detach(t);
}

static void nccl_revoke(void *group)
{
	struct nccl_group *g = group;

	if (g->revoked)
		return;
	g->revoked = true;
	g->revoked_ns = clock_ns();
	if (g->comm)
		nccl_begin_end(g);
}

/* ncclCommAbort() may hang.  Then a work that runs is given up, with all it has. */
static bool nccl_has_time(struct nccl_group *g)
{
	if (clock_ns() - g->revoked_ns < ABORT_NS)
		return true;
	g->hangs = true;
	return false;
}

static void nccl_leave(void *group)
{
	struct nccl_group *g = group;

	if (g->comm && !g->revoked)
		nccl_begin_end(g);
	nccl_let_go(g);
}

/* ---- operations, as calls of NCCL ---- */

static int nccl_type(berth_type t)
{
	static const signed char type[] = {
		[BERTH_U8] = 1,   [BERTH_I8] = 0,       [BERTH_U16] = -1,
		[BERTH_I16] = -1, [BERTH_I32] = 2,      [BERTH_U32] = 3,
		[BERTH_I64] = 4,  [BERTH_U64] = 5,      [BERTH_F16] = 6,
		[BERTH_BF16] = 9, [BERTH_F32] = 7,      [BERTH_F64] = 8,
		[BERTH_BOOL] = 1, [BERTH_F8_E4M3] = -1, [BERTH_F8_E5M2] = -1
	};

	return type[t];
}

/* Does NCCL divide the sum of C over N ranks?  It multiplies what it adds by 1 / N, in
 * the type of the elements.  That is exact where N is a power of two.  It divides sums
 * of integers. */
static bool nccl_divides(const struct coll *c, unsigned n)
{
	return c->scale.divide && (!(n & (n - 1)) || !move_type(c->type));
}

/* The number of C's reduction.  A sum of BOOL is an or. */
static int nccl_op(const struct coll *c, unsigned n)
{
	static const signed char op[] = {
		[BERTH_SUM] = NCCL_SUM,         [BERTH_AVG] = NCCL_NONE,
		[BERTH_MIN] = NCCL_MIN,         [BERTH_MAX] = NCCL_MAX,
		[BERTH_PRODUCT] = NCCL_PRODUCT, [BERTH_BAND] = NCCL_NONE,
		[BERTH_BOR] = NCCL_NONE,        [BERTH_BXOR] = NCCL_NONE
	};

	if (c->type != BERTH_BOOL)
		return nccl_divides(c, n) ? NCCL_AVERAGE : op[c->op];
	if (c->op == BERTH_SUM || c->op == BERTH_MAX)
		return NCCL_MAX;
	return op[c->op] == NCCL_NONE ? NCCL_NONE : NCCL_MIN;
}

static const char *nccl_takes(const void *group, const struct coll *c)
{
	const struct nccl_group *g = group;

	if (!coll_reduces(c->kind))
		return NULL;
	if (nccl_type(c->type) < 0)
		return "NCCL does not reduce that type";
	if (nccl_op(c, g->n) == NCCL_NONE)
		return "NCCL has no such reduction";
	if (c->scale.divide && (c->op != BERTH_SUM || c->type == BERTH_BOOL))
		return "NCCL has no such average";
	if ((c->scale.has_prescale || c->scale.has_postscale) && !move_type(c->type))
		return "on a GPU only floats are scaled";
	return NULL;
}

static const char *nccl_at(const void *p, uint64_t i, const struct coll *c)
{
	return (const char *)p + i * kern_size(c->type);
}

/* Puts off an error of CUDA until the work's end is asked for. */
static bool nccl_cuda(struct nccl_group *g, int rc)
{
	if (rc)
		g->failed = rc;
	return !rc;
}

static size_t nccl_piece_bytes(const struct coll *c, size_t k)
{
	const uint64_t end = k + 1 < c->npieces ? c->piece[k + 1].at : c->count;

	return (end - c->piece[k].at) * kern_size(c->type);
}

/* Is IN of C, or its pieces, packed into the room, or what this rank gives in its
 * place? */
static bool nccl_is_packed(const struct coll *c)
{
	return c->npieces || c->has_none ||
	       (coll_reduces(c->kind) && c->scale.has_prescale);
}

static size_t nccl_packed_bytes(const struct coll *c)
{
	const size_t bytes = c->count * kern_size(c->type);

	return nccl_is_packed(c) ? (bytes + ALIGN - 1) / ALIGN * ALIGN : 0;
}

/* Room for all that W packs.  The stream frees the old room behind the works that it
 * has. */
static bool nccl_has_room(struct nccl_group *g, const struct device_work *w)
{
	size_t bytes = 0;
	uint64_t p;

	for (size_t i = 0; i < w->n; i++)
		bytes += nccl_packed_bytes(&w->coll[i]);
	if (bytes <= gpu[g->device].room_bytes)
		return true;
	if (gpu[g->device].room_bytes)
		cuda.cuMemFreeAsync((uintptr_t)gpu[g->device].room, g->stream);
	gpu[g->device].room_bytes = 0;
	if (!nccl_cuda(g, cuda.cuMemAllocAsync(&p, bytes, g->stream)))
		return false;
	gpu[g->device].room = (unsigned char *)(uintptr_t)p;
	gpu[g->device].room_bytes = bytes;
	return true;
}

/* C's neutral elements into the ROOM, by words of 4 bytes. */
static int nccl_fill(struct nccl_group *g, const struct coll *c,
		     const unsigned char *room)
{
	const size_t size = kern_size(c->type), words = (c->count * size + 3) / 4;
	const uint64_t to = (uintptr_t)room;
	unsigned char all[8];
	uint32_t word[2];
	int rc;

	for (size_t i = 0; i < sizeof all; i++)
		all[i] = c->neutral[i % size];
	memcpy(word, all, sizeof word);
	if (!words)
		return CUDA_OK;
	if (word[0] == word[1])
		return cuda.cuMemsetD32Async(to, word[0], words, g->stream);
	rc = cuda.cuMemsetD2D32Async(to, 8, word[0], 1, words / 2, g->stream);
	return rc ? rc
		  : cuda.cuMemsetD2D32Async(to + 4, 8, word[1], 1, words / 2,
					    g->stream);
}

/* C's pieces into the ROOM, or its whole IN, prescaled. */
static bool nccl_pack(struct nccl_group *g, const struct coll *c,
		      const unsigned char *room)
{
	const bool scales = c->scale.has_prescale;
	const size_t size = kern_size(c->type);
	struct move m;
	int rc = CUDA_OK;

	if (c->has_none)
		return nccl_cuda(g, nccl_fill(g, c, room));
	move_begin(&m, g->device, g->stream, scales ? move_type(c->type) : MOVE_BYTES,
		   scales ? c->scale.prescale : 1, 1);
	for (size_t k = 0; !rc && k < c->npieces; k++)
		rc = move_add(&m, (uintptr_t)c->piece[k].in,
			      (uintptr_t)room + c->piece[k].at * size,
			      nccl_piece_bytes(c, k));
	if (!c->npieces)
		rc = move_add(&m, (uintptr_t)c->in, (uintptr_t)room, c->count * size);
	return nccl_cuda(g, rc ? rc : move_end(&m));
}

/* C's result out of the ROOM, or the part that this rank gets, in its place.  It is
 * divided, unless NCCL has done so, and postscaled. */
static bool nccl_unpack(struct nccl_group *g, const struct coll *c,
			const unsigned char *room)
{
	const bool divides = c->scale.divide && !nccl_divides(c, g->n);
	const bool scales = divides || c->scale.has_postscale;
	const size_t size = kern_size(c->type);
	struct move m;
	int rc = CUDA_OK;

	move_begin(&m, g->device, g->stream, scales ? move_type(c->type) : MOVE_BYTES,
		   c->scale.has_postscale ? c->scale.postscale : 1,
		   divides ? c->scale.divide : 1);
	for (size_t k = 0; !rc && k < c->npieces; k++)
		rc = move_add(&m, (uintptr_t)room + c->piece[k].at * size,
			      (uintptr_t)c->piece[k].out, nccl_piece_bytes(c, k));
	if (!c->npieces && scales && coll_gets(c, g->me))
		rc = move_add(&m, (uintptr_t)c->out, (uintptr_t)c->out,
			      size * (c->kind == BERTH_REDUCESCATTER
					      ? coll_part(c, g->n, g->me)
					      : c->count));
	return nccl_cuda(g, rc ? rc : move_end(&m));
}

/* All that W packs into the room, or all results to their places. */
static bool nccl_move(struct nccl_group *g, const struct device_work *w, bool in)
{
	const unsigned char *room = gpu[g->device].room;
	bool ok = true;

	for (size_t i = 0; ok && i < w->n; i++) {
		const struct coll *c = &w->coll[i];

		if (!in && !c->has_none)
			ok = nccl_unpack(g, c, room);
		else if (in && nccl_is_packed(c))
			ok = nccl_pack(g, c, room);
		room += nccl_packed_bytes(c);
	}
	return ok;
}

/* IN of C, or a copy of it where NCCL can't take both arrays as they lie: unless IN is
 * at PLACE in OUT, they may not overlap. */
static const void *nccl_apart(struct nccl_group *g, struct nccl_work *own,
			      const struct coll *c, size_t in_bytes, const void *place,
			      size_t out_bytes)
{
	const char *in = c->in, *out = c->out;

	if (!in_bytes || in == place || in + in_bytes <= out || out + out_bytes <= in ||
	    !nccl_cuda(g, cuda.cuMemAllocAsync(&own->apart, in_bytes, g->stream)))
		return in;
	nccl_cuda(g,
		  cuda.cuMemcpyAsync(own->apart, (uintptr_t)in, in_bytes, g->stream));
	return (void *)(uintptr_t)own->apart;
}

static int nccl_send(const struct nccl_group *g, const void *p, uint64_t bytes,
		     unsigned to)
{
	return nccl.ncclSend(p, bytes, NCCL_U8, (int)to, g->comm, g->stream);
}

static int nccl_receive(const struct nccl_group *g, const void *p, uint64_t bytes,
			unsigned from)
{
	return nccl.ncclRecv((void *)(uintptr_t)p, bytes, NCCL_U8, (int)from, g->comm,
			     g->stream);
}

static int nccl_reduce(struct nccl_group *g, struct nccl_work *own,
		       const struct coll *c, unsigned char *room)
{
	const int type = nccl_type(c->type);
	const uint64_t part = coll_part(c, g->n, 0);
	const size_t size = kern_size(c->type);
	const void *in = nccl_is_packed(c) ? room : c->in;
	const int op = nccl_op(c, g->n);
	bool even = true;
	int rc = NCCL_OK;

	if (c->kind == BERTH_ALLREDUCE)
		return nccl.ncclAllReduce(in, c->npieces || c->has_none ? room : c->out,
					  c->count, type, op, g->comm, g->stream);
	if (c->kind == BERTH_REDUCE)
		return nccl.ncclReduce(in, c->out, c->count, type, op, (int)c->root,
				       g->comm, g->stream);
	for (unsigned i = 1; i < g->n; i++)
		even &= coll_part(c, g->n, i) == part;
	if (!nccl_is_packed(c))
		in = nccl_apart(g, own, c, coll_part_at(c, g->n, g->n) * size,
				(void *)((uintptr_t)c->out -
					 coll_part_at(c, g->n, g->me) * size),
				coll_part(c, g->n, g->me) * size);
	if (even)
		return nccl.ncclReduceScatter(in, c->out, part, type, op, g->comm,
					      g->stream);
	for (unsigned i = 0; !nccl_result(rc) && i < g->n; i++)
		rc = nccl.ncclReduce(nccl_at(in, coll_part_at(c, g->n, i), c), c->out,
				     coll_part(c, g->n, i), type, op, (int)i, g->comm,
				     g->stream);
	return rc;
}

/* An alltoall, or an allgather of which ranks give different counts. */
static int nccl_exchange(struct nccl_group *g, struct nccl_work *own,
			 const struct coll *c)
{
	const bool parts = c->kind == BERTH_ALLTOALL;
	const size_t size = kern_size(c->type);
	const uint64_t ins = parts ? coll_part_at(c, g->n, g->n) : c->count;
	const char *to = nccl_at(c->out, coll_got_at(c, g->n, g->me), c);
	const char *from = nccl_apart(g, own, c, ins * size, parts ? NULL : to,
				      coll_got_at(c, g->n, g->n) * size);
	int rc = NCCL_OK;

	for (unsigned i = 0; !rc && i < g->n; i++) {
		const char *out =
			parts ? nccl_at(from, coll_part_at(c, g->n, i), c) : from;
		const uint64_t n = parts ? coll_part(c, g->n, i) : c->count;

		rc = nccl_send(g, out, n * size, i);
		if (!rc)
			rc = nccl_receive(g,
					  nccl_at(c->out, coll_got_at(c, g->n, i), c),
					  coll_got(c, g->n, i) * size, i);
	}
	return rc;
}

/* Gather and scatter: one message for each rank, also to the root itself. */
static int nccl_rooted(struct nccl_group *g, struct nccl_work *own,
		       const struct coll *c)
{
	const bool gathers = c->kind == BERTH_GATHER, is_root = g->me == c->root;
	const size_t bytes = c->count * kern_size(c->type);
	const char *many = gathers ? c->out : c->in;
	const void *in = c->in;
	int rc = NCCL_OK;

	if (is_root && gathers)
		in = nccl_apart(g, own, c, bytes, NULL, bytes * g->n);
	else if (is_root)
		many = in = nccl_apart(g, own, c, bytes * g->n, NULL, bytes);
	for (unsigned i = 0; is_root && !rc && i < g->n; i++)
		rc = gathers ? nccl_receive(g, many + i * bytes, bytes, i)
			     : nccl_send(g, many + i * bytes, bytes, i);
	if (rc)
		return rc;
	return gathers ? nccl_send(g, in, bytes, c->root)
		       : nccl_receive(g, c->out, bytes, c->root);
}

static int nccl_call(struct nccl_group *g, struct nccl_work *own, const struct coll *c,
		     unsigned char *room)
{
	const size_t bytes = c->count * kern_size(c->type);
	const void *in;

	switch (c->kind) {
	case BERTH_BARRIER:
		return nccl.ncclAllReduce(gpu[g->device].token, gpu[g->device].token, 1,
					  NCCL_U64, NCCL_SUM, g->comm, g->stream);
	case BERTH_BROADCAST:
		return nccl.ncclBroadcast(c->in, c->out, bytes, NCCL_U8, (int)c->root,
					  g->comm, g->stream);
	case BERTH_ALLGATHER:
		if (c->out_counts)
			return nccl_exchange(g, own, c);
		in = nccl_apart(g, own, c, bytes, nccl_at(c->out, g->me * c->count, c),
				bytes * g->n);
		return nccl.ncclAllGather(in, c->out, bytes, NCCL_U8, g->comm,
					  g->stream);
	case BERTH_ALLTOALL:
		return nccl_exchange(g, own, c);
	case BERTH_GATHER:
	case BERTH_SCATTER:
		return nccl_rooted(g, own, c);
	default:
		return nccl_reduce(g, own, c, room);
	}
}

/* ---- works ---- */

static void nccl_end(void *group, struct device_work *w)
{
	struct nccl_work *own = w->own;

	(void)group;
	if (own->runs)
		cuda_event_give(own->runs);
	if (own->done)
		cuda_event_give(own->done);
	free(own);
	w->own = NULL;
}

/* W came to RC on its way to the device, and the context is this thread's. */
static berth_result nccl_came_to(struct nccl_group *g, struct device_work *w,
				 berth_result rc)
{
	struct nccl_work *own = w->own;
	bool ok = true;

	if (!rc) { /* what comes behind it on the stream */
		ok = nccl_move(g, w, false);
		if (own->apart)
			ok &= nccl_cuda(g, cuda.cuMemFreeAsync(own->apart, g->stream));
		ok = ok &&
		     nccl_cuda(g, cuda.cuEventRecord(own->done->event, g->stream));
	}
	rc = ok ? rc : BERTH_SYSTEM;
	if (rc && rc != BERTH_BUSY)
		nccl_end(g, w);
	cuda_leave();
	return rc;
}

/* The marks and what is packed, then the calls as one group. */
static berth_result nccl_launch(struct nccl_group *g, struct device_work *w)
{
	struct nccl_work *own = w->own;
	unsigned char *room;
	const bool ok = nccl_has_room(g, w) &&
			nccl_cuda(g, cuda_await_all(g->stream, w->ready, w->nready)) &&
			nccl_cuda(g, cuda.cuEventRecord(own->runs->event, g->stream)) &&
			nccl_move(g, w, true);
	int rc = NCCL_OK, end;

	if (!ok || nccl.ncclGroupStart())
		return BERTH_SYSTEM;
	room = gpu[g->device].room;
	for (size_t i = 0; i < w->n && (!rc || rc == NCCL_IN_PROGRESS); i++) {
		const struct coll *c = &w->coll[i];

		rc = nccl_call(g, own, c, room);
		room += nccl_packed_bytes(c);
	}
	end = nccl.ncclGroupEnd();
	if (g->failed)
		return BERTH_SYSTEM;
	return nccl_result(rc && rc != NCCL_IN_PROGRESS ? rc : end);
}

static berth_result nccl_begin(void *group, struct device_work *w)
{
	struct nccl_group *g = group;
	struct nccl_work *own = calloc(1, sizeof *own);

	w->own = own;
	if (!own)
		return BERTH_MEMORY;
	if (!cuda_enter(g->device)) {
		free(own);
		return BERTH_SYSTEM;
	}
	own->runs = cuda_event_take(g->device);
	own->done = cuda_event_take(g->device);
	return nccl_came_to(g, w,
			    own->runs && own->done ? nccl_launch(g, w) : BERTH_MEMORY);
}

/* After revoke() it comes here until the communicator has ended. */
static berth_result nccl_begun(void *group, struct device_work *w)
{
	struct nccl_group *g = group;

	if (g->revoked && !atomic_load(&g->ended) && nccl_has_time(g))
		return BERTH_BUSY;
	if (!cuda_enter(g->device))
		return BERTH_SYSTEM;
	return nccl_came_to(g, w, g->revoked ? BERTH_PEER_LOST : nccl_look(g));
}

static berth_result nccl_test(void *group, struct device_work *w)
{
	struct nccl_group *g = group;
	const struct nccl_work *own = w->own;
	berth_result rc;
	int done;

	if (!cuda_enter(g->device))
		return BERTH_SYSTEM;
	done = cuda.cuEventQuery(own->done->event);
	if (done == CUDA_NOT_READY && !w->runs)
		w->runs = !cuda.cuEventQuery(own->runs->event);
	cuda_leave();
	if (done != CUDA_NOT_READY)
		return nccl_cuda(g, done) ? BERTH_OK : BERTH_SYSTEM;
	if (g->revoked)
		return w->runs && !nccl_has_time(g) ? BERTH_SYSTEM : BERTH_BUSY;
	rc = nccl_look(g);
	return rc ? rc : BERTH_BUSY;
}

static berth_result nccl_follow(void *group, struct device_work *w, void *stream)
{
	struct nccl_group *g = group;
	const struct nccl_work *own = w->own;
	int rc;

	if (!cuda_enter(g->device))
		return BERTH_SYSTEM;
	rc = cuda.cuStreamWaitEvent(stream, own->done->event, 0);
	cuda_leave();
	return rc ? BERTH_INVALID : BERTH_OK;
}

const struct device_backend nccl_backend = { .name = "NCCL",
					     .memory = BERTH_CUDA,
					     .look = cuda_look,
					     .find = cuda_find,
					     .alloc = cuda_alloc,
					     .discard = cuda_free,
					     .card = nccl_card,
					     .join = nccl_join,
					     .joined = nccl_look,
					     .takes = nccl_takes,
					     .mark = cuda_mark,
					     .share = cuda_event_hold,
					     .forget = cuda_event_give,
					     .begin = nccl_begin,
					     .begun = nccl_begun,
					     .test = nccl_test,
					     .follow = nccl_follow,
					     .end = nccl_end,
					     .revoke = nccl_revoke,
					     .hangs = nccl_hangs,
					     .says = nccl_says,
					     .tells = nccl_tells,
					     .leave = nccl_leave,
					     .stage = cuda_stage,
					     .unstage = cuda_unstage,
					     .copy = cuda_copy,
					     .passed = cuda_passed,
					     .await = cuda_await };
