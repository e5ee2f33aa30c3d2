"""What the gallery's models share: export, run, describe, and do nothing twice."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib
import importlib.metadata
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .catalogue import CATALOGUE, EXAMPLES, ROOT, Entry

PROGRAM, ONNX, META, EXPECTED = "model.pte", "model.onnx", "model.json", "expected.json"
STAMP = ".stamp"


@dataclass
class Page:
    """What a model's `make` returns, besides the files that it has written.

    `methods` has, by name, the `inputs` and `outputs` of the program in order. Each is
    a `port`; what else a page must know of it is in its other fields, such as `image`.
    """

    methods: dict[str, dict[str, list[dict[str, Any]]]]
    expected: dict[str, Any]  # what Python gives for the samples
    more: dict[str, Any] = field(default_factory=dict)  # other fields of model.json


def port(name: str, type_: str, dims: list[Any], meaning: str, **more: Any) -> Any:
    """An input or output. A size is a number, or `size(...)` where it varies."""
    return {"name": name, "type": type_, "dims": dims, "meaning": meaning, **more}


def size(name: str, least: int, most: int, step: int = 1) -> dict[str, Any]:
    """A size that varies, in steps; the same name means the same size."""
    return {"name": name, "min": least, "max": most, "step": step}


def write(out: Path, name: str, onnx: bool = False) -> tuple[Path, float]:
    """Makes OUT/<name>, unless it is there and up to date; says how long it took."""
    folder = out / name
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with _locked(out / f".{name}.lock"):
        stamp = _stamp(name)
        if not _is_current(folder, stamp):
            partial = out / f".{name}.part"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            _make(partial, name)
            (partial / STAMP).write_text(stamp)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        if onnx and not (folder / ONNX).exists():
            _make_onnx(folder, name)
    return folder, time.perf_counter() - started


def _make(folder: Path, name: str) -> None:
    import torch

    with torch.no_grad():
        page: Page = importlib.import_module(f"gallery.{name}").make(folder)
    check(folder / PROGRAM, page)
    entry = CATALOGUE[name]
    _write_json(folder / EXPECTED, page.expected)
    others = [p for p in sorted(folder.iterdir()) if p.name not in (PROGRAM, META)]
    meta = {
        "format": 1,
        "name": name,
        "title": entry.title,
        "summary": entry.summary,
        "source": f"examples/gallery/{name}.py",
        "program": _file(folder / PROGRAM),
        "methods": page.methods,
        **page.more,
        "weights": asdict(entry.weights),
        "samples": [{"file": f, **asdict(o)} for f, o in entry.samples.items()],
        "files": [_file(path) for path in others],
    }
    missing = [f for f in entry.samples if not (folder / f).exists()]
    assert not missing, f"{name}: samples must be written, got no {missing}"
    _write_json(folder / META, meta)


def _make_onnx(folder: Path, name: str) -> None:
    """The same model for the peers of the benchmark, where there is one."""
    import torch

    module = importlib.import_module(f"gallery.{name}")
    if not hasattr(module, "onnx"):
        return
    use_peers()
    model, inputs, shapes = module.onnx()
    partial = folder / f".{ONNX}"
    with torch.no_grad():
        torch.onnx.export(
            model,
            inputs,
            str(partial),
            dynamo=True,
            dynamic_shapes=shapes,
            external_data=False,
            verbose=False,
        )
    partial.rename(folder / ONNX)
    meta = json.loads((folder / META).read_text())
    meta["onnx"] = _file(folder / ONNX)
    _write_json(folder / META, meta)


def use_peers() -> None:
    """Puts what `scripts/setup.sh bench` installs behind the environment's packages."""
    import sys

    packages = ROOT / ".venv" / "peers"
    if not packages.exists():
        raise SystemExit("gallery: --onnx needs onnxscript; run scripts/setup.sh bench")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time: tests that want the same model wait for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stamp(name: str) -> str:
    """Of all that decides what is written: sources and versions of packages."""
    entry = CATALOGUE[name]
    digest = hashlib.sha256()
    for path in _sources(name, entry):
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    package = entry.weights.package
    weights = () if package.startswith("npm ") else (package.partition("==")[0],)
    for used in ("torch", "executorch", *entry.packages, *weights):
        try:
            version = importlib.metadata.version(used)
        except importlib.metadata.PackageNotFoundError:
            raise SystemExit(
                f"gallery: {used} must be installed; run scripts/setup.sh test"
            ) from None
        digest.update(f"{used}=={version}".encode())
    return digest.hexdigest()


