/* tf_xla.h - operations in functions that XLA compiles for the CPU (jit_compile=True).
 *
 * XLA has no kernels.  It calls functions that are registered by a name: a custom call,
 * which blocks until its operation is done.  Registry and errors of XLA take C++, which
 * is in tf_xla.cc.  Where no C++ compiler builds that, its functions are missing.
 *
 * Source: xla/service/custom_call_target_registry.h, custom_call_status_internal.h. */
#ifndef BERTH_OPS_TF_XLA_H
#define BERTH_OPS_TF_XLA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Register the custom call "berth", once.  NULL: it is there.  Else why not, in words.
 *
 * Its operands and results are TENSORS tensors each, and others behind them, which only
 * give an order to calls.  Its backend_config is a text of lines:
 *
 *     KIND TYPE OP ROOT SET RANK RANKS PRESCALE POSTSCALE TENSORS
 *     NAME
 *     COUNT ROW SHAPE             for each tensor
 *
 * KIND, TYPE, OP, ROOT, COUNT, NAME, SHAPE: of a struct berth_desc.  A group has a name
 * for each of its tensors, which its number makes of NAME.  SET: the number of a
 * process set.  RANK, RANKS: of the set, where sizes of results follow from them; else
 * RANKS is 0.  PRESCALE, POSTSCALE: the bits of a double, as a number.  ROW: the
 * elements in a row of the tensor. */
const char *berth_tf_xla(void) __attribute__((visibility("default")));

/* ---- tf_xla.cc: each is NULL where it is missing ---- */

typedef void tf_xla_call(void *out, const void **in, const char *config, size_t bytes,
			 void *status);
/* LIBRARY: the handle of the library that has XLA.  NULL, or what is wrong with it. */
__attribute__((weak)) const char *tf_xla_register(void *library, const char *name,
						  tf_xla_call *call);
/* STATUS of a call gets TEXT. */
__attribute__((weak)) void tf_xla_fail(void *status, const char *text);

#ifdef __cplusplus
}
#endif

#endif
