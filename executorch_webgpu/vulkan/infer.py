"""Which sizes vary, and what all others are then: a draft -> a graph with symbols.

Enters: a draft, whose extents are the largest, for which the file was written. Leaves:
an ir.Graph as export makes it. A file does not say which sizes vary. So each extent of
an input is a symbol at first, and the ops say which of them are one, or have to be what
they are: a linear layer's columns are its weight's. What is left may vary, each by
itself.

The passes over the calls are repeated until one of them finds nothing more. Where a
rule cannot tell (`shapes.py`), the symbols behind the call's operands become the
largest extents: the file then runs at these alone, and other sizes are refused when
they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import ir
from ..errors import InvalidBlob, InvalidInput, Unsupported
from ..plan import registry
from . import sizes
from .calls import Draft, IntCall
from .shapes import rule_of
from .sized import Shape, Sized
from .sizes import Dim, Undecided

# What is not found out in as many passes over the calls is taken at its largest.
_MOST_PASSES = 12
# Sizes that may vary by themselves; a file with more runs at its largest sizes.
MOST_SYMBOLS = 16
_INT32 = (1 << 31) - 1

# How a rule may stumble over arguments that export would not write. The call is checked
# against its op's signature later, and planned.
_ACCIDENTS = (AttributeError, LookupError, TypeError, ValueError)


def infer(draft: Draft) -> ir.Graph:
    """The draft's graph with expressions for sizes."""
    inference = _Inference(draft)
    inference.run()
    return inference.graph()


