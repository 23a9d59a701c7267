#include "lib/ops/tf_part.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/ops/tf_status.h"

static const struct {
	TF_DataType tf;
	berth_type type;
} part_types[] = {
	{ TF_FLOAT, BERTH_F32 },  { TF_DOUBLE, BERTH_F64 }, { TF_INT32, BERTH_I32 },
	{ TF_UINT8, BERTH_U8 },   { TF_INT16, BERTH_I16 },  { TF_INT8, BERTH_I8 },
	{ TF_INT64, BERTH_I64 },  { TF_BOOL, BERTH_BOOL },  { TF_BFLOAT16, BERTH_BF16 },
	{ TF_UINT16, BERTH_U16 }, { TF_HALF, BERTH_F16 },   { TF_UINT32, BERTH_U32 },
	{ TF_UINT64, BERTH_U64 },
};

static int part_type(TF_DataType tf)
{
	for (size_t i = 0; i < sizeof part_types / sizeof *part_types; i++)
		if (part_types[i].tf == tf)
			return (int)part_types[i].type;
	return -1;
}

int tf_part_numbers(int kind)
{
	switch (kind) {
	case BERTH_ALLGATHER:
	case BERTH_REDUCESCATTER:
		return 1;
	case BERTH_ALLTOALL:
		return 2;
	default:
		return 0;
	}
}

/* The sizes of IN; ROWS, unless it is -1, in the place of the first one.  Their
 * number. */
static int part_dims(const TF_Tensor *in, int64_t rows, int64_t dims[TF_DIMS_MAX])
{
	int n = TF_NumDims(in);

	for (int i = 0; i < n && i < TF_DIMS_MAX; i++)
		dims[i] = TF_Dim(in, i);
	if (rows >= 0 && n > 0)
		dims[0] = rows;
	return n;
}

static size_t part_element_bytes(const struct tf_part *part)
{
	static const unsigned char bytes[] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1 };

	return bytes[part_type(TF_TensorType(part->in))];
}

/* The output, with ROWS rows. */
static bool part_allocate(struct tf_part *part, uint64_t rows, TF_Status *s)
{
	int64_t dims[TF_DIMS_MAX];
	int n = part_dims(part->in, (int64_t)rows, dims);
	size_t bytes = part_element_bytes(part);

	for (int i = 0; i < n; i++)
		bytes *= (size_t)dims[i];
	part->out = TF_AllocateOutput(part->ctx, part->i, TF_TensorType(part->in), dims,
				      n, bytes, s);
	return part->out != NULL;
}

/* The alloc of a descriptor, in a thread of libberth's. */
static void *part_alloc(void *p, uint64_t bytes)
{
	struct tf_part *part = p;
	uint64_t row_bytes = part->row * part_element_bytes(part);
	TF_Status *s = TF_NewStatus();
	void *at = NULL;

	if (part_allocate(part, row_bytes ? bytes / row_bytes : 0, s))
		at = TF_TensorData(part->out);
	TF_DeleteStatus(s);
	return at || bytes ? at : part; /* no byte is written there */
}

/* The output takes the input's memory, if nobody else has it: a second reference to the
 * input would prevent that, so it is given back meanwhile.  [2 MiB: 270 us instead of
 * 440] */
static void part_forward(struct tf_part *part, TF_Status *s)
{
	int64_t dims[TF_DIMS_MAX];
	int n = part_dims(part->in, -1, dims), forwarded = -1;

	TF_DeleteTensor(part->in);
	part->in = NULL;
	part->out = TF_ForwardInputOrAllocateOutput(part->ctx, &part->i, 1, part->i,
						    dims, n, &forwarded, s);
	if (TF_GetCode(s) == TF_OK)
		TF_GetInput(part->ctx, part->i, &part->in, s);
}

/* The sizes in words; NULL for one size, of which the count says all.  HAS_ROWS: the
 * first one may differ between ranks. */
static const char *part_shape(const TF_Tensor *in, bool has_rows, char *text, size_t n)
{
	int ndims = TF_NumDims(in);
	size_t at = 1;

	if (ndims == 1)
		return NULL;
	snprintf(text, n, "[");
	for (int i = 0; i < ndims && at < n; i++)
		at += (size_t)(i == 0 && has_rows ? snprintf(text + at, n - at, "*")
						  : snprintf(text + at, n - at,
							     "%s%lld", i ? ", " : "",
							     (long long)TF_Dim(in, i)));
	if (at < n)
		snprintf(text + at, n - at, "]");
	return text;
}