def _sources(name: str, entry: Entry) -> list[Path]:
    own = [EXAMPLES / "gallery" / f"{each}.py" for each in ("shared", "catalogue")]
    helpers = ("pictures", "sounds", "language", "eight_bit")
    own += [EXAMPLES / "gallery" / f"{each}.py" for each in (name, *helpers)]
    backend = (ROOT / "executorch_webgpu").rglob("*.py")
    schemas = (ROOT / "executorch_webgpu").rglob("*.fbs")
    return [
        *own,
        *(EXAMPLES / source for source in entry.sources),
        *sorted(p for p in backend if "_schema" not in p.parts),
        *sorted(schemas),
        *sorted((ROOT / "wgsl").rglob("*.wgsl")),
    ]


def _is_current(folder: Path, stamp: str) -> bool:
    try:
        if (folder / STAMP).read_text() != stamp:
            return False
        meta = json.loads((folder / META).read_text())
        files = [meta["program"], *meta["files"]]
        return all((folder / f["file"]).stat().st_size == f["bytes"] for f in files)
    except (OSError, ValueError, KeyError):
        return False


def _file(path: Path) -> dict[str, Any]:
    """A file as a page fetches it: `integrity` is that of the browsers' fetch."""
    data = path.read_bytes()
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return {"file": path.name, "bytes": len(data), "integrity": f"sha256-{digest}"}


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def export(
    methods: dict[str, tuple[Any, tuple[Any, ...], Any]],
    constants: dict[str, Any] | None = None,
) -> bytes:
    """A program that carries plans; each method is a module, inputs and shapes."""
    import torch
    from executorch.exir import to_edge_transform_and_lower

    from executorch_webgpu import WebGPUPartitioner

    exported, partitioners = {}, {}
    # With either, a trace asks whether a convolution's batch is below 16, and keeps to
    # the answer; `to_executorch` traces too.
    mkldnn = torch.backends.mkldnn.flags(enabled=False)
    with mkldnn, torch.backends.nnpack.flags(enabled=False):
        for name, (model, inputs, shapes) in methods.items():
            exported[name] = torch.export.export(model, inputs, dynamic_shapes=shapes)
            partitioners[name] = [WebGPUPartitioner(portable=True)]
        lowered = to_edge_transform_and_lower(
            exported, partitioner=partitioners, constant_methods=constants
        )
        program = bytes(lowered.to_executorch().buffer)
    for name, [partitioner] in partitioners.items():
        report = partitioner.report
        assert report.complete, f"{name} must be whole on the GPU, got\n{report}"
        assert not report.not_portable, f"{name}: {report.not_portable}"
    return program


class Loaded:
    """A program in ExecuTorch's standard runtime."""

    def __init__(self, path: Path) -> None:
        from executorch.runtime import Runtime

        # A method does not keep its program alive.
        self._program = Runtime.get().load_program(str(path))
        self._methods: dict[str, Any] = {}

    def __call__(self, *inputs: Any, method: str = "forward") -> list[Any]:
        import executorch_webgpu

        if method not in self._methods:
            loaded = self._program.load_method(method)
            assert loaded is not None, executorch_webgpu.last_error()
            self._methods[method] = loaded
        whole = [each.contiguous() for each in inputs]
        return list(self._methods[method].execute(whole))


_TYPES = {0: "uint8", 1: "int8", 3: "int32", 4: "int64", 5: "float16", 6: "float32"}
_TYPES[11] = "bool"
# What a player computes itself: sizes, and integers made of them.
_INTEGERS = ("aten::sym_size.int", "executorch_prim::")


def check(path: Path, page: Page) -> None:
    """Holds what a page is told against what is in the program: inputs and outputs have
    the types and the largest sizes that model.json says."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    assert check_delegated(path) == sorted(page.methods), path
    for plan in deserialize_pte_binary(path.read_bytes()).program.execution_plan:
        if plan.name not in page.methods:
            continue
        for kind, values in (("inputs", plan.inputs), ("outputs", plan.outputs)):
            tensors = [plan.values[index].val for index in values]
            real = [(_TYPES[int(t.scalar_type)], list(t.sizes)) for t in tensors]
            told = [
                (p["type"], [d["max"] if isinstance(d, dict) else d for d in p["dims"]])
                for p in page.methods[plan.name][kind]
            ]
            assert told == real, f"{path}: {plan.name} has {kind} {real}, not {told}"


def check_delegated(path: Path) -> list[str]:
    """The methods that compute something: each has one delegate, which carries plans,
    and nothing else but integers."""
    from executorch_webgpu.cli import cpu_ops, delegates
    from executorch_webgpu.portable import serialize

    data = path.read_bytes()
    for method, every in cpu_ops(data).items():
        ops = [op for op in every if not op.startswith(_INTEGERS)]
        assert not ops, f"{path}: {method} must leave no op to the CPU, got {ops}"
    found = delegates(data)
    for method, blob in found:
        assert serialize.section(blob) is not None, f"{method} must carry plans"
    return sorted(method for method, _ in found)
