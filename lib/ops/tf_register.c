#include "lib/ops/tf_register.h"

#include <stdio.h>
#include <string.h>

#include "lib/ops/tf_done.h"
#include "lib/ops/tf_kernel.h"
#include "lib/ops/tf_run.h"
#include "lib/ops/tf_shape.h"

enum {
	SET = TF_OF_SET,
	NAME = TF_OF_NAME,
	ROOT = TF_OF_ROOT,
	REDUCTION = TF_OF_REDUCTION,
	MANY = TF_OF_MANY,
	STATEFUL = TF_OF_STATEFUL
};

static const struct {
	unsigned of;
	const char *declared;
} attributes[] = {
#define ATTRIBUTE(name, of, declared) { of, declared },
#include "lib/ops/tf_ops.def"
};

struct tensors {
	const char *inputs[3], *outputs[3]; /* each ends with NULL */
	const char *types;
};

#define SUMS "uint8, int8, int32, int64, float16, bfloat16, float32, float64"
#define TYPES_SUMMED "T: {" SUMS "}"
#define TYPES_MOVED "T: {" SUMS ", uint16, int16, uint32, uint64, bool}"

static const struct tensors SUMMED = { { "tensor: T" }, { "output: T" }, TYPES_SUMMED };
static const struct tensors MOVED = { { "tensor: T" }, { "output: T" }, TYPES_MOVED };
static const struct tensors SUMMED_EACH = { { "tensors: num_tensors * T" },
					    { "outputs: num_tensors * T" },
					    TYPES_SUMMED };
static const struct tensors MOVED_EACH = { { "tensors: num_tensors * T" },
					   { "outputs: num_tensors * T" },
					   TYPES_MOVED };
static const struct tensors SPLIT = { { "tensor: T", "splits: int32" },
				      { "output: T", "received_splits: int32" },
				      TYPES_MOVED };
static const struct tensors NUMBER = { { NULL }, { "output: int32" }, NULL };

typedef void (*tf_shape)(TF_ShapeInferenceContext *c, TF_Status *s);
typedef void *(*tf_make)(TF_OpKernelConstruction *c);

/* The C API hands no context to the function that makes a kernel, so each op has its
 * own. */
#define ROW(name_, kind_, of_)                                                         \
	static const struct tf_op op_##name_ = { "Berth" #name_, kind_, of_ };         \
	static void *make_##name_(TF_OpKernelConstruction *c)                          \
	{                                                                              \
		return tf_kernel_make(c, &op_##name_);                                 \
	}
#define COLLECTIVE(name, kind, tensors, of, shape) ROW(name, kind, of)
#define SCALAR(name, kind, of) ROW(name, kind, of)
#include "lib/ops/tf_ops.def"

static char wrong[256];

const char *berth_tf_wrong(void)
{
	return wrong[0] ? wrong : NULL;
}

/* S says what is wrong; the first thing counts. */
static void register_end(const char *name, TF_Status *s)
{
	if (TF_GetCode(s) != TF_OK && !wrong[0])
		snprintf(wrong, sizeof wrong, "%s: %s", name, TF_Message(s));
	TF_DeleteStatus(s);
}

static void register_op(const char *name, unsigned of, const struct tensors *t,
			tf_shape shape)
{
	TF_OpDefinitionBuilder *b = TF_NewOpDefinitionBuilder(name);
	TF_Status *s = TF_NewStatus();

	for (const char *const *in = t->inputs; *in; in++)
		TF_OpDefinitionBuilderAddInput(b, *in);
	for (const char *const *out = t->outputs; *out; out++)
		TF_OpDefinitionBuilderAddOutput(b, *out);
	if (t->types)
		TF_OpDefinitionBuilderAddAttr(b, t->types);
	for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
		if (of & attributes[i].of)
			TF_OpDefinitionBuilderAddAttr(b, attributes[i].declared);
	if (of & TF_OF_STATEFUL)
		TF_OpDefinitionBuilderSetIsStateful(b, true);
	TF_OpDefinitionBuilderSetShapeInferenceFunction(b, shape);
	TF_RegisterOpDefinition(b, s);
	register_end(name, s);
}

/* B takes its tensors from the host's memory, and gives them there: TensorFlow copies
 * what is on a GPU.  The C API has no stream of one.
 * Not for the CPU: an output that has to be in the host's memory never takes the memory
 * of an input of which TensorFlow does not ask that (part_forward()). */
static void register_host_memory(TF_KernelBuilder *b, const char *const *declared)
{
	for (; *declared; declared++) {
		char name[32];

		snprintf(name, sizeof name, "%.*s", (int)strcspn(*declared, ":"),
			 *declared);
		TF_KernelBuilder_HostMemory(b, name);
	}
}

/* A kernel for each device: asynchronous, or NOW. */
static void register_kernels(const char *name, const struct tensors *t, tf_make make,
			     void (*now)(void *p, TF_OpKernelContext *ctx))
{
	static const char *const devices[] = { "CPU", "GPU" };

	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
		TF_Status *s = TF_NewStatus();
		TF_KernelBuilder *b =
			now ? TF_NewKernelBuilder(name, devices[i], make, now,
						  tf_kernel_drop)
			    : TF_NewAsyncKernelBuilder(name, devices[i], make,
						       tf_run_begin, tf_kernel_drop);

		if (!strcmp(devices[i], "GPU")) {
			register_host_memory(b, t->inputs);
			register_host_memory(b, t->outputs);
		}
		TF_RegisterKernelBuilder(name, b, s);
		register_end(name, s);
	}
}

__attribute__((constructor)) static void register_all(void)
{
	if (!tf_done_fits())
		snprintf(wrong, sizeof wrong,
			 "this TensorFlow was not built with libstdc++");
#define COLLECTIVE(name, kind, tensors, of, shape)                                     \
	register_op("Berth" #name, of, &tensors, tf_shape_##shape);                    \
	register_kernels("Berth" #name, &tensors, make_##name, NULL);                  \
	register_op("Berth" #name "Now", of, &tensors, tf_shape_##shape);              \
	register_kernels("Berth" #name "Now", &tensors, make_##name, tf_run_now);
#define SCALAR(name, kind, of)                                                         \
	register_op("Berth" #name, (of) | TF_OF_STATEFUL, &NUMBER, tf_shape_scalar);   \
	register_kernels("Berth" #name, &NUMBER, make_##name, tf_run_scalar);
#include "lib/ops/tf_ops.def"
}
