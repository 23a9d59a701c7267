/* tf_done.h - the callback with which an asynchronous kernel says that it is done.
 *
 * TensorFlow hands over the address of a std::function<void()> that lies on its stack,
 * and is gone when the kernel's function has returned.  An operation that ends later
 * needs a copy.  The layout is libstdc++'s, which has not changed since GCC 4.5:
 * bits/std_function.h.  tf_done_fits() looks at TensorFlow's symbols, and
 * tf_done_keep() at the first callback. */
#ifndef BERTH_OPS_TF_DONE_H
#define BERTH_OPS_TF_DONE_H

#include <stdbool.h>

#include "lib/ops/tf_abi.h"

struct tf_done {
	void *functor[2];
	bool (*manage)(void *to, const void *from, int what);
	void (*invoke)(const void *functor);
};

/* Whether TensorFlow was built with libstdc++, as far as its symbols say. */
bool tf_done_fits(void);
/* Copy DONE to KEPT, which stays where it is.  False: DONE does not have that layout,
 * and the kernel has to run it before it returns. */
bool tf_done_keep(struct tf_done *kept, const TF_AsyncOpKernelDoneCallback *done);
/* Run it, once, and end it. */
void tf_done_run(struct tf_done *kept);

#endif
