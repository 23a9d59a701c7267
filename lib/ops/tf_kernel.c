#include "lib/ops/tf_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	enum tf_of of;
} attributes[TF_ATTRIBUTES] = {
#define ATTRIBUTE(name, of, declared) { #name, TF_OF_##of },
#include "lib/ops/tf_ops.def"
};

static double kernel_double(int64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

static const char *kernel_word(int kind)
{
	switch (kind) {
	case BERTH_ALLREDUCE:
		return "allreduce";
	case BERTH_ALLGATHER:
		return "allgather";
	case BERTH_BROADCAST:
		return "broadcast";
	case BERTH_REDUCESCATTER:
		return "reducescatter";
	case BERTH_ALLTOALL:
		return "alltoall";
	default:
		return "op";
	}
}

/* In eager mode the node has the name of its op, which says no more than the word. */
static char *kernel_label(TF_OpKernelConstruction *c, const struct tf_kernel *k)
{
	TF_StringView node = TF_OpKernelConstruction_GetName(c);
	const char *word = kernel_word(k->op->kind), *name = node.data, *scope;
	size_t n = node.len, op = strlen(k->op->name);
	char *label;

	if (n == op + strlen("Now") && !strncmp(name, k->op->name, op))
		return strdup(word);
	scope = k->attribute[TF_ATTRIBUTE_ignore_name_scope] ? memrchr(name, '/', n)
							     : NULL;
	if (scope) {
		n -= (size_t)(scope + 1 - name);
		name = scope + 1;
	}
	if (asprintf(&label, "%s.%.*s", word, (int)n, name) < 0)
		return NULL;
	return label;
}

struct tf_kernel *tf_kernel_make(TF_OpKernelConstruction *c, const struct tf_op *op)
{
	TF_Status *s = TF_NewStatus();
	struct tf_kernel *k = calloc(1, sizeof *k);

	if (k) {
		k->op = op;
		for (int i = 0; i < TF_ATTRIBUTES && TF_GetCode(s) == TF_OK; i++)
			if (op->of & attributes[i].of)
				TF_OpKernelConstruction_GetAttrInt64(
					c, attributes[i].name, &k->attribute[i], s);
		k->prescale = kernel_double(k->attribute[TF_ATTRIBUTE_prescale_bits]);
		k->postscale = kernel_double(k->attribute[TF_ATTRIBUTE_postscale_bits]);
		k->label = kernel_label(c, k);
	}
	if (TF_GetCode(s) == TF_OK && !(k && k->label))
		TF_SetStatus(s, TF_RESOURCE_EXHAUSTED, "out of memory");
	if (TF_GetCode(s) != TF_OK) {
		TF_OpKernelConstruction_Failure(c, s);
		tf_kernel_drop(k);
		k = NULL;
	}
	TF_DeleteStatus(s);
	return k;
}

void tf_kernel_drop(void *kernel)
{
	struct tf_kernel *k = kernel;

	if (k)
		free(k->label);
	free(k);
}
