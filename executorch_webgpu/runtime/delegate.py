"""The Python side of the delegate: what the shim calls.

`init` makes a Delegate from its bytes. The shim asks it for a Program, a plan with its
GPU objects, whenever it meets new shapes, keeps that and plays it in every call, and
closes the Delegate in the end. If `init` fails, no GPU object is left.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakSet

from .. import _shim, ir, options
from ..errors import InvalidBlob, InvalidInput, UnfitDevice
from ..ir.dtypes import DType
from ..plan.caps import Caps
from ..plan.load_graph import load_graph
from ..plan.plan import Pipeline, Plan, Port, PortKind
from ..plan.planner import Planner
from ..plan.variant import Variant
from ..portable import serialize
from ..portable.at_sizes import FilePlanner, fitting_profile
from ..portable.verify import verify
from ..vulkan import load as vulkan
from . import device, signals, timing
from .compile_ahead import AheadCompiler, kernels_of
from .device import Device
from .executor import Program, WgpuExecutor
from .stepwise import LoggedProgram
from .timing import TimedProgram, Timings
from .tuning import TunedPlanner
from .upload import GetData

_logger = logging.getLogger("executorch_webgpu")

Live = tuple[int, ...] | int
Plans = Callable[[Sequence[Live]], Plan]


@dataclass(frozen=True)
class Stats:
    """What all delegates hold on the GPU, and counts since the process began."""

    adapter: str  # "" before the first load
    executor: str
    delegates: int
    compiling: int  # delegates whose kernels are being compiled in the background
    buffers: int
    buffer_bytes: int
    pipelines: int
    bind_groups: int
    created_buffers: int
    created_pipelines: int
    created_bind_groups: int
    plans: int
    native_submits: int
    native_upload_seconds: float  # writing inputs
    native_busy_seconds: float  # from a call's first submit to its results
    native_read_seconds: float  # reading outputs


class Delegate:
    """One loaded delegate. The shim reads the attributes without an underscore."""

    def __init__(
        self,
        name: str,
        gpu: Device,
        chosen: options.Options,
        bound: Plan,
        plan: Plans,
        get_data: GetData,
        plan_with_values: Plans | None = None,
        graph: ir.Graph | None = None,
    ) -> None:
        self.lock = gpu.lock
        self.release_gil = chosen.release_gil
        self.plan_cache = chosen.plan_cache
        self.output_count = len(bound.outputs)
        # An integer without a buffer is a size: plans depend on it.
        self.int_is_key = [
            port.kind is PortKind.INT and port.buffer < 0 for port in bound.inputs
        ]
        self._plan = plan
        self._plan_with_values = plan_with_values
        self._timings = timing.current()
        if self._timings is not None:
            self._number = self._timings.add(name, graph, gpu)
        self._ahead: AheadCompiler | None = None
        self._is_native = chosen.executor == "native" and _is_native_possible()
        self._executor = WgpuExecutor(
            gpu, name, get_data, chosen.verify_weights, chosen.check_kernels
        )
        self._executor.session.set_timeout(chosen.timeout)
        try:
            # Compiles its kernels now, not in the first execute.
            self._bound: Program | None = self._program(bound)
        except BaseException:
            with signals.held():
                self._executor.close()
            raise
        _delegates.add(self)

    def prepare(
        self, live: Sequence[Live], types: Sequence[int] = ()
    ) -> Program | TimedProgram:
        """The program for live shapes; the shim keeps it and asks only once.

        A file that does not say what its arguments are outside of the delegate, as
        Vulkan's, gets the scalar types that they have.
        """
        if self._timings is not None:
            return self._timed(live, types, self._timings)
        bound = self._bound if self._is_bound(live) else None
        plan = self._plan(live) if bound is None else bound.plan
        typed = _with_types(plan, types)
        return bound if bound is not None and typed is plan else self._program(typed)

    def _timed(
        self, live: Sequence[Live], types: Sequence[int], timings: Timings
    ) -> TimedProgram:
        plan = _with_types((self._plan_with_values or self._plan)(live), types)
        with signals.held():
            program = self._executor.prepare(plan)
        return TimedProgram(program, timings, self._number)

    def prepare_logged(
        self, live: Sequence[Live], types: Sequence[int] = ()
    ) -> LoggedProgram | None:
        """One that can log the results of op calls; None if plans come from the file,
        which says nothing of them."""
        if self._plan_with_values is None:
            _logger.warning(
                "%s: no values are logged of plans from a file; load it with the option"
                " plans=graph",
                self._executor.name,
            )
            return None
        with signals.held():
            plan = _with_types(self._plan_with_values(live), types)
            return LoggedProgram(self._executor.prepare(plan))

    def compile_ahead(self, kernels: Iterator[Pipeline], when: str) -> None:
        """Compiles kernels that calls at other sizes will need, as the option `compile`
        says; "auto" leaves to the driver when it does its part."""
        self._ahead = AheadCompiler(self._executor, kernels, when != "auto")
        with self.lock:
            try:
                assert self._bound is not None
                self._ahead.run(self._bound.plan.pipelines)
                if when == "background":
                    self._ahead.start()
                else:
                    self._ahead.run()
            except BaseException:
                self.close()
                raise

    @property
    def is_compiled(self) -> bool:
        """Whether no thread compiles kernels any more."""
        return self._ahead is None or self._ahead.is_done

    def reset_state(self) -> None:
        with self.lock, signals.held():
            self._executor.reset_state()

    def close(self) -> None:
        # Nothing would be freed if Ctrl-C ended the wait.
        with signals.held():
            self.lock.hold()
            try:
                _delegates.discard(self)
                self._bound = None
                if self._ahead is not None:
                    self._ahead.stop()
                self._executor.close()
            finally:
                self.lock.release()

    def _is_bound(self, live: Sequence[Live]) -> bool:
        """Whether these are the shapes of the upper bound, which is planned already."""
        if self._bound is None or any(self.int_is_key):
            return False
        ports = self._bound.plan.inputs
        return all(
            port.kind is PortKind.INT or port.shape == shape
            for port, shape in zip(ports, live, strict=True)
        )

    def _program(self, plan: Plan) -> Program:
        global _plans
        _plans += 1
        with signals.held():
            program = self._executor.prepare(plan)
            if self._is_native and program.is_read_at_once:
                program.replay = program.native_replay(self._executor.session)
            return program


_delegates: WeakSet[Delegate] = WeakSet()
_plans = 0


def init(
    method: str,
    blob: _shim.Lent,
    specs: Mapping[str, bytes],
    given: Mapping[str, options.Value],
    data: _shim.NamedData,
) -> Delegate:
    """A delegate from its bytes; `specs` are options that it was exported with, `given`
    those it is loaded with."""
    chosen = options.current(given, specs)
    raw = memoryview(blob)
    gpu = device.get_device(chosen.adapter, timing.current() is not None)
    with gpu.lock:
        made = _file_planner(method, raw, gpu, chosen)
        if made is not None:
            checked = replace(
                chosen, check_kernels=chosen.check_kernels or not chosen.trust_plans
            )
            bound = made.upper_bound()
            delegate = Delegate(method, gpu, checked, bound, made.plan, data.get)
            if chosen.compile != "call":
                delegate.compile_ahead(iter(made.pipelines()), chosen.compile)
            return delegate
        return _planned(method, load_graph(raw), gpu, chosen, data.get)


def init_vulkan(
    method: str,
    blob: _shim.Lent,
    specs: Mapping[str, bytes],
    given: Mapping[str, options.Value],
    data: _shim.NamedData,
) -> Delegate:
    """A delegate from bytes that were written for ExecuTorch's Vulkan backend. What its
    `specs` say has been done as they were written, or is about Vulkan's textures."""
    chosen = options.current(given)
    if not chosen.vulkan_files:
        raise InvalidInput(
            "vulkan_files: must be on to load a file made for VulkanBackend, got False"
        )
    gpu = device.get_device(chosen.adapter, timing.current() is not None)
    with gpu.lock:
        graph, constants = vulkan.load(memoryview(blob), data.get)
        return _planned(method, graph, gpu, chosen, constants.get)


