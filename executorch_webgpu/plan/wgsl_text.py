"""WGSL: a `.wgsl` file plus a generated prelude gives the text of one kernel.

The prelude declares what the file leaves open: bindings, parameters, constants,
types, and for every tensor an accessor (`get_x(i)`, `put_y(i, v)`), so that a
kernel is written once for every element type. Values are computed as f32 or
i32; only accessors know what the buffer holds. A file defines what one invocation
computes, and the entry point `main` is supplied. The text depends on types and
constants, never on sizes, which are parameters: one pipeline serves all shapes. (The
sizes of tiles are constants; ops/matmul/gpu_tiles.py has the few that there are.)
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..ir.dtypes import DType, Storage

if TYPE_CHECKING:  # Python 3.10 has it elsewhere
    from importlib.resources.abc import Traversable

Param = int | float | Sequence[int]
Const = int | float | bool | str  # a string is the name of a type


@functools.cache
def load(name: str) -> str:
    """The text of `<name>.wgsl`, in whichever folder of wgsl/ it is."""
    return _files()[name].read_text(encoding="utf-8")


@functools.cache
def _files() -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for folder in resources.files("executorch_webgpu.wgsl").iterdir():
        for file in folder.iterdir() if folder.is_dir() else ():
            name = file.name.removesuffix(".wgsl")
            if found.setdefault(name, file) is not file:
                raise ValueError(f"wgsl: a file's name must be its own, got {name}")
    return found


@dataclass(frozen=True)
class Slot:
    """One tensor binding of a kernel."""

    name: str
    dtype: DType  # decides the type that accessors take and give
    storage: Storage
    write: bool = False
    vec4: bool = False  # four elements at a time: get_x4, put_y4
    post: str = ""  # the function applied to a value before it is stored
    stored: DType | None = None  # the type after `post`
    pair: bool = False  # `post` makes an element of two values: put_y(i, v, u)
    # The output has a place in a larger buffer: one "run" of its elements, or "runs".
    place: str = ""
    guard: str = ""  # the condition on which elements are stored
    torn: bool = False  # put_y4 stores one by one: the place is not aligned to vec4


def compute_type(dtype: DType) -> str:
    """The WGSL type in which kernels compute values of `dtype`."""
    return "f32" if dtype.is_float else "i32"


def wrap(dtype: DType, code: str) -> str:
    """`code`, an i32, reduced to the values that `dtype` has."""
    shift = {DType.INT8: 24, DType.INT16: 16}.get(dtype)
    if shift:
        return f"(({code}) << {shift}u) >> {shift}u"
    return f"({code}) & 255" if dtype is DType.UINT8 else code


def rounded(dtype: DType, code: str) -> str:
    """`code`, an f32, rounded to the values that `dtype` has."""
    name = {DType.BFLOAT16: "round_bf16", DType.FLOAT16: "round_f16"}.get(dtype)
    return f"{name}({code})" if name else code


def stored(dtype: DType, storage: Storage, code: str) -> str:
    """`code` as the value that a buffer holds; an f16 buffer rounds by itself."""
    if dtype.is_float:
        return code if storage is Storage.F16 else rounded(dtype, code)
    return wrap(dtype, code)


def assemble(
    kernel: str,
    slots: Sequence[Slot],
    params: Mapping[str, Param],
    consts: Mapping[str, Const],
    code: str,
    status: bool,
) -> str:
    """The text of a kernel: prelude, `code`, the file, the helpers that these call.

    `status` says that it reports, or has a guard, and so binds the status buffer.
    """
    aliases, numbers = [], []
    for name, value in consts.items():
        if isinstance(value, str):
            aliases.append(f"alias {name} = {value};")
        else:
            numbers.append(f"const {name} = {_literal(value)};")
    declared = "\n".join([*aliases, *numbers])
    return _text(kernel, tuple(slots), _fields(params), declared, code, status)


# A new shape gives the same texts as the one before: only parameters differ. What
# a text depends on is known without making it; a model has some tens of texts.
@functools.lru_cache(maxsize=1024)
def _text(
    kernel: str,
    slots: tuple[Slot, ...],
    params: tuple[tuple[str, str], ...],
    declared: str,
    code: str,
    status: bool,
) -> str:
    uses_f16 = any(slot.storage is Storage.F16 for slot in slots)
    lines = ["enable f16;"] if uses_f16 else []
    lines += [declared] if declared else []
    for index, slot in enumerate(slots):
        access = "read_write" if slot.write else "read"
        element = f"vec4<{slot.storage.value}>" if slot.vec4 else slot.storage.value
        lines.append(
            f"@group(0) @binding({index}) var<storage, {access}>"
            f" {slot.name}: array<{element}>;"
        )
    count = len(slots)
    if status:
        lines.append(
            f"@group(0) @binding({count}) var<storage, read_write>"
            " status: array<atomic<u32>, 4>;"
        )
        count += 1
    if params:
        lines.append(_params_struct(params))
        lines.append(f"@group(0) @binding({count}) var<uniform> p: Params;")
    lines += [_accessors(slot) for slot in slots]
    text = "\n".join([*lines, code, load(kernel)])
    text += _entry(text)
    return f"{text}\n{_library(text)}"


def _entry(text: str) -> str:
    """`main`, for a kernel that only defines what one invocation computes."""
    declared = _declared(text)
    if "main" in declared:
        return ""
    by_group = "group_invocation" in declared
    return load("main_group_invocation" if by_group else "main_invocation")


# Files of helpers: a kernel gets those that it calls, and no others.
LIBRARIES = (
    *("common", "math", "special", "arithmetic", "exact", "status"),
    *("accumulators", "guarded", "mask", "medians"),
)
_ITEM = re.compile(
    r"^(?:fn (\w+)\((?:.*\}|[\s\S]*?^\})|const (\w+)\b.*;)$", re.MULTILINE
)
_COMMENT = re.compile(r"//.*")
_DECLARED = re.compile(r"\bfn (\w+)")
# A function that is called, or a constant, whose name is in capitals. A variable may
# have a helper's name without needing it.
_USED = re.compile(r"\b[A-Za-z_]\w*(?=\s*\()|\b[A-Z][A-Z\d_]*\b")


@functools.cache
def _items() -> dict[str, tuple[str, frozenset[str]]]:
    """The call graph of the helpers: name -> text, and the helpers that it uses."""
    text = "\n".join(load(name) for name in LIBRARIES)
    found: dict[str, str] = {}
    for match in _ITEM.finditer(text):
        name = match[1] or match[2]
        if name in found:
            raise ValueError(f"wgsl: a helper's name must be its own, got {name}")
        found[name] = match[0]
    return {
        name: (body, frozenset(_used(body) & found.keys()))
        for name, body in found.items()
    }


def _used(text: str) -> set[str]:
    """The functions and constants that a text needs from elsewhere."""
    return set(_USED.findall(_COMMENT.sub("", text))) - _declared(text)


def _declared(text: str) -> set[str]:
    return set(_DECLARED.findall(_COMMENT.sub("", text)))


def _needed(text: str) -> set[str]:
    """The helpers that a text uses, and those that they need in turn; what the text
    declares itself is not the library's."""
    items = _items()
    own = _declared(text)
    needed: set[str] = set()
    pending = _used(text) & items.keys()
    while pending:
        name = pending.pop()
        needed.add(name)
        pending |= items[name][1] - needed - own
    return needed


