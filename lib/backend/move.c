#include "lib/backend/move.h"

#include <pthread.h>

#include "lib/backend/cuda.h"
#include "lib/backend/move_ptx.h"

enum {
	UNIT_BYTES = 16, /* that a thread copies at a time */
	ROWS = 4,        /* of units, for one block */
	BLOCKS_MOST = 32 /* for one piece */
};

static pthread_mutex_t move_lock = PTHREAD_MUTEX_INITIALIZER;
static void *kernel_of[CUDA_DEVICES];

enum move_type move_type(berth_type type)
{
	switch (type) {
	case BERTH_F32:
		return MOVE_F32;
	case BERTH_F64:
		return MOVE_F64;
	case BERTH_F16:
		return MOVE_F16;
	case BERTH_BF16:
		return MOVE_BF16;
	default:
		return MOVE_BYTES;
	}
}

static int move_launch(struct move *m)
{
	const uint64_t bytes = (uint64_t)MOVE_THREADS * UNIT_BYTES * ROWS;
	const uint64_t blocks = (m->most_bytes + bytes - 1) / bytes;
	void *args[] = { &m->args };

	return cuda.cuLaunchKernel(
		kernel_of[m->device],
		(unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST), m->args.pieces,
		1, MOVE_THREADS, 1, 1, 0, m->stream, args, NULL);
}

/* The kernel stays for good.  It is launched once without work: CUDA loads it only
 * then, which may wait for what runs. */
int move_load(int device, void *stream)
{
	struct move nothing;
	void *module;
	int rc = CUDA_OK;

	pthread_mutex_lock(&move_lock);
	if (!kernel_of[device]) {
		rc = cuda.cuModuleLoadData(&module, move_ptx);
		rc = rc ? rc
			: cuda.cuModuleGetFunction(&kernel_of[device], module,
						   "berth_move");
		move_begin(&nothing, device, stream, MOVE_BYTES, 1, 1);
		nothing.args.pieces = 1;
		nothing.most_bytes = 1;
		nothing.args.piece[0].bytes = 0;
		rc = rc ? rc : move_launch(&nothing);
		if (rc)
			kernel_of[device] = NULL;
	}
	pthread_mutex_unlock(&move_lock);
	return rc;
}

void move_begin(struct move *m, int device, void *stream, enum move_type type,
		double times, double divide)
{
	m->device = device;
	m->stream = stream;
	m->most_bytes = 0;
	m->args.type = type;
	m->args.pieces = 0;
	m->args.times = times;
	m->args.divide = divide;
}

int move_end(struct move *m)
{
	int rc = m->args.pieces ? move_launch(m) : CUDA_OK;

	m->args.pieces = 0;
	m->most_bytes = 0;
	return rc;
}

int move_add(struct move *m, uint64_t from, uint64_t to, uint64_t bytes)
{
	if (!bytes || (from == to && m->args.type == MOVE_BYTES))
		return CUDA_OK;
	m->args.piece[m->args.pieces].from = from;
	m->args.piece[m->args.pieces].to = to;
	m->args.piece[m->args.pieces++].bytes = bytes;
	m->most_bytes = bytes > m->most_bytes ? bytes : m->most_bytes;
	return m->args.pieces == MOVE_PIECES ? move_end(m) : CUDA_OK;
}
