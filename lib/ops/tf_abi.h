/* tf_abi.h - the part of TensorFlow's C API for kernels that lib/ops uses: its types,
 * numbers and functions, so that the build needs no TensorFlow.  The symbols are in
 * libtensorflow_framework.so.2 of each version since 2.13.
 *
 * Source: tensorflow/c/kernels.h, ops.h, tf_tensor.h, tf_datatype.h, tf_status.h. */
#ifndef BERTH_OPS_TF_ABI_H
#define BERTH_OPS_TF_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;
typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;

typedef struct TF_StringView {
	const char *data;
	size_t len;
} TF_StringView;

typedef enum TF_Code {
	TF_OK = 0,
	TF_UNKNOWN = 2,
	TF_INVALID_ARGUMENT = 3,
	TF_RESOURCE_EXHAUSTED = 8,
	TF_FAILED_PRECONDITION = 9
} TF_Code;

typedef enum TF_DataType {
	TF_FLOAT = 1,
	TF_DOUBLE = 2,
	TF_INT32 = 3,
	TF_UINT8 = 4,
	TF_INT16 = 5,
	TF_INT8 = 6,
	TF_INT64 = 9,
	TF_BOOL = 10,
	TF_BFLOAT16 = 14,
	TF_UINT16 = 17,
	TF_HALF = 19,
	TF_UINT32 = 22,
	TF_UINT64 = 23
} TF_DataType;

enum { TF_DIMS_MAX = 254 };

/* ---- status ---- */

TF_Status *TF_NewStatus(void);
void TF_DeleteStatus(TF_Status *s);
void TF_SetStatus(TF_Status *s, TF_Code code, const char *text);
TF_Code TF_GetCode(const TF_Status *s);
const char *TF_Message(const TF_Status *s);

/* ---- definitions of ops ---- */

TF_OpDefinitionBuilder *TF_NewOpDefinitionBuilder(const char *op);
/* It takes the builder. */
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder *b, TF_Status *s);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder *b, const char *attribute);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder *b, const char *input);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder *b, const char *output);
/* It ignores IS_STATEFUL: a call makes the op stateful. */
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder *b, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(
	TF_OpDefinitionBuilder *b,
	void (*shape)(TF_ShapeInferenceContext *c, TF_Status *s));

TF_ShapeHandle *TF_NewShapeHandle(void); /* an unknown shape */
void TF_DeleteShapeHandle(TF_ShapeHandle *h);
int64_t TF_ShapeInferenceContextNumInputs(TF_ShapeInferenceContext *c);
void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext *c, int i,
				      TF_ShapeHandle *h, TF_Status *s);
void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext *c, int i,
				       TF_ShapeHandle *h, TF_Status *s);
bool TF_ShapeInferenceContextRankKnown(TF_ShapeInferenceContext *c, TF_ShapeHandle *h);
int64_t TF_ShapeInferenceContextRank(TF_ShapeInferenceContext *c, TF_ShapeHandle *h);
void TF_ShapeInferenceContextWithRank(TF_ShapeInferenceContext *c, TF_ShapeHandle *h,
				      int64_t rank, TF_ShapeHandle *result,
				      TF_Status *s);
void TF_ShapeInferenceContextSubshape(TF_ShapeInferenceContext *c, TF_ShapeHandle *h,
				      int64_t start, int64_t end,
				      TF_ShapeHandle *result, TF_Status *s);
void TF_ShapeInferenceContextConcatenateShapes(TF_ShapeInferenceContext *c,
					       TF_ShapeHandle *first,
					       TF_ShapeHandle *second,
					       TF_ShapeHandle *result, TF_Status *s);
TF_ShapeHandle *TF_ShapeInferenceContextScalar(TF_ShapeInferenceContext *c);

/* ---- kernels ---- */

TF_KernelBuilder *TF_NewKernelBuilder(const char *op, const char *device,
				      void *(*make)(TF_OpKernelConstruction *c),
				      void (*compute)(void *kernel,
						      TF_OpKernelContext *ctx),
				      void (*drop)(void *kernel));
/* DONE is to be run once, by any thread. */
TF_KernelBuilder *
TF_NewAsyncKernelBuilder(const char *op, const char *device,
			 void *(*make)(TF_OpKernelConstruction *c),
			 void (*compute)(void *kernel, TF_OpKernelContext *ctx,
					 TF_AsyncOpKernelDoneCallback *done),
			 void (*drop)(void *kernel));
void TF_RunAsyncOpKernelDoneCallback(TF_AsyncOpKernelDoneCallback *done);
/* The argument of that name is in the host's memory, whatever the device. */
void TF_KernelBuilder_HostMemory(TF_KernelBuilder *b, const char *argument);
/* It takes the builder. */
void TF_RegisterKernelBuilder(const char *kernel, TF_KernelBuilder *b, TF_Status *s);

TF_StringView TF_OpKernelConstruction_GetName(TF_OpKernelConstruction *c);
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction *c, const char *name,
					  int64_t *value, TF_Status *s);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction *c, TF_Status *s);

int TF_NumInputs(TF_OpKernelContext *ctx);
/* A reference to the input, for TF_DeleteTensor(). */
void TF_GetInput(TF_OpKernelContext *ctx, int i, TF_Tensor **tensor, TF_Status *s);
TF_Tensor *TF_AllocateOutput(TF_OpKernelContext *ctx, int i, TF_DataType type,
			     const int64_t *dims, int ndims, size_t bytes,
			     TF_Status *s);
/* FORWARDED: which of the CANDIDATES, the numbers of inputs, gave its memory, or -1. */
TF_Tensor *TF_ForwardInputOrAllocateOutput(TF_OpKernelContext *ctx,
					   const int *candidates, int ncandidates,
					   int i, const int64_t *dims, int ndims,
					   int *forwarded, TF_Status *s);
void TF_OpKernelContext_Failure(TF_OpKernelContext *ctx, TF_Status *s);
/* Both are 0 outside of loops. */
uint64_t TF_GetFrameId(TF_OpKernelContext *ctx);
int64_t TF_GetIterId(TF_OpKernelContext *ctx);

/* ---- tensors ---- */

TF_DataType TF_TensorType(const TF_Tensor *t);
int TF_NumDims(const TF_Tensor *t);
int64_t TF_Dim(const TF_Tensor *t, int i);
size_t TF_TensorByteSize(const TF_Tensor *t);
int64_t TF_TensorElementCount(const TF_Tensor *t);
void *TF_TensorData(const TF_Tensor *t);
void TF_DeleteTensor(TF_Tensor *t);

#endif
