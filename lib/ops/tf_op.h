/* tf_op.h - an op of TensorFlow, as its kernels see it: a row of tf_ops.def. */
#ifndef BERTH_OPS_TF_OP_H
#define BERTH_OPS_TF_OP_H

#include "lib/berth.h"

/* Kinds that are no berth_kind. */
enum tf_kind {
	TF_JOIN = 100,
	TF_SIZE,
	TF_INCLUDED,
	TF_LOCAL_SIZE,
	TF_RANK,
	TF_LOCAL_RANK
};

/* The attributes that an op has, in groups. */
enum tf_of {
	TF_OF_SET = 1,
	TF_OF_NAME = 2,
	TF_OF_ROOT = 4,
	TF_OF_REDUCTION = 8,
	TF_OF_MANY = 16,
	TF_OF_STATEFUL = 32 /* no attribute */
};

enum tf_attribute {
#define ATTRIBUTE(name, of, declared) TF_ATTRIBUTE_##name,
#include "lib/ops/tf_ops.def"
	TF_ATTRIBUTES
};

struct tf_op {
	const char *name;
	int kind;    /* a berth_kind, or a tf_kind */
	unsigned of; /* of tf_of */
};

#endif
