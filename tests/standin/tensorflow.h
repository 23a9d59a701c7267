/* tensorflow.h - a TensorFlow that is not there, for tests of lib/ops: what lib/ops
 * registers is kept, and the test calls it. */
#ifndef BERTH_STANDIN_TENSORFLOW_H
#define BERTH_STANDIN_TENSORFLOW_H

#include "lib/ops/tf_abi.h"

enum { STANDIN_DIMS = 4, STANDIN_TENSORS = 4, STANDIN_TEXT = 1024 };

struct TF_Status {
	TF_Code code;
	char text[STANDIN_TEXT];
};

struct TF_Tensor {
	TF_DataType type;
	int refs, ndims;
	int64_t dims[STANDIN_DIMS];
	size_t bytes;
	void *data;
};

struct TF_OpKernelConstruction {
	const char *node;
	struct {
		const char *name;
		int64_t value;
	} attribute[8];
	TF_Status status;
};

struct TF_OpKernelContext {
	TF_Tensor *in[STANDIN_TENSORS], *out[STANDIN_TENSORS];
	int inputs;
	uint64_t frame;
	int64_t iteration;
	TF_Status status;
};

/* RANK -1: unknown; a size of -1, too. */
struct TF_ShapeHandle {
	int64_t rank, dims[STANDIN_DIMS];
};

struct TF_ShapeInferenceContext {
	TF_ShapeHandle in[STANDIN_TENSORS], out[STANDIN_TENSORS];
	int inputs;
};

/* As it was declared: "in:..., out:..., attr:..., stateful", in the order of calls. */
struct TF_OpDefinitionBuilder {
	char name[64], text[STANDIN_TEXT];
	void (*shape)(TF_ShapeInferenceContext *c, TF_Status *s);
};

struct TF_KernelBuilder {
	char op[64], device[8], host[STANDIN_TEXT];
	void *(*make)(TF_OpKernelConstruction *c);
	void (*now)(void *kernel, TF_OpKernelContext *ctx);
	void (*begin)(void *kernel, TF_OpKernelContext *ctx,
		      TF_AsyncOpKernelDoneCallback *done);
	void (*drop)(void *kernel);
};

/* What was registered; NULL: nothing with these names. */
const struct TF_OpDefinitionBuilder *standin_op(const char *name);
const struct TF_KernelBuilder *standin_kernel(const char *op, const char *device);
size_t standin_ops(void);
/* With one reference, and zeros. */
TF_Tensor *standin_tensor(TF_DataType type, size_t each, int ndims,
			  const int64_t *dims);
/* Tensors that somebody still refers to. */
int standin_tensors(void);

#endif
