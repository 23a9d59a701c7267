#include "tests/standin/tensorflow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ops/tf_done.h"

enum { OPS = 64, KERNELS = 128 };

static struct TF_OpDefinitionBuilder *ops[OPS];
static struct TF_KernelBuilder *kernels[KERNELS];
static size_t nops, nkernels;
static int ntensors;

static void *zeroed(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		abort();
	return p;
}

static void add(char *list, const char *prefix, const char *text)
{
	const size_t at = strlen(list);

	snprintf(list + at, STANDIN_TEXT - at, "%s%s%s", at ? ", " : "", prefix, text);
}

/* ---- status ---- */

TF_Status *TF_NewStatus(void)
{
	return zeroed(sizeof(TF_Status));
}
void TF_DeleteStatus(TF_Status *s)
{
	free(s);
}
TF_Code TF_GetCode(const TF_Status *s)
{
	return s->code;
}
const char *TF_Message(const TF_Status *s)
{
	return s->text;
}

void TF_SetStatus(TF_Status *s, TF_Code code, const char *text)
{
	s->code = code;
	snprintf(s->text, sizeof s->text, "%s", text);
}

/* ---- definitions of ops ---- */

TF_OpDefinitionBuilder *TF_NewOpDefinitionBuilder(const char *op)
{
	TF_OpDefinitionBuilder *b = zeroed(sizeof *b);

	snprintf(b->name, sizeof b->name, "%s", op);
	return b;
}

void TF_RegisterOpDefinition(TF_OpDefinitionBuilder *b, TF_Status *s)
{
	if (nops == OPS || standin_op(b->name)) {
		TF_SetStatus(s, TF_INVALID_ARGUMENT, "too many, or twice");
		free(b);
		return;
	}
	ops[nops++] = b;
}

void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder *b, const char *attribute)
{
	add(b->text, "attr:", attribute);
}

void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder *b, const char *input)
{
	add(b->text, "in:", input);
}

void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder *b, const char *output)
{
	add(b->text, "out:", output);
}

void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder *b, bool is_stateful)
{
	(void)is_stateful;
	add(b->text, "", "stateful");
}

void TF_OpDefinitionBuilderSetShapeInferenceFunction(
	TF_OpDefinitionBuilder *b,
	void (*shape)(TF_ShapeInferenceContext *c, TF_Status *s))
{
	b->shape = shape;
}

/* ---- shapes ---- */

TF_ShapeHandle *TF_NewShapeHandle(void)
{
	TF_ShapeHandle *h = zeroed(sizeof *h);

	h->rank = -1;
	return h;
}

void TF_DeleteShapeHandle(TF_ShapeHandle *h)
{
	free(h);
}

int64_t TF_ShapeInferenceContextNumInputs(TF_ShapeInferenceContext *c)
{
	return c->inputs;
}

void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext *c, int i,
				      TF_ShapeHandle *h, TF_Status *s)
{
	(void)s;
	*h = c->in[i];
}

void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext *c, int i,
				       TF_ShapeHandle *h, TF_Status *s)
{
	(void)s;
	c->out[i] = *h;
}

bool TF_ShapeInferenceContextRankKnown(TF_ShapeInferenceContext *c, TF_ShapeHandle *h)
{
	(void)c;
	return h->rank >= 0;
}

int64_t TF_ShapeInferenceContextRank(TF_ShapeInferenceContext *c, TF_ShapeHandle *h)
{
	(void)c;
	return h->rank;
}

void TF_ShapeInferenceContextWithRank(TF_ShapeInferenceContext *c, TF_ShapeHandle *h,
				      int64_t rank, TF_ShapeHandle *result,
				      TF_Status *s)
{
	(void)c;
	if (h->rank >= 0 && h->rank != rank)
		TF_SetStatus(s, TF_INVALID_ARGUMENT, "another rank");
	*result = *h;
	for (int64_t i = 0; h->rank < 0 && i < rank; i++)
		result->dims[i] = -1;
	result->rank = rank;
}

void TF_ShapeInferenceContextSubshape(TF_ShapeInferenceContext *c, TF_ShapeHandle *h,
				      int64_t start, int64_t end,
				      TF_ShapeHandle *result, TF_Status *s)
{
	(void)c;
	(void)s;
	result->rank = end - start;
	memcpy(result->dims, h->dims + start,
	       (size_t)result->rank * sizeof *result->dims);
}

void TF_ShapeInferenceContextConcatenateShapes(TF_ShapeInferenceContext *c,
					       TF_ShapeHandle *first,
					       TF_ShapeHandle *second,
					       TF_ShapeHandle *result, TF_Status *s)
{
	TF_ShapeHandle both = *first;

	(void)c;
	(void)s;
	memcpy(both.dims + first->rank, second->dims,
	       (size_t)second->rank * sizeof *both.dims);
	both.rank += second->rank;
	*result = both;
}

TF_ShapeHandle *TF_ShapeInferenceContextScalar(TF_ShapeInferenceContext *c)
{
	(void)c;
	return zeroed(sizeof(TF_ShapeHandle));
}

/* ---- kernels ---- */

static TF_KernelBuilder *kernel_new(const char *op, const char *device,
				    void *(*make)(TF_OpKernelConstruction *c),
				    void (*drop)(void *kernel))
{
	TF_KernelBuilder *b = zeroed(sizeof *b);

	snprintf(b->op, sizeof b->op, "%s", op);
	snprintf(b->device, sizeof b->device, "%s", device);
	b->make = make;
	b->drop = drop;
	return b;
}

TF_KernelBuilder *TF_NewKernelBuilder(const char *op, const char *device,
				      void *(*make)(TF_OpKernelConstruction *c),
				      void (*compute)(void *kernel,
						      TF_OpKernelContext *ctx),
				      void (*drop)(void *kernel))
{
	TF_KernelBuilder *b = kernel_new(op, device, make, drop);

	b->now = compute;
	return b;
}

