"""DistributedOptimizer for the optimizers of Keras 2, legacy or not, and of Keras 3.

The result is of a subclass of the class of the user's optimizer, which has its name and module: a model that
is saved with it loads without Berth.
"""
from __future__ import annotations

import functools
from typing import Any, List, NamedTuple, Sequence, Tuple, Type, TypeVar, cast

import tensorflow as tf

from ..basics import Adasum, Average, ProcessSet, global_process_set
from ..operations import number_of_groups
from ..tensorflow import xla
from ..tensorflow.compression import Compression, Compressor
from ..tensorflow.gradients import Gradient, Groups, Options, Reducer
from ..tensorflow.passes import Passes
from ..tensorflow.tape import local_variables

Optimizer = TypeVar("Optimizer")
Pairs = List[Tuple[Gradient, tf.Variable]]


class Settings(NamedTuple):
    """Of an optimizer.  PASSES gradients are added up, and divided by that number if IS_AVERAGED."""
    options: Options
    passes: int
    is_averaged: bool


class _Distributed:
    """Comes before the class of the user's optimizer.  Keras makes more of a class by from_config(), so what
    they do is an attribute of the class.
    """

    _settings: Settings
    _is_reduced = False  # the gradients of the next step are those of all ranks already

    @property
    def _reducer(self) -> Reducer:
        made: Reducer | None = self.__dict__.get("_berth_reducer")
        if made is None:
            made = self.__dict__["_berth_reducer"] = Reducer(self._settings.options, "DistributedOptimizer")
        return made

    @property
    def _agg_helper(self) -> Passes | None:
        _, passes, is_averaged = self._settings
        if passes == 1:
            return None
        made: Passes | None = self.__dict__.get("_berth_passes")
        if made is None:
            made = self.__dict__["_berth_passes"] = Passes(passes, is_averaged, self._reducer)
        return made

    def register_local_var(self, var: tf.Variable) -> None:
        """The gradient of VAR, which each rank has for itself, is not reduced."""
        self._reducer.add_local(var)

    def _reduced(self, gradients: Sequence[Gradient], variables: Sequence[tf.Variable]) -> List[Gradient]:
        return (self._agg_helper or self._reducer).reduce(gradients, variables)


class _Distributed2(_Distributed):
    """Keras 2 has a function for it, which LossScaleOptimizer calls, too: aggregate_gradients(), and
    _aggregate_gradients() in keras.optimizers.legacy.
    """

    def aggregate_gradients(self, grads_and_vars: Pairs) -> Pairs:
        """GRADS_AND_VARS for all ranks together."""
        pairs = list(grads_and_vars)
        if self._is_reduced or not pairs:
            return pairs
        gradients, variables = zip(*pairs)
        return list(zip(self._reduced(gradients, variables), variables))

    def _aggregate_gradients(self, grads_and_vars: Pairs) -> Pairs:
        return self.aggregate_gradients(grads_and_vars)

    def _compute_gradients(self, loss: object, var_list: object, grad_loss: object = None,
                           tape: tf.GradientTape | None = None) -> Pairs:
        """Horovod's programs call it, and then apply_gradients() with the result."""
        base: Any = super()
        if hasattr(base, "_compute_gradients"):
            pairs: Pairs = base._compute_gradients(loss, var_list, grad_loss, tape)
        else:
            pairs = base.compute_gradients(loss, var_list, tape)
        self._is_reduced = False
        pairs = self.aggregate_gradients(pairs)
        self._is_reduced = True
        return pairs

    def get_gradients(self, loss: object, params: Sequence[tf.Variable]) -> List[Gradient]:
        """Those of the user's optimizer, for all ranks; apply_gradients() takes them as they are."""
        gradients = cast(Any, super()).get_gradients(loss, params)
        self._is_reduced = True
        return self._reduced(gradients, params)

    def apply_gradients(self, grads_and_vars: Pairs, *args: object, **kwargs: object) -> object:
        """The step of the user's optimizer; of several passes at the last one."""
        step = cast(Any, super()).apply_gradients
        pairs = list(grads_and_vars)
        try:
            if self._agg_helper is None:
                return step(pairs, *args, **kwargs)
            is_skipped = kwargs.pop("skip_gradients_aggregation", False)
            if kwargs.pop("experimental_aggregate_gradients", True) and not is_skipped:
                pairs = self.aggregate_gradients(pairs)
        finally:
            self._is_reduced = False
        kwargs["experimental_aggregate_gradients"] = False
        return self._agg_helper.apply([g for g, _ in pairs], lambda: step(pairs, *args, **kwargs),
                                      lambda: cast(Any, self).iterations.assign_add(1))


class _Distributed3(_Distributed):
    """All ways to a step of Keras 3 go through apply()."""

    never_auto_jit = True  # see xla.never_auto_jit()

    def apply(self, grads: Sequence[Gradient],
              trainable_variables: Sequence[tf.Variable] | None = None) -> None:
        """The step of the user's optimizer, with reduced gradients; of several passes at the last one."""
        me: Any = self
        step = cast(Any, super()).apply
        gradients = list(grads)
        variables = list(me._trainable_variables if trainable_variables is None else trainable_variables)
        if not self._is_reduced and gradients:
            gradients = self._reduced(gradients, variables)
        self._is_reduced = False
        if self._agg_helper is None or not gradients:
            step(gradients, trainable_variables)
            return
        if not me.built:  # not inside of the condition
            me.build(variables)
        self._agg_helper.apply(gradients, lambda: step(gradients, trainable_variables),
                               lambda: me._iterations.assign_add(1))


