"""What berth.tensorflow.keras and berth.keras have in common: `keras` and tf.keras may be two packages."""