TF_KernelBuilder *
TF_NewAsyncKernelBuilder(const char *op, const char *device,
			 void *(*make)(TF_OpKernelConstruction *c),
			 void (*compute)(void *kernel, TF_OpKernelContext *ctx,
					 TF_AsyncOpKernelDoneCallback *done),
			 void (*drop)(void *kernel))
{
	TF_KernelBuilder *b = kernel_new(op, device, make, drop);

	b->begin = compute;
	return b;
}

void TF_RunAsyncOpKernelDoneCallback(TF_AsyncOpKernelDoneCallback *done)
{
	((struct tf_done *)done)->invoke(done);
}

void TF_KernelBuilder_HostMemory(TF_KernelBuilder *b, const char *argument)
{
	add(b->host, "", argument);
}

void TF_RegisterKernelBuilder(const char *kernel, TF_KernelBuilder *b, TF_Status *s)
{
	(void)kernel;
	if (nkernels == KERNELS || standin_kernel(b->op, b->device)) {
		TF_SetStatus(s, TF_INVALID_ARGUMENT, "too many, or twice");
		free(b);
		return;
	}
	kernels[nkernels++] = b;
}

TF_StringView TF_OpKernelConstruction_GetName(TF_OpKernelConstruction *c)
{
	return (TF_StringView){ c->node, strlen(c->node) };
}

void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction *c, const char *name,
					  int64_t *value, TF_Status *s)
{
	for (size_t i = 0; i < sizeof c->attribute / sizeof *c->attribute; i++)
		if (c->attribute[i].name && !strcmp(c->attribute[i].name, name)) {
			*value = c->attribute[i].value;
			return;
		}
	TF_SetStatus(s, TF_INVALID_ARGUMENT, name);
}

void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction *c, TF_Status *s)
{
	c->status = *s;
}

int TF_NumInputs(TF_OpKernelContext *ctx)
{
	return ctx->inputs;
}

void TF_GetInput(TF_OpKernelContext *ctx, int i, TF_Tensor **tensor, TF_Status *s)
{
	if (i >= ctx->inputs) {
		TF_SetStatus(s, TF_INVALID_ARGUMENT, "there is no such input");
		return;
	}
	*tensor = ctx->in[i];
	ctx->in[i]->refs++;
}

TF_Tensor *TF_AllocateOutput(TF_OpKernelContext *ctx, int i, TF_DataType type,
			     const int64_t *dims, int ndims, size_t bytes, TF_Status *s)
{
	size_t count = 1;

	(void)s;
	for (int d = 0; d < ndims; d++)
		count *= (size_t)dims[d];
	ctx->out[i] = standin_tensor(type, count ? bytes / count : 0, ndims, dims);
	ctx->out[i]->refs++;
	return ctx->out[i];
}

TF_Tensor *TF_ForwardInputOrAllocateOutput(TF_OpKernelContext *ctx,
					   const int *candidates, int ncandidates,
					   int i, const int64_t *dims, int ndims,
					   int *forwarded, TF_Status *s)
{
	TF_Tensor *in = ctx->in[candidates[0]];

	(void)ncandidates;
	(void)dims;
	(void)ndims;
	(void)s;
	*forwarded = candidates[0];
	ctx->out[i] = in;
	in->refs += 2;
	return in;
}

void TF_OpKernelContext_Failure(TF_OpKernelContext *ctx, TF_Status *s)
{
	ctx->status = *s;
}

uint64_t TF_GetFrameId(TF_OpKernelContext *ctx)
{
	return ctx->frame;
}
int64_t TF_GetIterId(TF_OpKernelContext *ctx)
{
	return ctx->iteration;
}

/* ---- tensors ---- */

TF_DataType TF_TensorType(const TF_Tensor *t)
{
	return t->type;
}
int TF_NumDims(const TF_Tensor *t)
{
	return t->ndims;
}
int64_t TF_Dim(const TF_Tensor *t, int i)
{
	return t->dims[i];
}
size_t TF_TensorByteSize(const TF_Tensor *t)
{
	return t->bytes;
}
void *TF_TensorData(const TF_Tensor *t)
{
	return t->data;
}

int64_t TF_TensorElementCount(const TF_Tensor *t)
{
	int64_t count = 1;

	for (int i = 0; i < t->ndims; i++)
		count *= t->dims[i];
	return count;
}

void TF_DeleteTensor(TF_Tensor *t)
{
	if (--t->refs)
		return;
	free(t->data);
	free(t);
	ntensors--;
}

/* ---- what a test asks ---- */

const struct TF_OpDefinitionBuilder *standin_op(const char *name)
{
	for (size_t i = 0; i < nops; i++)
		if (!strcmp(ops[i]->name, name))
			return ops[i];
	return NULL;
}

const struct TF_KernelBuilder *standin_kernel(const char *op, const char *device)
{
	for (size_t i = 0; i < nkernels; i++)
		if (!strcmp(kernels[i]->op, op) && !strcmp(kernels[i]->device, device))
			return kernels[i];
	return NULL;
}

size_t standin_ops(void)
{
	return nops;
}
int standin_tensors(void)
{
	return ntensors;
}

TF_Tensor *standin_tensor(TF_DataType type, size_t each, int ndims, const int64_t *dims)
{
	TF_Tensor *t = zeroed(sizeof *t);

	t->type = type;
	t->refs = 1;
	t->ndims = ndims;
	for (int i = 0; i < ndims; i++)
		t->dims[i] = dims[i];
	t->bytes = (size_t)TF_TensorElementCount(t) * each;
	t->data = zeroed(t->bytes + 1);
	ntensors++;
	return t;
}