def _library(text: str) -> str:
    """The helpers that a kernel needs: drivers compile every function they see."""
    needed = _needed(text)
    return "\n".join(body for name, (body, _) in _items().items() if name in needed)


@functools.lru_cache(maxsize=1024)
def reports_in(code: str) -> bool:
    """Whether code calls `report` (status.wgsl), itself or through other helpers."""
    return "report" in _needed(code)


@functools.lru_cache(maxsize=1024)
def reports(kernel: str, code: str) -> bool:
    """The same of a whole kernel."""
    return "report" in _needed(f"{code}\n{load(kernel)}")


def _accessors(slot: Slot) -> str:
    name, kind = slot.name, compute_type(slot.dtype)
    at = f"place_{name}(i)" if slot.place else "i"
    if slot.vec4:
        scalar, vector = f"{name}[{at} >> 2u][{at} & 3]", f"{name}[{_four(slot)}]"
        four = f"vec4<{kind}>"
        text = f"fn get_{name}(i: i32) -> {kind} {{ return {kind}({scalar}); }}\n"
        text += f"fn get_{name}4(i: i32) -> {four} {{ return {four}({vector}); }}"
    else:
        text = f"fn get_{name}(i: i32) -> {kind} {{ return {kind}({name}[{at}]); }}"
    if slot.place:
        text = f"{_place_code(slot)}\n{text}"
    return f"{text}\n{_putters(slot, at)}" if slot.write else text