def _planned(
    method: str, graph: ir.Graph, gpu: Device, chosen: options.Options, get: GetData
) -> Delegate:
    """A delegate whose plans are made here."""
    caps = _caps(gpu, chosen)
    if chosen.autotune:
        path, is_checked = chosen.tuning_path, chosen.check_kernels
        tuned = TunedPlanner(graph, gpu, caps, path, is_checked)
        bound = tuned.upper_bound()
        plans = (tuned.plan, get, tuned.plan_with_values, graph)
        return Delegate(method, gpu, chosen, bound, *plans)
    planner = Planner(graph, caps)
    bound = planner.upper_bound()
    plans = (planner.plan, get, planner.plan_with_values, graph)
    delegate = Delegate(method, gpu, chosen, bound, *plans)
    if chosen.compile == "load":
        kernels = kernels_of(planner, planner.keep)
        delegate.compile_ahead(kernels, chosen.compile)
    elif chosen.compile == "background":
        kernels = _kernels_beside(gpu, planner, lambda: Planner(graph, caps))
        delegate.compile_ahead(kernels, chosen.compile)
    return delegate


def _with_types(plan: Plan, types: Sequence[int]) -> Plan:
    """A plan with ports of int64 where they are int32 and the arguments are not; the
    same one if there are none, or no types are given."""

    def typed(port: Port, kind: int) -> Port:
        is_wide = (port.dtype, kind) == (DType.INT32, DType.INT64)
        return replace(port, dtype=DType.INT64) if is_wide else port

    if not types:
        return plan
    count = len(plan.inputs)
    inputs = tuple(map(typed, plan.inputs, types[:count]))
    outputs = tuple(map(typed, plan.outputs, types[count:]))
    if (inputs, outputs) == (plan.inputs, plan.outputs):
        return plan
    return replace(plan, inputs=inputs, outputs=outputs)


