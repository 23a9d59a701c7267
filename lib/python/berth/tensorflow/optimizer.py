"""DistributedOptimizer, for the optimizers of TensorFlow 1 (tf.compat.v1.train) and of Keras."""
from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple, Type, cast

import tensorflow as tf

from ..basics import Adasum, Average, ProcessSet, global_process_set
from ..operations import number_of_groups
from .compression import Compression, Compressor
from .gradients import Gradient, Groups, Options, Reducer
from .passes import Passes

v1 = tf.compat.v1

Pairs = Sequence[Tuple[Gradient, tf.Variable]]


class _Wrapped(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """What OPTIMIZER is asked for goes to it."""

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer, name: str | None, use_locking: bool) -> None:
        super().__init__(use_locking, name or f"Distributed{type(optimizer).__name__}")
        self._optimizer = optimizer

    def get_slot(self, *args: object, **kwargs: object) -> tf.Variable | None:
        """Of the user's optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: object, **kwargs: object) -> List[str]:
        """Of the user's optimizer."""
        return cast(List[str], self._optimizer.get_slot_names(*args, **kwargs))

    def variables(self, *args: object, **kwargs: object) -> List[tf.Variable]:
        """Of the user's optimizer."""
        return cast(List[tf.Variable], self._optimizer.variables(*args, **kwargs))


class _Distributed(_Wrapped):
    """compute_gradients() reduces what that of OPTIMIZER computes."""

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer, name: str | None, use_locking: bool,
                 reducer: Reducer, passes: Passes | None) -> None:
        super().__init__(optimizer, name, use_locking)
        self._reducer, self._agg_helper = reducer, passes

    def register_local_var(self, var: tf.Variable) -> None:
        """The gradient of VAR, which each rank has for itself, is not reduced."""
        self._reducer.add_local(var)

    def compute_gradients(self, *args: object, **kwargs: object) -> Pairs:
        """Those of the user's optimizer, for all ranks together."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if not pairs:
            return cast(Pairs, pairs)
        gradients, variables = zip(*pairs)
        return list(zip((self._agg_helper or self._reducer).reduce(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars: Pairs, global_step: tf.Variable | None = None,
                        name: str | None = None) -> object:
        """The step of the user's optimizer; of several passes at the last one."""
        pairs = list(grads_and_vars)

        def step() -> object:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        def leave_out() -> object:
            return tf.no_op() if global_step is None else v1.assign_add(global_step, 1).op

        if self._agg_helper is None:
            return step()
        return self._agg_helper.apply([g for g, _ in pairs], step, leave_out)


class _Delta(_Wrapped):
    """Each rank does the step of OPTIMIZER; at each PASSES-th step the ways that the variables have gone on
    the ranks are combined by Adasum.
    """

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer, name: str | None, use_locking: bool,
                 reducer: Reducer, passes: int) -> None:
        super().__init__(optimizer, name, use_locking)
        self._reducer, self._passes = reducer, passes
        self._count: tf.Variable | None = None
        self._starts: List[tf.Variable] = []

    def compute_gradients(self, *args: object, **kwargs: object) -> Pairs:
        """Those of the user's optimizer."""
        return cast(Pairs, self._optimizer.compute_gradients(*args, **kwargs))

    def _make(self, variables: Sequence[tf.Variable]) -> None:
        """Where the variables began, and the count of steps since then."""
        if self._count is not None:
            return
        with tf.init_scope():
            where = {"trainable": False, "use_resource": True,
                     "collections": [v1.GraphKeys.LOCAL_VARIABLES]}
            self._count = v1.Variable(0, name="berth_steps", **where)
            self._starts = [v1.Variable(tf.zeros(v.shape, v.dtype.base_dtype), name="berth_start", **where)
                            for v in variables]

    def apply_gradients(self, grads_and_vars: Pairs, global_step: tf.Variable | None = None,
                        name: str | None = None) -> object:
        """A step on this rank, and at the last of the passes the combination of all ranks."""
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        variables = [v for _, v in pairs]
        if self._reducer.is_alone() or not pairs:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        self._make(variables)
        count = self._count
        assert count is not None
        with tf.control_dependencies([g for g, _ in pairs]):
            begun = self._if(tf.equal(tf.identity(count), 0), lambda: [
                s.assign(tf.identity(v)) for s, v in zip(self._starts, variables)])
        with tf.control_dependencies([begun]):
            done = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies(_operations(done)):
            counted = tf.identity(count.assign_add(1))
            return self._if(tf.equal(counted, self._passes), lambda: self._combine(variables))

    def _combine(self, variables: Sequence[tf.Variable]) -> List[object]:
        ways = [tf.identity(v) - s for v, s in zip(variables, self._starts)]
        reduced = self._reducer.reduce(ways, variables)
        assert self._count is not None
        with tf.control_dependencies(reduced):
            return [*(v1.assign(v, s + way) for v, s, way in zip(variables, self._starts, reduced)),
                    self._count.assign(0)]

    @staticmethod
    def _if(condition: tf.Tensor, do: Callable[[], List[object]]) -> tf.Tensor:
        def true() -> tf.Tensor:
            with tf.control_dependencies([op for done in do() for op in _operations(done)]):
                return tf.constant(True)

        return tf.cond(condition, true, lambda: tf.constant(False))