def _reduces_first(scaler: type) -> None:
    """SCALER, the LossScaleOptimizer of Keras 3, leaves out steps with infinite gradients.  It has to look at
    the reduced ones: else ranks would differ in what they leave out, and those that do a step would wait for
    the others.  Keras wraps optimizers in it by itself, with the policy mixed_float16.
    """
    apply = cast(Any, scaler).apply
    if hasattr(apply, "of_berth"):
        return

    @functools.wraps(apply)
    def reduced(self: Any, grads: Sequence[Gradient],
                trainable_variables: Sequence[tf.Variable] | None = None) -> None:
        inner = self.inner_optimizer
        if isinstance(inner, _Distributed3):
            inner._is_reduced = True
            grads = inner._reduced(list(grads), list(trainable_variables or self._trainable_variables))
        apply(self, grads, trainable_variables)

    cast(Any, reduced).of_berth = True
    cast(Any, scaler).apply = reduced


def is_of_keras_3(optimizer: object) -> bool:
    """Whether OPTIMIZER is one of Keras 3."""
    return hasattr(type(optimizer), "stateless_apply")


def distributed(optimizer: Optimizer, settings: Settings, name: str | None) -> Optimizer:
    """OPTIMIZER with its state, but it reduces its gradients.  Of a LossScaleOptimizer the one in it does."""
    old: Any = optimizer
    base, is_new = type(old), is_of_keras_3(old)
    if isinstance(old, _Distributed):
        raise ValueError("the optimizer is a DistributedOptimizer already: give the one that it was made of.")
    if is_new:
        import keras
        _reduces_first(keras.optimizers.LossScaleOptimizer)
        xla.never_auto_jit(keras)
    if hasattr(old, "inner_optimizer"):
        setattr(old, "inner_optimizer" if is_new else "_optimizer",
                distributed(old.inner_optimizer, settings, name))
        return optimizer
    cls: Any = type(base.__name__, (_Distributed3 if is_new else _Distributed2, base),
                    {"__module__": base.__module__, "__doc__": base.__doc__, "_settings": settings})
    made = object.__new__(cls)
    made.__dict__.update(old.__dict__)
    if name is not None:
        made.__dict__.update({key: name for key in ("name", "_name") if key in old.__dict__})
    _ = made._agg_helper, made._reducer  # what is wrong in the arguments is said now
    return cast(Optimizer, made)


def DistributedOptimizer(optimizer: Optimizer, name: str | None = None, device_dense: str = "",
                         device_sparse: str = "", compression: Type[Compressor] = Compression.none,
                         sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0,
                         op: int = Average, backward_passes_per_step: int = 1,
                         average_aggregated_gradients: bool = False, num_groups: int = 0,
                         groups: Groups = None, process_set: ProcessSet = global_process_set,
                         scale_local_gradients: bool = True) -> Optimizer:
    """OPTIMIZER of Keras, which reduces its gradients over the ranks before each step.  Use it instead of
    OPTIMIZER, whose state it has.

    A rank whose gradient is None must have it None on all ranks.

    NAME: of the new optimizer.
    DEVICE_DENSE, DEVICE_SPARSE: the device of the operations.
    COMPRESSION: what makes gradients smaller on their way (Compression).
    SPARSE_AS_DENSE: tf.IndexedSlices are reduced as dense tensors.
    GRADIENT_PREDIVIDE_FACTOR: an average is divided by it before it is summed, and the rest behind.
    OP: Average, Sum, Min, Max or Product.
    BACKWARD_PASSES_PER_STEP: so many gradients are added up on each rank before they are reduced;
    AVERAGE_AGGREGATED_GRADIENTS: and divided by that number.
    GROUPS: a number of groups, or lists of variables: the gradients of one group are one request.  NUM_GROUPS
    is its older name.
    PROCESS_SET: the ranks; on others gradients stay as they are.
    SCALE_LOCAL_GRADIENTS: those of register_local_var() are divided by the number of ranks.

    ValueError: an argument is wrong.

    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile(optimizer=optimizer, loss="mse")
    >>> callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    >>> _ = model.fit(np.ones([1, 1]), np.ones([1, 1]), verbose=0, callbacks=callbacks)
    """
    if op == Adasum:
        raise ValueError("Keras' optimizers have no op=Adasum: an optimizer of tf.compat.v1.train has.")
    options = Options(device_dense, device_sparse, compression, sparse_as_dense, op,
                      gradient_predivide_factor, number_of_groups(num_groups, groups), process_set,
                      scale_local_gradients)
    return distributed(optimizer, Settings(options, backward_passes_per_step, average_aggregated_gradients),
                       name)


def PartialDistributedOptimizer(optimizer: Optimizer, name: str | None = None, device_dense: str = "",
                                device_sparse: str = "", compression: Type[Compressor] = Compression.none,
                                sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0,
                                op: int = Average, backward_passes_per_step: int = 1,
                                average_aggregated_gradients: bool = False, groups: Groups = None,
                                process_set: ProcessSet = global_process_set, local_layers: object = None,
                                scale_local_gradients: bool = True) -> Optimizer:
    """DistributedOptimizer(), but the layers LOCAL_LAYERS, one or several, are each rank's own: their
    gradients are not reduced.

    >>> layer = keras.layers.Dense(1)
    >>> layer.build((None, 2))
    >>> optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=layer)
    """
    made = DistributedOptimizer(optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
                                gradient_predivide_factor, op, backward_passes_per_step,
                                average_aggregated_gradients, groups=groups, process_set=process_set,
                                scale_local_gradients=scale_local_gradients)
    for variable in local_variables(local_layers):
        inner: Any = getattr(made, "inner_optimizer", made)
        inner.register_local_var(variable)
    return made
