"""Output: what an op function makes, before it is a tensor that others read.

The planner says what is wanted: shape and type, the epilogue, the place, whether
anything reads it at all. The recorder writes down what became of it, once: the tensor
that a kernel stores, a view of another one, or an elementwise program to be inlined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..ir.dtypes import DType
from .tensor import Shaped, Store, Tensor

if TYPE_CHECKING:
    from ..ir import Step


@dataclass(frozen=True)
class Epilogue:
    """Steps that a kernel applies to each value before it stores it."""

    steps: tuple[Step, ...]
    operands: Mapping[int, Tensor]  # what the steps' refs stand for
    dtype: DType  # of the last step's result, which is what is stored


@dataclass(frozen=True)
class Place:
    """Where in a larger buffer an output is stored.

    Its elements are contiguous runs of `span`, which begin at `at` and every `total`
    elements from there. With `one_run`, there is a single run at every live shape.
    """

    store: Store
    shape: tuple[int, ...]  # of the whole tensor in the store
    at: int
    span: int
    total: int
    one_run: bool

    @property
    def in_fours(self) -> bool:
        """Whether each vec4 of the output is an aligned vec4 of the buffer."""
        return not any(n % 4 for n in (self.at, self.span, self.total))


@dataclass
class _Result:
    """The tensor that an output became; None until then."""

    tensor: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Output(Shaped):
    """An output of a call: `dtype` is of the values that the op computes.

    Copies made by `replace` have the same result: an op may ask another one to make
    its output with an epilogue of its own in front.
    """

    epilogue: Epilogue | None = None
    place: Place | None = None  # instead of a buffer of its own
    needed: bool = True  # what nothing reads need not be written
    # How often its only reader reads each element, if it can compute it instead of
    # reading it from a buffer; else 0.
    reads: int = 0
    _result: _Result = field(default_factory=_Result)

    @staticmethod
    def over(tensor: Tensor, place: Place | None = None) -> Output:
        """An output that is stored where a tensor has its elements."""
        out = Output(tensor.shape, tensor.dtype, tensor.bound, place=place)
        out.becomes(tensor)
        return out

    def becomes(self, tensor: Tensor) -> None:
        """Says what others read, once."""
        if self._result.tensor is not None:
            raise AssertionError("an output must be made once, got a second tensor")
        self._result.tensor = tensor

    @property
    def stored(self) -> DType:
        """The type of the elements in the store, after the epilogue."""
        return self.dtype if self.epilogue is None else self.epilogue.dtype

    @property
    def written(self) -> Tensor | None:
        """What others read; None until it is known."""
        return self._result.tensor

    @property
    def tensor(self) -> Tensor:
        """What others read, once it is known."""
        made = self._result.tensor
        if made is None:
            raise AssertionError("an output must be written before it is read")
        return made

    @property
    def taken_place(self) -> Place | None:
        """The place, if that is where the output was stored."""
        made = self._result.tensor
        if self.place is None or made is None or made.origin is not self.place.store:
            return None
        return self.place