def _operations(done: object) -> List[object]:
    """What can be waited for in a graph.  In eager mode nothing need be."""
    return [] if tf.executing_eagerly() or done is None else [getattr(done, "op", done)]


def DistributedOptimizer(optimizer: object, name: str | None = None, use_locking: bool = False,
                         device_dense: str = "", device_sparse: str = "",
                         compression: Type[Compressor] = Compression.none, sparse_as_dense: bool = False,
                         backward_passes_per_step: int = 1, op: int = Average,
                         gradient_predivide_factor: float = 1.0, average_aggregated_gradients: bool = False,
                         num_groups: int = 0, groups: Groups = None,
                         process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True
                         ) -> object:
    """OPTIMIZER, which reduces its gradients over the ranks before each step.  Use it instead of OPTIMIZER.

    OPTIMIZER: of tf.compat.v1.train, or of Keras, for which berth.tensorflow.keras.DistributedOptimizer is
    called.
    NAME: of the new optimizer.
    USE_LOCKING, DEVICE_DENSE, DEVICE_SPARSE: as TensorFlow means them.
    COMPRESSION: what makes gradients smaller on their way (Compression).
    SPARSE_AS_DENSE: tf.IndexedSlices are reduced as dense tensors.
    BACKWARD_PASSES_PER_STEP: so many gradients are added up on each rank before they are reduced;
    AVERAGE_AGGREGATED_GRADIENTS: and divided by that number.
    OP: Average, Sum, Min, Max, Product; Adasum, not for Keras: each rank does its step, and Adasum combines
    these.
    GRADIENT_PREDIVIDE_FACTOR: an average is divided by it before it is summed, and the rest behind.
    GROUPS: a number of groups, or lists of variables: the gradients of one group are one request.  NUM_GROUPS
    is its older name.
    PROCESS_SET: the ranks; on others gradients stay as they are.
    SCALE_LOCAL_GRADIENTS: those of register_local_var() are divided by the number of ranks.

    ValueError: an argument is wrong.

    >>> v = tf.Variable(1.0)
    >>> optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    >>> _ = optimizer.minimize(lambda: v * v, var_list=[v])
    >>> float(v)
    0.0
    """
    if isinstance(optimizer, _Wrapped):
        raise ValueError("the optimizer is a DistributedOptimizer already: give the one that it was made of.")
    groups = number_of_groups(num_groups, groups)
    if not isinstance(optimizer, v1.train.Optimizer):
        from .keras import DistributedOptimizer as of_keras
        return of_keras(cast(Any, optimizer), name, device_dense, device_sparse, compression, sparse_as_dense,
                        gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients,
                        groups=groups, process_set=process_set, scale_local_gradients=scale_local_gradients)
    reducer = Reducer(Options(device_dense, device_sparse, compression, sparse_as_dense, op,
                              gradient_predivide_factor, groups, process_set, scale_local_gradients),
                      "DistributedOptimizer")
    if op == Adasum:
        if average_aggregated_gradients:
            raise ValueError("average_aggregated_gradients is not for op=Adasum.")
        return _Delta(optimizer, name, use_locking, reducer, backward_passes_per_step)
    passes = None
    if backward_passes_per_step != 1:
        passes = Passes(backward_passes_per_step, average_aggregated_gradients, reducer)
    return _Distributed(optimizer, name, use_locking, reducer, passes)
