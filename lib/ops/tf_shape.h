/* tf_shape.h - the shapes of what ops give, for TensorFlow's inference of shapes. */
#ifndef BERTH_OPS_TF_SHAPE_H
#define BERTH_OPS_TF_SHAPE_H

#include "lib/ops/tf_abi.h"

/* Each output is as its input. */
void tf_shape_same(TF_ShapeInferenceContext *c, TF_Status *s);
/* Each output is as its input, but its first size is unknown before the op has run. */
void tf_shape_rows(TF_ShapeInferenceContext *c, TF_Status *s);
/* An alltoall gives rows, and how many came from each rank. */
void tf_shape_split(TF_ShapeInferenceContext *c, TF_Status *s);
void tf_shape_scalar(TF_ShapeInferenceContext *c, TF_Status *s);

#endif