class _Inference:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._values = draft.graph.values
        # The greatest of each symbol; None of an integer, which a file does not say.
        self._greatest: dict[str, int | None] = {}
        # Symbols that are something else, in terms of others.
        self._found: dict[str, Dim] = {}
        self._shapes: dict[int, Shape] = {}
        self._ints: dict[str, Dim] = {}
        self._has_changed = False

    def run(self) -> None:
        self._declare()
        for _ in range(_MOST_PASSES):
            self._has_changed = False
            self._walk()
            if not self._has_changed:
                break
        if self._has_changed or len(self._sized_symbols()) > MOST_SYMBOLS:
            self._fix_names(self._sized_symbols())
            self._walk()

    def graph(self) -> ir.Graph:
        """The graph, with what was found."""
        made = self._draft.graph
        for index, value in enumerate(self._values):
            if value.is_int:
                value.symbol = str(self._int(value.symbol))
            elif index in self._shapes:
                value.shape = tuple(map(_extent, self._shapes[index]))
        made.calls = [
            call.map_args(self._argument)
            for call in self._draft.calls
            if isinstance(call, ir.Call)
        ]
        made.symbols = self._ranges()
        made.is_loaded = True
        return made

    # -- passes --------------------------------------------------

    def _declare(self) -> None:
        """Symbols for what inputs may have."""
        for index in self._draft.graph.inputs:
            value = self._values[index]
            if value.is_int:
                self._greatest[value.symbol] = None
                continue
            for d, size in enumerate(value.bound):
                if size > 1:
                    self._greatest[f"s{index}_{d}"] = size

    def _walk(self) -> None:
        """Finds the sizes of all values from those of the inputs, in order."""
        self._ints = {}
        for index, value in enumerate(self._values):
            if not value.is_int:
                self._shapes[index] = value.bound
        for index in self._draft.graph.inputs:
            value = self._values[index]
            if value.is_int:
                self._ints[value.symbol] = self._now(sizes.symbol(value.symbol))
            else:
                self._shapes[index] = tuple(
                    self._now(sizes.symbol(f"s{index}_{d}")) if size > 1 else size
                    for d, size in enumerate(value.bound)
                )
        for call in self._draft.calls:
            if isinstance(call, IntCall):
                self._ints[call.name] = self._computed(call)
            else:
                for index, shape in zip(call.outputs, self._results(call)):
                    self._shapes[index] = shape

    def _results(self, call: ir.Call) -> Sequence[Shape]:
        """The extents of a call's results."""
        most: list[Shape] = [self._values[index].bound for index in call.outputs]
        args = [self._operand(arg) for arg in call.args]
        names = _names(_dims(args))
        if not names:
            return most
        written = self._written(call)
        try:
            sized = Sized(
                args, most[: len(most) - len(written)], self._equal, self._fix
            )
            made = [*rule_of(call.op)(sized), *written]
            made = [tuple(map(self._now, shape)) for shape in made]
            if len(made) == len(most) and all(map(self._agrees, made, most)):
                return made
        except (Undecided, *_ACCIDENTS):
            pass
        self._fix_names(self._sizing(call, args))
        return most

    def _written(self, call: ir.Call) -> list[Shape]:
        """The extents of what a call writes to, whose new content it also makes."""
        found = registry.find(call.op)
        positions = () if found is None else found.mutates
        refs = [call.args[position] for position in positions]
        return [self._shapes[ref.id] for ref in refs if isinstance(ref, ir.Ref)]

    def _sizing(self, call: ir.Call, args: Sequence[Any]) -> set[str]:
        """The symbols in a call's operands, but for integers that it reads as data."""
        found = registry.find(call.op)
        data = found.data_ints if found is not None else ()
        return _names(_dims([a for n, a in enumerate(args) if n not in data]))

    def _agrees(self, shape: Shape, most: Shape) -> bool:
        """Whether extents are, at their largest, what the file has. An integer whose
        greatest value is not known may get it here."""
        return len(shape) == len(most) and all(map(self._has_most, shape, most))

    def _has_most(self, size: Dim, most: Dim) -> bool:
        if isinstance(size, int):
            return size == most
        unknown = [name for name in size.names if self._greatest[name] is None]
        if unknown:
            if len(unknown) > 1:
                return False
            env = self._env(size.names - set(unknown))
            known = sizes.substitute(size, dict(env.items()))
            solution = sizes.solved(sizes.sub(known, most), unknown.__contains__)
            if solution is None or not isinstance(solution[1], int):
                return False
            self._greatest[unknown[0]] = solution[1]
            self._has_changed = True
        try:
            return sizes.at(size, self._env(size.names)) == most
        except (InvalidBlob, InvalidInput):
            return False

    def _env(self, names: Iterable[str]) -> dict[str, int]:
        found = ((name, self._greatest[name]) for name in names)
        return {name: most for name, most in found if most is not None}

    # -- arguments --------------------------------------------------

    def _operand(self, arg: ir.Arg) -> Any:
        """An argument as rules have it."""
        match arg:
            case ir.Ref(id=index):
                return self._shapes[index]
            case ir.Expr(text=name):
                return self._int(name)
            case list():
                return [self._operand(item) for item in arg]
        return arg

    def _argument(self, leaf: ir.Leaf) -> ir.Arg:
        """An argument as graphs have it."""
        if not isinstance(leaf, ir.Expr):
            return leaf
        size = self._int(leaf.text)
        return size if isinstance(size, int) else ir.Expr(str(size))

    def _int(self, name: str) -> Dim:
        found = self._ints.get(name)
        if found is None:
            raise InvalidBlob(f"Vulkan integer must be known, got {name}")
        return found

    def _computed(self, call: IntCall) -> Dim:
        args = [self._operand(arg) for arg in call.args]
        try:
            return self._now(_INT_RULES[call.op](*args))
        except (Undecided, *_ACCIDENTS) as error:
            names = _names(_dims(args))
            if not names:
                raise InvalidBlob(
                    f"Vulkan integer {call.name} ({call.op}) must be computed from"
                    f" numbers and sizes, got {error}"
                ) from None
            self._fix_names(names)
            return 0  # for this pass; the next one has numbers

    # -- what is found --------------------------------------------------

    def _now(self, size: Dim) -> Dim:
        """A size in terms of the symbols that are left."""
        return sizes.substitute(size, self._found)

    def _equal(self, a: Dim, b: Dim) -> Dim:
        """Makes two sizes one, and returns it; Undecided if that is not possible."""
        left, right = self._now(a), self._now(b)
        if left == right:
            return left
        if isinstance(left, int) and isinstance(right, int):
            raise Undecided(f"sizes must be equal, got {left} and {right}")
        solution = sizes.solved(sizes.sub(left, right), self._may_replace)
        if solution is None:
            raise Undecided(f"{left} and {right} must be one size")
        name, value = solution
        most = self._greatest[name]
        if most is not None and not self._has_most(value, most):
            raise Undecided(f"{name} must be at most {most}, got {value}")
        self._replace(name, value)
        return self._now(left)

    def _fix(self, size: Dim) -> None:
        self._fix_names(_names([size]))

    def _may_replace(self, name: str) -> bool:
        return name in self._greatest and name not in self._found

    def _replace(self, name: str, value: Dim) -> None:
        found = {name: value}
        self._found = {
            other: sizes.substitute(size, found) for other, size in self._found.items()
        }
        self._found[name] = value
        self._has_changed = True

    def _fix_names(self, names: Iterable[str]) -> None:
        """Gives symbols their greatest value, with all that they are compared with."""
        fixed = {left for name in names for left in _names([self._left(name)])}
        if not fixed:
            return
        before = -1
        while len(fixed) > before:
            before = len(fixed)
            for size in self._found.values():
                found = _names([size])
                fixed |= found if found & fixed else set()
        unknown = [name for name in sorted(fixed) if self._greatest[name] is None]
        if unknown:
            raise Unsupported(
                "VulkanBackend: the greatest value of an integer that decides a size"
                f" must follow from the sizes in the file, got none for {unknown[0]}"
            )
        env = self._env(fixed)
        for name, size in self._found.items():
            if _names([size]) & fixed:
                self._found[name] = sizes.at(size, env)
        self._found |= env
        self._has_changed = True

    def _left(self, name: str) -> Dim:
        """What a symbol, which may have been replaced since, is now."""
        return self._found.get(name, sizes.symbol(name))

    def _sized_symbols(self) -> set[str]:
        return {name for shape in self._shapes.values() for name in _names(shape)}

    def _ranges(self) -> dict[str, tuple[int, int]]:
        """The bounds of the symbols that are left. A size is at least 1; of an integer
        that no size depends on nothing is known."""
        used = self._sized_symbols()
        for size in self._ints.values():
            used |= _names([size])
        ranges = {}
        for name in sorted(used):
            most = self._greatest[name]
            is_size = name.startswith("s")
            ranges[name] = (1 if is_size else 0, _INT32 if most is None else most)
        return ranges


def _names(dims: Iterable[Any]) -> set[str]:
    return {
        name for size in dims if isinstance(size, sizes.Size) for name in size.names
    }


def _dims(args: Iterable[Any]) -> Iterable[Any]:
    """All sizes in arguments."""
    for arg in args:
        if isinstance(arg, (list, tuple)):
            yield from _dims(arg)
        else:
            yield arg


def _extent(size: Dim) -> ir.Dim:
    return size if isinstance(size, int) else str(size)


def _size_of(shape: Shape, dim: int) -> Dim:
    return shape[dim]


_INT_RULES: dict[str, Callable[..., Dim]] = {
    "sym_size.int": _size_of,
    "add": sizes.add,
    "sub": sizes.sub,
    "mul": sizes.mul,
    "floordiv": sizes.floordiv,
}
