"""A convolution as all its kernels see it: three dimensions, each a `Window`.

Enters: an input [n, c, z, y, x] and weights [g, o, i, z, y, x] as strided views.
Leaves: the parameters that every kernel reads, and WGSL for the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...plan.recorder import Recorder, Tensor
from ...plan.wgsl_text import Param

AXES = "zyx"


@dataclass(frozen=True)
class Window:
    """One dimension: output o, stored at o * out_stride + out_first, is the sum over
    taps k of the inputs at o * stride - pad + k * dilation."""

    kernel: int
    stride: int
    pad: int
    dilation: int
    size: int  # of the input
    out: int  # outputs that this convolution makes
    out_size: int  # extent of the whole output
    out_stride: int = 1
    out_first: int = 0


@dataclass(frozen=True)
class Convolution:
    """x[n, c, z, y, x], weights [g, o, i, z, y, x]; `flip`: taps in reverse order."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    windows: tuple[Window, Window, Window]
    transposed: bool = False
    flip: bool = False

    @property
    def groups(self) -> int:
        return self.weight.shape[0]

    @property
    def filters(self) -> int:
        return self.weight.shape[1]

    @property
    def channels(self) -> int:
        return self.weight.shape[2]

    @property
    def images(self) -> int:
        return self.x.shape[0]

    def unflipped(self) -> Convolution:
        """The same with taps in the order of the weights: from the last pixel of an
        output's window to the first."""
        if not self.flip:
            return self
        z, y, x = (
            replace(w, pad=w.pad - (w.kernel - 1) * w.dilation, dilation=-w.dilation)
            for w in self.windows
        )
        return replace(self, windows=(z, y, x), flip=False)

    def turned(self) -> Convolution:
        """The same for kernels that compute neighbours along x together: a picture
        that is one pixel wide is taken as a line."""
        z, y, x = self.windows
        if x != Window(1, 1, 0, 1, 1, 1, 1) or y.out_size == 1:
            return self
        return replace(
            self,
            x=self.x.transpose(3, 4),
            weight=self.weight.transpose(4, 5),
            windows=(z, x, y),
        )


# Far beyond any image: sums of these and of sizes stay within 32 bits.
_LARGEST = 1 << 24


def check_windows(g: Recorder, dims: int, **numbers: Sequence[int]) -> None:
    """Requires that windows are some: kernels that go from tap to tap, by a dilation of
    0, would not end. A single number stands for all dimensions."""
    for name, values in numbers.items():
        g.require(
            len(values) in (1, dims), f"{name} must have 1 or {dims} numbers", values
        )
        least = 0 if name == "padding" else 1
        g.require(
            all(least <= value <= _LARGEST for value in values),
            f"{name} must be from {least} to {_LARGEST}",
            values,
        )


def bias_code(conv: Convolution) -> tuple[str, dict[str, Tensor]]:
    """bias_of(channel), and the tensor it reads, if there is one."""
    signature = "fn bias_of(channel: i32) -> f32"
    if conv.bias is None:
        return f"{signature} {{ return 0.0; }}", {}
    return f"{signature} {{ return get_bias(channel); }}", {"bias": conv.bias}


def place_code(conv: Convolution) -> tuple[str, dict[str, Param]]:
    """y_index(channel of all images, z, y, x): where an output is stored."""
    params: dict[str, Param] = {}
    at = {name: name for name in AXES}
    for name, w in zip(AXES, conv.windows):
        if w.out_stride != 1:
            at[name] = f"({name} * p.every_{name} + p.first_{name})"
            params |= {f"every_{name}": w.out_stride, f"first_{name}": w.out_first}
    code = f"""fn y_index(channel: i32, z: i32, y: i32, x: i32) -> i32 {{
  return ((channel * p.out_z + {at["z"]}) * p.out_y + {at["y"]}) * p.out_x + {at["x"]};
}}"""
    return code, params


def geometry(conv: Convolution) -> dict[str, Param]:
    """The parameters that every kernel reads."""
    params: dict[str, Param] = {
        "channels": conv.channels,
        "filters": conv.filters,
        "x_offset": conv.x.offset,
        "x_n": conv.x.strides[0],
        "x_c": conv.x.strides[1],
    }
    for axis, name in enumerate(AXES):
        w = conv.windows[axis]
        params |= {
            f"kernel_{name}": w.kernel,
            f"stride_{name}": w.stride,
            f"pad_{name}": w.pad,
            f"dilation_{name}": w.dilation,
            f"size_{name}": w.size,
            f"out_{name}": w.out_size,
            f"x_{name}": conv.x.strides[axis + 2],
        }
    return params
