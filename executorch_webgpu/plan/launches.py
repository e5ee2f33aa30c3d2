"""The dispatches of one plan as they are recorded: pipelines, bindings, parameters.

Enters: the text of a kernel with what it binds. Leaves: a list of `Launch`, each a
dispatch over stores, which `assemble_plan.py` turns into a dispatch over buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import Unsupported
from . import traced_int, wgsl_text
from .caps import Caps
from .plan import PARAMS_ALIGN, Pipeline, Role
from .tensor import Store, Tensor, Window
from .traced_int import TracedInt
from .wgsl_text import Param

# Of one plan. It takes some five seconds to plan as many; real models have hundreds.
MOST_DISPATCHES = 1 << 15


@dataclass(frozen=True)
class Launch:
    """A dispatch whose stores have no buffers yet."""

    pipeline: int
    stores: tuple[Store, ...]
    windows: tuple[Window | None, ...]  # of the stores; None: all of it
    params: int
    params_size: int
    groups: tuple[int, int, int]
    label: str
    call: int
    written: frozenset[Store]  # those of the stores that it writes
    reports: bool
    tensors: tuple[Tensor, ...]  # what it reads and writes


@dataclass(frozen=True)
class Kernel:
    """The text of a kernel, whether it reports, and whether it has a guard, which asks
    for reports; in both cases it binds the status buffer."""

    name: str
    text: str
    reports: bool
    is_guarded: bool


@dataclass(frozen=True)
class Binding:
    """A store that a kernel reads or writes, or a window of it."""

    tensor: Tensor | None  # what is in it; None: the status
    store: Store
    window: Window | None
    write: bool


class Launches:
    """The dispatches recorded so far."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self.launched: list[Launch] = []
        self.pipelines: dict[Pipeline, int] = {}
        self.params = bytearray()
        # Parameters that depend on sizes: the word's offset in `params`, and the size.
        self.sizes: list[tuple[int, int]] = []
        self._status = Store(Role.STATUS, 16, "status")
        self._has_status = False

    @property
    def status(self) -> Store | None:
        """The status buffer; None if no kernel binds it."""
        return self._status if self._has_status else None

    def add(
        self,
        kernel: Kernel,
        bindings: Sequence[Binding],
        params: Mapping[str, Param],
        groups: tuple[int, int, int],
        label: str,
        call: int,
    ) -> None:
        """Records a dispatch; `label` and `call` name its op in messages."""
        if len(self.launched) == MOST_DISPATCHES:
            raise Unsupported(
                f"a plan must have at most {MOST_DISPATCHES} dispatches, got more"
            )
        is_of_sizes = traced_int.OPEN in kernel.text
        assert not is_of_sizes, f"{kernel.name}: a size is in its text"
        for binding in bindings:
            self._check_size(binding)
        written = frozenset(binding.store for binding in bindings if binding.write)
        if kernel.reports or kernel.is_guarded:
            bindings = [*bindings, Binding(None, self._status, None, True)]
            self._has_status = True
        access = ["write" if binding.write else "read" for binding in bindings]
        offset = size = -1
        if params:
            access.append("uniform")
            words = wgsl_text.param_words(params)
            data = wgsl_text.pack_params(words)
            offset, size = len(self.params), len(data)
            self.sizes += [
                (offset + 4 * at, word)
                for at, (_, word) in enumerate(words)
                if isinstance(word, TracedInt) and -(1 << 31) <= word < 1 << 31
            ]
            self.params += data + bytes(-len(data) % PARAMS_ALIGN)
        pipeline = Pipeline(kernel.name, kernel.text, tuple(access))
        index = self.pipelines.setdefault(pipeline, len(self.pipelines))
        self.launched.append(
            Launch(
                index,
                tuple(binding.store for binding in bindings),
                tuple(binding.window for binding in bindings),
                offset,
                size,
                groups,
                label,
                call,
                written,
                kernel.reports,
                tuple(b.tensor for b in bindings if b.tensor is not None),
            )
        )

    def _check_size(self, binding: Binding) -> None:
        """Refuses a store that is larger than a buffer, or a binding, can be."""
        what, limit = "buffer", self._caps.max_buffer
        if binding.window is None and self._caps.max_binding <= limit:
            what, limit = "binding", self._caps.max_binding
        size = binding.store.size
        if size > limit:
            raise Unsupported(
                f"a tensor must fit a {what} of {limit} bytes, got {size}"
            )
