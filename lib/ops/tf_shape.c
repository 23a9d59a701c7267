#include "lib/ops/tf_shape.h"

void tf_shape_same(TF_ShapeInferenceContext *c, TF_Status *s)
{
	for (int i = 0; i < TF_ShapeInferenceContextNumInputs(c); i++) {
		TF_ShapeHandle *h = TF_NewShapeHandle();

		TF_ShapeInferenceContextGetInput(c, i, h, s);
		TF_ShapeInferenceContextSetOutput(c, i, h, s);
		TF_DeleteShapeHandle(h);
	}
}

/* Output I is input I with another number of rows.  A wholly unknown shape would stop
 * layers of Keras behind the op. */
static void shape_rows_of(TF_ShapeInferenceContext *c, int i, TF_Status *s)
{
	TF_ShapeHandle *in = TF_NewShapeHandle(), *any = TF_NewShapeHandle();
	TF_ShapeHandle *first = TF_NewShapeHandle(), *rest = TF_NewShapeHandle();

	TF_ShapeInferenceContextGetInput(c, i, in, s);
	if (!TF_ShapeInferenceContextRankKnown(c, in)) {
		TF_ShapeInferenceContextSetOutput(c, i, any, s);
	} else if (TF_ShapeInferenceContextRank(c, in) == 0) {
		TF_SetStatus(s, TF_INVALID_ARGUMENT,
			     "a tensor of one dimension or more is needed: this one "
			     "has none");
	} else {
		TF_ShapeInferenceContextWithRank(c, any, 1, first, s);
		TF_ShapeInferenceContextSubshape(
			c, in, 1, TF_ShapeInferenceContextRank(c, in), rest, s);
		TF_ShapeInferenceContextConcatenateShapes(c, first, rest, in, s);
		TF_ShapeInferenceContextSetOutput(c, i, in, s);
	}
	TF_DeleteShapeHandle(rest);
	TF_DeleteShapeHandle(first);
	TF_DeleteShapeHandle(any);
	TF_DeleteShapeHandle(in);
}

void tf_shape_rows(TF_ShapeInferenceContext *c, TF_Status *s)
{
	for (int i = 0; i < TF_ShapeInferenceContextNumInputs(c); i++) {
		shape_rows_of(c, i, s);
		if (TF_GetCode(s) != TF_OK)
			return;
	}
}

void tf_shape_split(TF_ShapeInferenceContext *c, TF_Status *s)
{
	TF_ShapeHandle *any = TF_NewShapeHandle(), *vector = TF_NewShapeHandle();

	shape_rows_of(c, 0, s);
	if (TF_GetCode(s) == TF_OK) {
		TF_ShapeInferenceContextWithRank(c, any, 1, vector, s);
		TF_ShapeInferenceContextSetOutput(c, 1, vector, s);
	}
	TF_DeleteShapeHandle(vector);
	TF_DeleteShapeHandle(any);
}

void tf_shape_scalar(TF_ShapeInferenceContext *c, TF_Status *s)
{
	TF_ShapeHandle *h = TF_ShapeInferenceContextScalar(c);

	TF_ShapeInferenceContextSetOutput(c, 0, h, s);
	TF_DeleteShapeHandle(h);
}
