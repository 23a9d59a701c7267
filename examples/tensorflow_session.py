#!/usr/bin/env python3
"""Handwritten digits, learned in a graph of TensorFlow 1 by Session.run().

    runner --horovod -np 2 python3 examples/tensorflow_session.py

This is a program for Perseus, whose names are Horovod's, and TensorFlow 1.  TensorFlow 2 has those names in
compat.v1: the first import is `import tensorflow as tf` there.
"""
import tensorflow.compat.v1 as tf

import digits
import perseus.tensorflow.horovod as hvd

tf.disable_v2_behavior()
hvd.init()

# a GPU for each rank: that of its local rank, and no more of its memory than is needed
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())

# Each rank has a share of the training data: shard(hvd.size(), hvd.rank()), before shuffle() and repeat().
# With hvd.local_rank(), as is often seen, ranks of two hosts would share what they read, and no rank would
# read the rest.  All ranks judge by the same digits.
(pictures, labels), (new_pictures, new_labels) = digits.load()
dataset = tf.data.Dataset.from_tensor_slices((pictures, labels))
dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(500).repeat().batch(50)
batch, answers = tf.data.make_one_shot_iterator(dataset).get_next()
hidden = tf.get_variable("hidden", [64, 64])
output = tf.get_variable("output", [64, 10])


def network(x):
    return tf.matmul(tf.nn.relu(tf.matmul(x, hidden)), output)


loss = tf.losses.sparse_softmax_cross_entropy(answers, network(batch))
right = tf.equal(tf.argmax(network(tf.constant(new_pictures)), 1), new_labels)
accuracy = tf.reduce_mean(tf.cast(right, tf.float32))

# the batch of all ranks grows with their number: so does the learning rate, and fewer steps are needed
learning_rate = 0.001 * hvd.size()
steps = 400 // hvd.size()
optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(learning_rate))
train = optimizer.minimize(loss)

with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    # all ranks begin with the variables of rank 0
    sess.run(hvd.broadcast_global_variables(0))
    for step in range(steps):
        sess.run(train)
    if hvd.rank() == 0:
        print(f"accuracy {sess.run(accuracy):.3f} on {digits.HELD_OUT} digits it never saw", flush=True)
