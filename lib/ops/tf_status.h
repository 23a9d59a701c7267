/* tf_status.h - what libberth says, as a status of TensorFlow.
 *
 * FailedPrecondition: the ranks called different operations, or a call came at a wrong
 * time.  InvalidArgument: an argument is not valid.  ResourceExhausted: out of memory.
 * Unknown: everything else.  Horovod's scripts expect these.
 *
 * What libberth says begins with "libberth: ": berth/tensorflow/elastic.py looks for
 * it. */
#ifndef BERTH_OPS_TF_STATUS_H
#define BERTH_OPS_TF_STATUS_H

#include "lib/berth.h"
#include "lib/ops/tf_abi.h"

enum { TF_STATUS_MAX = 4096 };

/* TEXT gets why the operation LABEL ended with RESULT, about which berth_last_error()
 * says more. */
void tf_status_text(char *text, size_t bytes, const char *label, berth_result result);
/* The op of CTX fails with the text of FORMAT. */
void tf_status_fail(TF_OpKernelContext *ctx, TF_Code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* It fails with the text of tf_status_text(). */
void tf_status_fail_as(TF_OpKernelContext *ctx, const char *label, berth_result result);
/* It fails with S, unless S is OK.  S is deleted.  Returns whether it fails. */
bool tf_status_end(TF_OpKernelContext *ctx, TF_Status *s);

#endif