void tf_part_share(uint64_t rows, uint64_t row, int ranks, uint64_t *counts)
{
	uint64_t n = (uint64_t)ranks;

	for (uint64_t r = 0; r < n; r++)
		counts[r] = (rows / n + (r < rows % n)) * row;
}

/* COUNTS of SPLITS, which is empty for an equal share.  False: the op has failed. */
static bool part_split(const struct tf_part *part, const TF_Tensor *splits, int ranks)
{
	int64_t n = TF_TensorElementCount(splits), rows = TF_Dim(part->in, 0), sum = 0;
	const int32_t *split = TF_TensorData(splits);

	if (n == 0 && rows % ranks) {
		tf_status_fail(
			part->ctx, TF_INVALID_ARGUMENT,
			"alltoall without splits takes a multiple of %d rows, and "
			"the tensor has %lld",
			ranks, (long long)rows);
		return false;
	}
	if (n == 0) {
		tf_part_share((uint64_t)rows, part->row, ranks, part->counts);
		return true;
	}
	if (n != ranks) {
		tf_status_fail(
			part->ctx, TF_INVALID_ARGUMENT,
			"splits has %lld entries: it has to have one for each of "
			"%d ranks",
			(long long)n, ranks);
		return false;
	}
	for (int r = 0; r < ranks; r++) {
		sum += split[r];
		if (split[r] < 0 || sum > rows) {
			tf_status_fail(
				part->ctx, TF_INVALID_ARGUMENT,
				"the entries of splits have to be 0 or more, and "
				"their sum at most the %lld rows of the tensor",
				(long long)rows);
			return false;
		}
		part->counts[r] = (uint64_t)split[r] * part->row;
	}
	return true;
}

/* Rows are needed where ranks get some of them.  False: the op has failed. */
static bool part_has_rows(const struct tf_part *part, const struct tf_kernel *k)
{
	int kind = k->op->kind;

	if (kind == BERTH_ALLREDUCE || kind == BERTH_BROADCAST)
		return true;
	if (TF_NumDims(part->in) == 0) {
		tf_status_fail(part->ctx, TF_INVALID_ARGUMENT,
			       "%s: a tensor of one dimension or more is needed: this "
			       "one has none",
			       k->label);
		return false;
	}
	return true;
}

/* ROWS rows come and go.  If they have no elements, a byte goes for each. */
static void part_stand_in(struct tf_part *part, uint64_t rows, struct berth_desc *d,
			  TF_Status *s)
{
	if (part->row > 0)
		return;
	part->stand_in = calloc(rows + 1, 1);
	if (!part->stand_in)
		TF_SetStatus(s, TF_RESOURCE_EXHAUSTED, "out of memory");
	part->row = 1;
	d->type = BERTH_U8;
}

/* A kind needs more than its input.  False: the op has failed, or S says why. */
static bool part_fill(struct tf_part *part, const struct tf_kernel *k,
		      const struct tf_group *group, TF_Tensor *splits,
		      uint64_t *numbers, struct berth_desc *d, TF_Status *s)
{
	uint64_t rows = TF_NumDims(part->in) ? (uint64_t)TF_Dim(part->in, 0) : 1;

	switch (k->op->kind) {
	case BERTH_BROADCAST:
		d->root = -1;
		for (int r = 0; r < group->ranks; r++)
			if (berth_set_member(group->set, r) ==
			    k->attribute[TF_ATTRIBUTE_root_rank])
				d->root = r;
		if (d->root < 0) {
			tf_status_fail(
				part->ctx, TF_INVALID_ARGUMENT,
				"broadcast: root rank %lld is not in the process "
				"set",
				(long long)k->attribute[TF_ATTRIBUTE_root_rank]);
			return false;
		}
		part_forward(part, s);
		break;
	case BERTH_ALLREDUCE:
		part_forward(part, s);
		break;
	case BERTH_REDUCESCATTER:
		part->counts = numbers;
		tf_part_share(rows, part->row, group->ranks, part->counts);
		d->in_counts = part->counts;
		part_allocate(
			part,
			rows / (uint64_t)group->ranks +
				((uint64_t)group->rank < rows % (uint64_t)group->ranks),
			s);
		break;
	case BERTH_ALLGATHER:
		part->received = numbers;
		part_stand_in(part, rows, d, s);
		break;
	case BERTH_ALLTOALL:
		part->received = numbers;
		part->counts = numbers + group->ranks;
		part_stand_in(part, rows, d, s);
		if (!part_split(part, splits, group->ranks))
			return false;
		d->in_counts = part->counts;
		break;
	}
	return TF_GetCode(s) == TF_OK;
}

