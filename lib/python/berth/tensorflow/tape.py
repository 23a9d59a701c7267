"""Tapes whose gradients are those of all ranks."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple, Type, cast

import tensorflow as tf

from ..basics import Average, ProcessSet, global_process_set
from ..operations import number_of_groups
from .compression import Compression, Compressor
from .gradients import Gradient, Groups, Options, Reducer


class _Distributed(tf.GradientTape):  # type: ignore[misc]
    """Comes before the class of the user's tape."""

    _reducer: Reducer

    def gradient(self, target: object, sources: object, output_gradients: object = None,
                 unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE) -> object:
        """As that of the user's tape, for all ranks together."""
        made = super().gradient(target, sources, output_gradients, unconnected_gradients)
        flat = self._reducer.reduce(tf.nest.flatten(made), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(made, flat)

    def register_local_source(self, source: tf.Variable) -> None:
        """The gradient of SOURCE, a variable that each rank has for itself, is not reduced."""
        self._reducer.add_local(source)

    def get_local_and_global_gradients(self, target: object, sources: object, *args: object, **kwargs: object
                                       ) -> Tuple[List[Tuple[tf.Variable, Gradient]],
                                                  List[Tuple[tf.Variable, Gradient]]]:
        """gradient() as pairs (variable, gradient): those of local variables, and the others."""
        gradients = tf.nest.flatten(self.gradient(target, sources, *args, **kwargs))
        pairs = list(zip(tf.nest.flatten(sources), gradients))
        return ([(v, g) for v, g in pairs if self._reducer.is_local(v)],
                [(v, g) for v, g in pairs if not self._reducer.is_local(v)])


_classes: Dict[type, Any] = {}  # loops of eager mode make a tape for each step


def _class_of(base: type) -> Any:
    if base not in _classes:
        _classes[base] = type(base.__name__, (_Distributed, base), {})
    return _classes[base]


def _made(gradtape: tf.GradientTape, options: Options) -> tf.GradientTape:
    """GRADTAPE with its state, of a class with _Distributed in front of its own."""
    if isinstance(gradtape, _Distributed):
        raise ValueError("the tape is a DistributedGradientTape already: give the one that it was made of.")
    cls = _class_of(type(gradtape))
    made = cls.__new__(cls)
    made.__dict__.update(gradtape.__dict__)
    made._reducer = Reducer(options, "DistributedGradientTape")
    return made


def DistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
                            compression: Type[Compressor] = Compression.none, sparse_as_dense: bool = False,
                            op: int = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                            groups: Groups = None, process_set: ProcessSet = global_process_set,
                            scale_local_gradients: bool = True) -> tf.GradientTape:
    """GRADTAPE, whose gradient() reduces the gradients over the ranks.  Use it instead of GRADTAPE.

    A rank whose gradient is None must have it None on all ranks.

    DEVICE_DENSE, DEVICE_SPARSE: the device of the operations.
    COMPRESSION: what makes gradients smaller on their way (Compression).
    SPARSE_AS_DENSE: tf.IndexedSlices are reduced as dense tensors.
    OP: Average, Sum, Adasum, Min, Max or Product.
    GRADIENT_PREDIVIDE_FACTOR: an average is divided by it before it is summed, and the rest behind.
    GROUPS: a number of groups, or lists of variables: the gradients of one group are one request.  NUM_GROUPS
    is its older name.
    PROCESS_SET: the ranks; on others gradients stay as they are.
    SCALE_LOCAL_GRADIENTS: those of register_local_source() are divided by the number of ranks.

    ValueError: an argument is wrong.

    >>> w = tf.Variable(3.0)
    >>> with tf.GradientTape() as tape:
    ...     loss = w * w
    >>> tape = hvd.DistributedGradientTape(tape)
    >>> float(tape.gradient(loss, w))
    6.0
    """
    return _made(gradtape, Options(device_dense, device_sparse, compression, sparse_as_dense, op,
                                   gradient_predivide_factor, number_of_groups(num_groups, groups),
                                   process_set, scale_local_gradients))


def layers_of(local_layers: object) -> Sequence[object]:
    """LOCAL_LAYERS, a layer or several, as a list."""
    if local_layers is None:
        return []
    if isinstance(local_layers, (list, tuple, set)):
        return list(local_layers)
    return [local_layers]


def local_variables(local_layers: object) -> List[tf.Variable]:
    """The variables of LOCAL_LAYERS that are trained."""
    return [v for layer in layers_of(local_layers) for v in cast(Any, layer).trainable_weights]


def PartialDistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
                                   compression: Type[Compressor] = Compression.none,
                                   sparse_as_dense: bool = False, op: int = Average,
                                   gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                                   groups: Groups = None, process_set: ProcessSet = global_process_set,
                                   local_layers: object = None, scale_local_gradients: bool = True
                                   ) -> tf.GradientTape:
    """DistributedGradientTape(), but the layers LOCAL_LAYERS, one or several, are each rank's own: their
    gradients are not reduced.

    >>> layer = tf.keras.layers.Dense(1)
    >>> layer.build([None, 2])
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(layer(tf.ones([1, 2])))
    >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
    >>> [g.numpy().tolist() for g in tape.gradient(loss, layer.trainable_variables)]
    [[[1.0], [1.0]], [1.0]]
    """
    made = DistributedGradientTape(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op,
                                   gradient_predivide_factor, num_groups, groups, process_set,
                                   scale_local_gradients)
    for variable in local_variables(local_layers):
        made.register_local_source(variable)
    return made
