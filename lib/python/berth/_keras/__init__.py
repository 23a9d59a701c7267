"""What berth.keras and berth.tensorflow.keras share.

The packages keras and tf.keras may be two, of Keras 3 and 2.  So callbacks get
their base class from who does.
"""
