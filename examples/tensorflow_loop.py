#!/usr/bin/env python3
"""Handwritten digits, learned in a loop of TensorFlow 2.

    runner --horovod -np 2 python3 examples/tensorflow_loop.py

This is a program for Perseus, whose names are Horovod's.
"""
import tensorflow as tf

import digits
import perseus.tensorflow.horovod as hvd

hvd.init()

# a GPU for each rank: that of its local rank, and no more of its memory than is needed
gpus = tf.config.experimental.list_physical_devices('GPU')
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')

# Each rank has a share of the training data: shard(hvd.size(), hvd.rank()), before shuffle() and repeat().
# With hvd.local_rank(), as is often seen, ranks of two hosts would share what they read, and no rank would
# read the rest.  All ranks judge by the same digits.
(pictures, labels), (new_pictures, new_labels) = digits.load()
dataset = tf.data.Dataset.from_tensor_slices((pictures, labels))
dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(500).repeat().batch(50)

# the batch of all ranks grows with their number: so does the learning rate, and fewer steps are needed
learning_rate = 0.001 * hvd.size()
steps = 400 // hvd.size()

model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation='relu'), tf.keras.layers.Dense(10)])
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
opt = tf.keras.optimizers.Adam(learning_rate)


@tf.function
def training_step(batch, answers, first_batch):
    with tf.GradientTape() as tape:
        loss = loss_of(answers, model(batch, training=True))

    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))

    # All ranks go on with the variables of rank 0.  They are there after the first step, those of the
    # optimizer too.  These were opt.variables(), and are no function in Keras 3.
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)
    return loss


for step, (batch, answers) in enumerate(dataset.take(steps)):
    loss = training_step(batch, answers, step == 0)

loss = hvd.allreduce(loss)  # the mean over all ranks
if hvd.rank() == 0:
    right = tf.argmax(model(new_pictures), 1).numpy() == new_labels
    print(f"loss {float(loss):.4f} accuracy {right.mean():.3f} on {digits.HELD_OUT} digits it never saw",
          flush=True)
