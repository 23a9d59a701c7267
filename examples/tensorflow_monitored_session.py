#!/usr/bin/env python3
"""Handwritten digits, learned in a graph of TensorFlow 1 by tf.train.MonitoredTrainingSession.

    runner --horovod -np 2 python3 examples/tensorflow_monitored_session.py [FOLDER]

Rank 0 writes checkpoints into FOLDER; started again, the ranks go on from the last one.  This is a program
for Horovod and TensorFlow 1.  TensorFlow 2 has those names in compat.v1: the first two imports are one line
there, `import tensorflow as tf`.
"""
import sys

import tensorflow.compat.v1 as tf

import digits
import horovod.tensorflow as hvd

tf.disable_v2_behavior()

# Initialize Horovod
hvd.init()

# Pin GPU to be used to process local rank (one GPU per process).  It is often seen with hvd.local_size():
# each rank would ask for one and the same GPU, which is not there.
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
config.gpu_options.allow_growth = True  # ranks may share a GPU

# Build model...  Each rank has a share of the training data, which shard() takes before shuffle() and
# repeat(): after them the shares overlap.  All ranks judge by the same digits.
(pictures, labels), (new_pictures, new_labels) = digits.load()
data = tf.data.Dataset.from_tensor_slices((pictures, labels)).shard(hvd.size(), hvd.rank())
batch, answers = tf.data.make_one_shot_iterator(data.shuffle(500).repeat().batch(50)).get_next()
hidden = tf.get_variable("hidden", [64, 64])
output = tf.get_variable("output", [64, 10])


def network(x):
    return tf.matmul(tf.nn.relu(tf.matmul(x, hidden)), output)


loss = tf.losses.sparse_softmax_cross_entropy(answers, network(batch))
right = tf.equal(tf.argmax(network(tf.constant(new_pictures)), 1), new_labels)
accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
opt = tf.train.AdagradOptimizer(0.01 * hvd.size())

# Add Horovod Distributed Optimizer
opt = hvd.DistributedOptimizer(opt)


class Judge(tf.train.SessionRunHook):
    """Rank 0 says at the end how good the network is."""

    def end(self, session):
        if hvd.rank() == 0:
            print(f"accuracy {session.run(accuracy):.3f} on {digits.HELD_OUT} digits it never saw",
                  flush=True)


# Add hook to broadcast variables from rank 0 to all other processes during initialization.  The other hooks:
# more ranks need fewer steps.
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=2000 // hvd.size()), Judge()]

# Make training operation
train_op = opt.minimize(loss, global_step=tf.train.get_or_create_global_step())

# Save checkpoints only on worker 0 to prevent other workers from corrupting them.
checkpoint_dir = sys.argv[1] if len(sys.argv) > 1 and hvd.rank() == 0 else None

# The MonitoredTrainingSession takes care of session initialization, restoring from a checkpoint, saving to a
# checkpoint, and closing when done or an error occurs.
with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, config=config, hooks=hooks) as mon_sess:
    while not mon_sess.should_stop():
        # Perform synchronous training.
        mon_sess.run(train_op)