def _putters(slot: Slot, at: str) -> str:
    """put_y, or put_y4; with `torn`, both, the second by the first."""
    name, kind = slot.name, compute_type(slot.dtype)
    final = slot.dtype if slot.stored is None else slot.stored
    element = slot.storage.value
    if not slot.vec4:
        given = ("v", "u") if slot.pair else ("v",)
        made = f"{slot.post}({', '.join(('i', *given))})" if slot.post else "v"
        value = stored(final, slot.storage, made)
        body = _inside(slot, "i", f"{name}[{at}] = {element}({value});")
        arguments = ", ".join(["i: i32", *(f"{one}: {kind}" for one in given)])
        text = f"fn put_{name}({arguments}) {{ {body} }}"
        if slot.torn:
            puts = " ".join(f"put_{name}(i * 4 + {k}, v[{k}]);" for k in range(4))
            text += f"\nfn put_{name}4(i: i32, v: vec4<{kind}>) {{ {puts} }}"
        return text
    assert not slot.pair, f"{name}: two values make one element, not four"
    components = [
        f"{slot.post}(i * 4 + {k}, v[{k}])" if slot.post else f"v[{k}]"
        for k in range(4)
    ]
    components = [stored(final, slot.storage, component) for component in components]
    plain = not slot.post and components[0] == "v[0]"
    value = "v" if plain else f"vec4<{compute_type(final)}>({', '.join(components)})"
    body = _inside(slot, "i * 4", f"{name}[{_four(slot)}] = vec4<{element}>({value});")
    return f"fn put_{name}4(i: i32, v: vec4<{kind}>) {{ {body} }}"


def _four(slot: Slot) -> str:
    """The index, in the array of vec4, of the four elements from 4i on."""
    return f"place_{slot.name}(i * 4) >> 2u" if slot.place else "i"


def _place_code(slot: Slot) -> str:
    """place_y: from an index of the tensor to the index in its buffer."""
    place = f"p.place_{slot.name}[0]"
    at = f"i + {place}.y"
    if slot.place == "runs":
        at += f" + (i / {place}.z) * ({place}.w - {place}.z)"
    return f"fn place_{slot.name}(i: i32) -> i32 {{ return {at}; }}"


def _inside(slot: Slot, index: str, statement: str) -> str:
    """`statement`, skipped if the slot's guard does not hold, and behind the tensor's
    end if it has a place: kernels that store four at a time reach there, and would
    overwrite other elements."""
    conditions = [slot.guard] if slot.guard else []
    if slot.place:
        conditions.append(f"{index} < p.place_{slot.name}[0].x")
    return (
        f"if ({' && '.join(conditions)}) {{ {statement} }}" if conditions else statement
    )


def _literal(value: int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    return f"{value!r}f"


def _fields(params: Mapping[str, Param]) -> tuple[tuple[str, str], ...]:
    """Name and type of every field of the struct that holds the parameters."""
    return tuple((name, _field_type(value)) for name, value in _ordered(params))


def _field_type(value: Param) -> str:
    if isinstance(value, (int, float)):
        return "i32" if isinstance(value, int) else "f32"
    return f"array<vec4<i32>, {max(1, -(-len(value) // 4))}>"


def _params_struct(params: Sequence[tuple[str, str]]) -> str:
    fields = [f"  {name}: {kind}," for name, kind in params]
    readers = [
        f"fn {name}_at(d: i32) -> i32 {{ return p.{name}[d >> 2u][d & 3]; }}"
        for name, kind in params
        if kind.startswith("array")
    ]
    return "\n".join(["struct Params {", *fields, "}", *readers])


def _ordered(params: Mapping[str, Param]) -> list[tuple[str, Param]]:
    """Scalars first, then lists, which uniforms want as vec4."""
    return sorted(params.items(), key=lambda p: not isinstance(p[1], (int, float)))


def param_words(params: Mapping[str, Param]) -> list[tuple[str, int | float]]:
    """The words of the struct that `assemble` declares for the same params, each with
    its parameter's name."""
    words: list[tuple[str, int | float]] = []
    for name, value in _ordered(params):
        if isinstance(value, (int, float)):
            words.append((name, value))
            continue
        words += [("", 0)] * (-len(words) % 4)
        words += [(name, each) for each in value] or [("", 0)]
        words += [("", 0)] * (-len(words) % 4)
    return words + [("", 0)] * (-len(words) % 4)


def pack_params(words: Sequence[tuple[str, int | float]]) -> bytes:
    """The bytes of parameters; `Unsupported` if an integer does not fit its word."""
    kinds = ["f" if isinstance(value, float) else "i" for _, value in words]
    try:
        return struct.pack(f"<{''.join(kinds)}", *(value for _, value in words))
    except (struct.error, OverflowError):
        return b"".join(_pack_word(name, value) for name, value in words)


def _pack_word(name: str, value: int | float) -> bytes:
    try:
        return struct.pack("<f" if isinstance(value, float) else "<i", value)
    except OverflowError:  # beyond float32: infinite, as torch rounds it
        return struct.pack("<f", float("inf") if value > 0 else -float("inf"))
    except struct.error:
        raise Unsupported(f"{name} must fit 32 bits, got {value}") from None