bool tf_part_begin(struct tf_part *part, const struct tf_kernel *k,
		   const struct tf_group *group, TF_Tensor *splits, uint64_t *numbers,
		   char *shape, size_t shape_bytes, struct berth_desc *d)
{
	TF_Status *s = TF_NewStatus();
	int ndims, kind = k->op->kind;

	TF_GetInput(part->ctx, part->i, &part->in, s);
	if (TF_GetCode(s) != TF_OK)
		return !tf_status_end(part->ctx, s);
	ndims = TF_NumDims(part->in);
	part->row = 1;
	for (int i = 1; i < ndims; i++)
		part->row *= (uint64_t)TF_Dim(part->in, i);
	if (!part_has_rows(part, k)) {
		TF_DeleteStatus(s);
		return false;
	}
	*d = (struct berth_desc)
		BERTH_DESC(.kind = (berth_kind)kind,
			   .type = (berth_type)part_type(TF_TensorType(part->in)),
			   .op = (berth_op)k->attribute[TF_ATTRIBUTE_reduce_op],
			   .set = group->set, .memory = BERTH_HOST);
	if (!part_fill(part, k, group, splits, numbers, d, s)) {
		tf_status_end(part->ctx, s);
		return false;
	}
	TF_DeleteStatus(s);
	d->shape = part_shape(part->in, part->received != NULL, shape, shape_bytes);
	d->in = part->stand_in ? part->stand_in : TF_TensorData(part->in);
	d->count = part->stand_in ? (uint64_t)TF_Dim(part->in, 0)
				  : (uint64_t)TF_TensorElementCount(part->in);
	if (kind == BERTH_ALLTOALL) {
		d->count = 0;
		for (int r = 0; r < group->ranks; r++)
			d->count += part->counts[r];
	}
	if (part->out)
		d->out = TF_TensorData(part->out);
	if (part->received) {
		d->received = part->received;
		d->made = part->stand_in ? &part->made : NULL;
		d->alloc = part->stand_in ? NULL : part_alloc;
		d->alloc_ctx = part;
	}
	if (k->op->of & TF_OF_REDUCTION && k->prescale != 1)
		d->prescale = &k->prescale;
	if (k->op->of & TF_OF_REDUCTION && k->postscale != 1)
		d->postscale = &k->postscale;
	return true;
}

bool tf_part_end(struct tf_part *part, int kind, int ranks)
{
	TF_Status *s = TF_NewStatus();
	int64_t n = ranks;
	uint64_t rows = 0;
	TF_Tensor *received;

	for (int r = 0; part->received && r < ranks; r++)
		rows += part->received[r] / part->row;
	if (part->received && !part->out) /* no element came */
		part_allocate(part, rows, s);
	if (kind == BERTH_ALLTOALL && TF_GetCode(s) == TF_OK) {
		received = TF_AllocateOutput(part->ctx, 1, TF_INT32, &n, 1,
					     (size_t)n * sizeof(int32_t), s);
		for (int r = 0; received && r < ranks; r++)
			((int32_t *)TF_TensorData(received))[r] =
				(int32_t)(part->received[r] / part->row);
		if (received)
			TF_DeleteTensor(received);
	}
	return !tf_status_end(part->ctx, s);
}

void tf_part_drop(struct tf_part *part)
{
	if (part->in)
		TF_DeleteTensor(part->in);
	if (part->out)
		TF_DeleteTensor(part->out);
	berth_free(part->made);
	free(part->stand_in);
}
