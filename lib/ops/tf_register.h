/* tf_register.h - what the file libberth_tf.so offers beside its ops, which are there
 * when TensorFlow has loaded it. */
#ifndef BERTH_OPS_TF_REGISTER_H
#define BERTH_OPS_TF_REGISTER_H

/* NULL: all ops can be used.  Else why not, in words. */
const char *berth_tf_wrong(void) __attribute__((visibility("default")));

#endif
