"""Kernels that calls at other sizes will need, compiled before these come.

Enters: kernels, one after the other; the iterator that gives them may have to plan for
it. Leaves: compiled ones, which are kept as long as the delegate is loaded. They are
made at once, or by a thread, which lets everybody else have the device between two
kernels: a call waits for the kernel that is being compiled, if one is, and compiles by
itself what it needs and what is not there.

Some drivers compile at a kernel's first dispatch: one of no workgroups, which touches
nothing, has them do so.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from .. import _shim
from ..errors import DeviceError, WebGPUError
from ..plan.plan import Pipeline
from ..plan.planner import Planner
from ..plan.variant import Variant
from ..plan.variants import walk
from ..portable.verify import MAX_KERNELS
from . import signals
from .device import GpuBuffer, GpuPipeline
from .executor import WgpuExecutor

_logger = logging.getLogger("executorch_webgpu")

# Seconds between two looks at whether others still wait for the device.
_PERIOD = 0.001
# Bytes of what stands in for a kernel's buffers: any device can bind that many as a
# uniform buffer.
_SPARE = 1 << 16


class AheadCompiler:
    """Compiles kernels of one delegate, at most as many as a file may have.

    One that cannot be compiled is an error of the load, or, if a thread does it, of the
    call that needs it. With `is_warm`, drivers put nothing off to the first dispatch.
    """

    def __init__(
        self, executor: WgpuExecutor, kernels: Iterator[Pipeline], is_warm: bool
    ) -> None:
        self._executor = executor
        self._kernels = itertools.islice(kernels, MAX_KERNELS)
        self._is_warm = is_warm
        self._made: list[GpuPipeline] = []
        self._spares: list[GpuBuffer] = []
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    @property
    def is_done(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def run(self, kernels: Iterable[Pipeline] | None = None) -> None:
        """Compiles these, or all; the caller holds the device's lock."""
        for kernel in self._kernels if kernels is None else kernels:
            with signals.held():
                self._compile(kernel)
        with signals.held():
            self._free_spares()

    def start(self) -> None:
        """Leaves them to a thread. It does not keep the interpreter from shutting down,
        which waits for a kernel that is being compiled, and not for the next one."""
        name = f"executorch_webgpu: kernels of {self._executor.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Forgets all kernels; nobody waits for the thread, which ends by itself.

        The caller holds the device's lock.
        """
        self._is_stopped = True
        self._made.clear()
        self._free_spares()

    def _run(self) -> None:
        try:
            while True:
                # Between two kernels, so that the end of the process finds a gap.
                with _shim.Entry() as is_open:
                    if not is_open or not self._next():
                        return
        except Exception:
            # What is missing is made by the calls that need it, or fails there.
            _logger.exception("%s: compiling kernels ahead", self._executor.name)

    def _next(self) -> bool:
        """Makes one kernel; False if there is none to be made."""
        gpu = self._executor.device
        kernel = None if self._is_stopped else next(self._kernels, None)
        while gpu.lock.is_wanted():
            time.sleep(_PERIOD)
        with gpu.lock:
            if kernel is None or self._is_stopped or gpu.is_lost:
                self._free_spares()
                return False
            try:
                self._compile(kernel)
            except WebGPUError as error:
                # The call that needs it fails with this, and says for which op.
                _logger.debug("%s: %s", self._executor.name, error)
        return True

    def _compile(self, kernel: Pipeline) -> None:
        made = self._executor.compile(kernel)
        self._made.append(made)
        if self._is_warm and not made.is_warm:
            self._warm(kernel, made)

    def _warm(self, kernel: Pipeline, made: GpuPipeline) -> None:
        import wgpu

        gpu, where = self._executor.device, f"kernel {kernel.label}"
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.UNIFORM
        while len(self._spares) < len(kernel.access):
            self._spares.append(gpu.buffer("spare", _SPARE, usage))
        bindings = [(each, 0, _SPARE) for each in self._spares[: len(kernel.access)]]
        try:
            with gpu.errors(where):
                group = gpu.bind_group(made, bindings, where)
                encoder = gpu.raw.create_command_encoder()
                encoding = encoder.begin_compute_pass()
                encoding.set_pipeline(made.raw)
                encoding.set_bind_group(0, group.raw)
                encoding.dispatch_workgroups(0, 0, 0)
                encoding.end()
                commands = encoder.finish()
        except DeviceError as error:
            gpu.check()
            # Its first call finds room for what it binds.
            _logger.debug("%s: %s", self._executor.name, error)
            return
        gpu.compute(commands)
        made.is_warm = True

    def _free_spares(self) -> None:
        for spare in self._spares:
            spare.free()
        self._spares.clear()


def kernels_of(planner: Planner, keep: Callable[[Variant], None]) -> Iterator[Pipeline]:
    """The kernels of all variants that serve what a graph accepts, as they are planned,
    but for those that the planner has. Each variant is given to `keep` before its
    kernels are.

    Sizes that cannot be planned are an error of the call that has them.
    """
    seen = {kernel for each in planner.kept for kernel in each.plan.pipelines}
    # Without sizes that vary there is one plan, which is there.
    for step in walk(planner, planner.kept) if planner.ranges else ():
        if isinstance(step, Variant):
            keep(step)
            for kernel in step.plan.pipelines:
                if kernel not in seen:
                    seen.add(kernel)
                    yield kernel