def _caps(gpu: Device, chosen: options.Options) -> Caps:
    """What plans may assume: what the device has and the options allow."""
    return replace(
        gpu.caps,
        f16=gpu.caps.f16 and chosen.f16,
        subgroups=gpu.caps.subgroups and chosen.subgroups,
        is_cpu=gpu.caps.is_cpu and chosen.cpu_kernels,
        f16_accumulate=chosen.f16_accumulate,
    )


def _kernels_beside(
    gpu: Device, planner: Planner, make: Callable[[], Planner]
) -> Iterator[Pipeline]:
    """The kernels of all variants, for another thread: it plans by itself, so that
    calls, which may use `planner` meanwhile, need not wait for that."""

    def keep(variant: Variant) -> None:
        with gpu.lock:
            planner.keep(variant)

    own = make()
    own.upper_bound()
    yield from kernels_of(own, keep)


def _file_planner(
    method: str, blob: memoryview, gpu: Device, chosen: options.Options
) -> FilePlanner | None:
    """What makes plans of those in the file; None if the graph is to be planned."""
    is_wanted, caps = chosen.plans == "file", _caps(gpu, chosen)
    if not is_wanted:
        # For a CPU adapter constants can be packed here, which pays.
        is_auto = chosen.plans == "auto" and chosen.trust_plans and not caps.is_cpu
        if not is_auto or chosen.autotune:
            return None
    section = serialize.section(blob)
    try:
        if section is None:
            raise InvalidBlob(
                "delegate must carry plans, got none; export with"
                " WebGPUPartitioner(portable=True)"
            )
        plans = serialize.read(section)
        verify(plans)
        return FilePlanner(plans, fitting_profile(plans, caps, gpu.caps))
    except (InvalidBlob, UnfitDevice) as error:
        if is_wanted:
            raise
        _logger.warning("%s: its graph is planned: %s", method, error)
        return None


def is_available() -> bool:
    """True; raises NoAdapter, with what to do, if nothing could run."""
    device.check_available()
    return True


def set_options(values: Mapping[str, options.Value]) -> None:
    """Options for what is loaded from now on; `reset_state` acts at once."""
    values = dict(values)
    is_reset = values.pop("reset_state", False)
    options.override(values)
    if is_reset:
        reset_state()


def get_option(name: str) -> options.Value:
    return options.get(name)


def reset_state() -> None:
    """Gives the mutable buffers of all loaded methods their initial content."""
    for delegate in list(_delegates):
        delegate.reset_state()


def stats() -> Stats:
    devices = device.live_devices()
    counters = [gpu.counters for gpu in devices]

    def total(name: str) -> int:
        return sum(getattr(counter, name) for counter in counters)

    return Stats(
        adapter=", ".join(gpu.caps.name for gpu in devices),
        executor=options.current().executor,
        delegates=len(_delegates),
        compiling=sum(not each.is_compiled for each in list(_delegates)),
        buffers=total("buffers"),
        buffer_bytes=total("buffer_bytes"),
        pipelines=total("pipelines"),
        bind_groups=total("bind_groups"),
        created_buffers=total("created_buffers"),
        created_pipelines=total("created_pipelines"),
        created_bind_groups=total("created_bind_groups"),
        plans=_plans,
        native_submits=_shim.submissions(),
        native_upload_seconds=_shim.upload_seconds(),
        native_busy_seconds=_shim.busy_seconds(),
        native_read_seconds=_shim.read_seconds(),
    )


def log_failure(record: str) -> None:
    """Logs a failure's traceback; its one line is in ExecuTorch's log already."""
    _logger.debug("%s", record)


@functools.cache
def _is_native_possible() -> bool:
    """Whether the shim can use the loaded wgpu-native; warns once if not."""
    problem = _shim.bind_wgpu(device.native_library())
    if problem:
        warnings.warn(
            f"{problem}; plans are played by wgpu-py, which is slower",
            RuntimeWarning,
            stacklevel=2,
        )
    return not problem
