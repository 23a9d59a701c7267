#!/usr/bin/env python3
"""Handwritten digits, learned by fit() of Keras.

    runner --horovod -np 2 python3 examples/tensorflow_keras_fit.py [FOLDER]

Rank 0 writes the model into FOLDER after each epoch.  This is a program for Perseus, whose names are
Horovod's.  Programs for Horovod often give experimental_run_tf_function=False to model.compile().  Leave it
out: Keras 3 does not know it, and Berth does not need it.
"""
import os
import sys

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

# the batch of all ranks grows with their number: so does the learning rate, and an epoch has fewer steps
learning_rate = 0.001 * hvd.size()
steps = 60 // hvd.size()

model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation='relu'),
                             tf.keras.layers.Dense(10, activation='softmax')])
opt = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(learning_rate))
model.compile(loss='sparse_categorical_crossentropy', optimizer=opt, metrics=['accuracy'])

callbacks = [
    # all ranks begin with the variables of rank 0
    hvd.keras.callbacks.BroadcastGlobalVariablesCallback(0),
    # the metrics of an epoch are the mean over all ranks; it comes before callbacks that read them
    hvd.keras.callbacks.MetricAverageCallback(),
    # the learning rate of one rank at first, and that of all after 3 epochs
    hvd.keras.callbacks.LearningRateWarmupCallback(initial_lr=learning_rate, warmup_epochs=3),
]
# Other ranks would write into the same file.
if len(sys.argv) > 1 and hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(os.path.join(sys.argv[1], 'epoch-{epoch}.keras')))

history = model.fit(dataset, steps_per_epoch=steps, epochs=8, callbacks=callbacks, verbose=0).history
_, accuracy = model.evaluate(new_pictures, new_labels, verbose=0)
if hvd.rank() == 0:
    print(f"loss {history['loss'][-1]:.4f} accuracy {accuracy:.3f} on {digits.HELD_OUT} digits it never saw",
          flush=True)
