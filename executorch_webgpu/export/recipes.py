"""ExecuTorch's export recipes for this backend: a model in, a program out, in one call.

    from executorch.export import ExportRecipe, export
    from executorch_webgpu import WebGPURecipeType

    session = export(model, [inputs], ExportRecipe.get_recipe(WebGPURecipeType.FP16))
    session.save_pte_file("model.pte")

Importing this module registers the recipes. A recipe quantizes with torchao, as
docs/quantization.md does, and lowers with WebGPUPartitioner, to which further arguments
of `get_recipe` go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.export import (
    AOQuantizationConfig,
    BackendRecipeProvider,
    ExportRecipe,
    LoweringRecipe,
    QuantizationRecipe,
    RecipeType,
    recipe_registry,
)
from torch.utils import _pytree as pytree
from torchao.core.config import AOBaseConfig
from torchao.quantization import (
    Int8DynamicActivationIntxWeightConfig,
    IntxWeightOnlyConfig,
)
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.transform_module import register_quantize_module_handler

from .partitioner import WebGPUPartitioner

_log = logging.getLogger("executorch_webgpu")

# Weights of 4 bits that share a scale.
_GROUP_SIZE = 32
_INT4: torch.dtype = torch.int4  # type: ignore[attr-defined]


class WebGPURecipeType(RecipeType):
    """What a program computes in, and what its weights are."""

    FP32 = "webgpu_fp32"  # as the model is
    FP16 = "webgpu_fp16"  # floats in half the bits; inputs and outputs as they are
    INT8_STATIC = "webgpu_int8_static"  # PT2E, calibrated
    INT8_DYNAMIC = "webgpu_int8_dynamic"  # linear layers; tokens quantized in each call
    INT4_WEIGHT_ONLY = "webgpu_int4_weight_only"  # linear layers
    INT8_DYNAMIC_ACT_INT4_WEIGHT = "webgpu_8da4w"  # linear layers
    # Everybody's name for it, WebGPURecipeType["8DA4W"], which Python cannot spell.
    vars()["8DA4W"] = INT8_DYNAMIC_ACT_INT4_WEIGHT

    @classmethod
    def get_backend_name(cls) -> str:
        return "webgpu"


_WITH_GROUPS = (
    WebGPURecipeType.INT4_WEIGHT_ONLY,
    WebGPURecipeType.INT8_DYNAMIC_ACT_INT4_WEIGHT,
)


class WebGPURecipeProvider(BackendRecipeProvider):
    """Makes a recipe; `group_size` is for weights of 4 bits, `calibration_inputs` for
    INT8_STATIC, and all else an argument of WebGPUPartitioner."""

    @property
    def backend_name(self) -> str:
        return WebGPURecipeType.get_backend_name()

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        return list(WebGPURecipeType)

    def create_recipe(
        self, recipe_type: RecipeType, **kwargs: Any
    ) -> ExportRecipe | None:
        if recipe_type not in self.get_supported_recipes():
            return None
        own: dict[str, Any] = {}
        if recipe_type in _WITH_GROUPS:
            own["group_size"] = kwargs.pop("group_size", _GROUP_SIZE)
        if recipe_type is WebGPURecipeType.INT8_STATIC:
            own["calibration_inputs"] = kwargs.pop("calibration_inputs", None)
        try:
            partitioner = WebGPUPartitioner(**kwargs)
        except TypeError as error:
            raise ValueError(f"{recipe_type.value}: {error}") from error
        return ExportRecipe(
            name=recipe_type.value,
            quantization_recipe=_quantization(
                recipe_type, partitioner.report.not_quantized, **own
            ),
            lowering_recipe=LoweringRecipe(partitioners=[partitioner]),
            # As torch.export's own default: hooks and all that dynamo cannot trace.
            strict=False,
        )


def _quantization(
    recipe: RecipeType,
    left: list[str],
    group_size: int = _GROUP_SIZE,
    calibration_inputs: Iterable[tuple[Any, ...]] | None = None,
) -> QuantizationRecipe | None:
    if recipe is WebGPURecipeType.FP32:
        return None
    if recipe is WebGPURecipeType.FP16:
        return _of_torchao(HalfConfig(), lambda module, name: not name)
    if recipe is WebGPURecipeType.INT8_STATIC:
        return _static(calibration_inputs)
    if recipe is WebGPURecipeType.INT8_DYNAMIC:
        return _of_torchao(
            Int8DynamicActivationIntxWeightConfig(torch.int8, PerAxis(0)), _is_linear
        )
    if not isinstance(group_size, int) or group_size < 1:
        raise ValueError(
            f"{recipe.value}: group_size must be a positive integer, got {group_size}"
        )
    config = (
        IntxWeightOnlyConfig
        if recipe is WebGPURecipeType.INT4_WEIGHT_ONLY
        else Int8DynamicActivationIntxWeightConfig
    )
    return _of_torchao(
        config(_INT4, PerGroup(group_size)), _has_groups_of(group_size, left)
    )


def _of_torchao(
    config: AOBaseConfig, chosen: Callable[[torch.nn.Module, str], bool]
) -> QuantizationRecipe:
    return QuantizationRecipe(
        ao_quantization_configs=[AOQuantizationConfig(config, chosen)]
    )


def _static(calibration_inputs: Iterable[tuple[Any, ...]] | None) -> QuantizationRecipe:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    config = get_symmetric_quantization_config(is_per_channel=True)
    return QuantizationRecipe(
        quantizers=[XNNPACKQuantizer().set_global(config)],
        calibration_inputs_fn=(
            None if calibration_inputs is None else lambda: calibration_inputs
        ),
    )


def _is_linear(module: torch.nn.Module, name: str) -> bool:
    return isinstance(module, torch.nn.Linear)


def _has_groups_of(
    size: int, left: list[str]
) -> Callable[[torch.nn.Module, str], bool]:
    """Chooses linear layers whose columns are groups of that size; a line about each
    of the others goes into `left`, and into the log."""

    def chosen(module: torch.nn.Module, name: str) -> bool:
        if not isinstance(module, torch.nn.Linear):
            return False
        if module.in_features % size == 0:
            return True
        left.append(
            f"{name or 'the model'} is not quantized: group_size must divide its"
            f" columns, got {size} and {module.in_features}"
        )
        _log.warning("%s", left[-1])
        return False

    return chosen


@dataclass
class HalfConfig(AOBaseConfig):
    """For torchao's `quantize_`: the whole model in float16."""


def _halve(module: torch.nn.Module, config: HalfConfig) -> torch.nn.Module:
    """In place: parameters and buffers in float16, while callers give and get the types
    that they did."""
    module.half()
    module.register_forward_pre_hook(_halve_inputs, with_kwargs=True)
    module.register_forward_hook(_widen_outputs)
    return module


def _halve_inputs(
    module: torch.nn.Module, args: Any, kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    halved = pytree.tree_map_only(torch.Tensor, _to_half, (args, kwargs))
    return halved[0], halved[1]


def _widen_outputs(module: torch.nn.Module, args: Any, output: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, _from_half, output)


def _to_half(x: torch.Tensor) -> torch.Tensor:
    return x.half() if x.dtype is torch.float32 else x


def _from_half(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype is torch.float16 else x


register_quantize_module_handler(HalfConfig)(_halve)
recipe_registry.register_backend_recipe_provider(WebGPURecipeProvider())
