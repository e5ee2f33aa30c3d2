"""What `export` can export: a function's module, or a model that transformers reads.

A Source has all that torch.export needs, and nothing has been exported yet. Where
transformers is asked, it reads files only: nothing is downloaded.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..errors import InvalidInput, WebGPUError

# A text of unknown length has as many tokens as this at most.
_LENGTH = 512


@dataclass
class Source:
    """A module, its example inputs, and the dimensions that vary."""

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    names: list[str]  # of the inputs
    dynamic_shapes: Any = None  # as torch.export has them
    constants: dict[str, Any] = field(default_factory=dict)  # methods without inputs
    tokenizer: Any = None  # of the package `tokenizers`
    generates: bool = False  # whether it is a language model with a cache


@dataclass(frozen=True)
class Options:
    """Of language models."""

    half: bool  # whether weights and cache are float16
    context: int  # tokens that the cache holds, or fewer if the model takes fewer
    prompt: int  # tokens of a call


def load(what: str, options: Options) -> Source:
    """The source that the command line names."""
    path = Path(what)
    if path.suffix == ".gguf":
        return _gguf(path, options)
    if path.is_dir():
        return _folder(path, options)
    module, colon, function = what.rpartition(":")
    if not colon or not function.isidentifier():
        raise InvalidInput(
            "export: must be module:function, a folder with a config.json or a .gguf"
            f" file, got {what}"
        )
    return _function(module, function)


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Code of others runs here, and may raise anything; it becomes one line."""
    try:
        yield
    except WebGPUError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise WebGPUError(f"{what}, got {said}") from error


# -- module:function -------------------------------------------------------------------


def _function(module: str, name: str) -> Source:
    path = Path(module)
    with foreign(f"export: {module} must be a module that can be imported"):
        if path.suffix == ".py" or "/" in module:
            if not path.is_file():
                raise FileNotFoundError(f"no file {path}")
            sys.path.insert(0, str(path.resolve().parent))
            module = path.stem
        else:
            sys.path.insert(0, "")
        imported = importlib.import_module(module)
    function = getattr(imported, name, None)
    if not callable(function):
        raise InvalidInput(f"export: {module} must have a function {name}, got none")
    with foreign(f"export: {module}:{name}() must return a module and its inputs"):
        made = function()
    return _checked(f"{module}:{name}()", made)


def _checked(who: str, made: Any) -> Source:
    if (
        not isinstance(made, tuple)
        or len(made) not in (2, 3)
        or not isinstance(made[0], torch.nn.Module)
        or not isinstance(made[1], (tuple, list))
    ):
        kind = type(made).__name__
        if isinstance(made, tuple):
            kind = f"({', '.join(type(each).__name__ for each in made)})"
        raise InvalidInput(
            f"export: {who} must return (module, inputs) or (module, inputs,"
            f" dynamic_shapes), got {kind}"
        )
    module, inputs = made[0].eval(), tuple(made[1])
    names = _parameters(module.forward, len(inputs))
    return Source(module, inputs, names, made[2] if len(made) == 3 else None)


def _parameters(forward: Callable[..., Any], count: int) -> list[str]:
    """The names of so many arguments; of those behind a star, their numbers."""
    names: list[str] = []
    for each in inspect.signature(forward).parameters.values():
        if each.kind is each.VAR_POSITIONAL:
            break
        names.append(each.name)
    return [*names, *map(str, range(len(names), count))][:count]


# -- transformers ----------------------------------------------------------------------


def _transformers() -> Any:
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise WebGPUError(
            "export: a model of transformers needs that package, got"
            f" {error}; run `pip install transformers`"
        ) from error
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _folder(path: Path, options: Options) -> Source:
    hf = _transformers()
    if not (path / "config.json").is_file():
        raise InvalidInput(f"export: {path} must have a config.json, got none")
    with foreign(f"export: {path}/config.json must be a model's of transformers"):
        config = hf.AutoConfig.from_pretrained(path, local_files_only=True)
    name = (config.architectures or ["no architecture"])[0]
    made = getattr(hf, name, None)
    if made is None:
        raise InvalidInput(
            f"export: {path}/config.json must name a class of transformers in"
            f" `architectures`, got {name}"
        )
    generates = name.endswith("ForCausalLM")
    sample = {} if generates else _sample(config, made)
    with foreign(f"export: {path} must have the weights of {name}"):
        model = made.from_pretrained(
            path,
            local_files_only=True,
            dtype=torch.float16 if options.half and generates else torch.float32,
        ).eval()
    if not generates:
        return _forward(model, sample)
    file = path / "tokenizer.json"
    return _language_model(model, options, _tokenizer(file) if file.exists() else None)


def _gguf(path: Path, options: Options) -> Source:
    hf = _transformers()
    if not path.is_file():
        raise InvalidInput(f"export: {path} must be a file, got none")
    if not hf.utils.is_gguf_available():
        raise WebGPUError(
            "export: a .gguf needs the package gguf, got none; run `pip install gguf`"
        )
    where = {"gguf_file": path.name, "local_files_only": True}
    with foreign(f"export: {path} must be a GGUF file that transformers reads"):
        config = hf.AutoConfig.from_pretrained(path.parent, **where)
        dtype = torch.float16 if options.half else torch.float32
        model = hf.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        _fill(model, path)
        tokenizer = hf.AutoTokenizer.from_pretrained(path.parent, **where)
    return _language_model(model, options, tokenizer.backend_tokenizer)


def _fill(model: torch.nn.Module, path: Path) -> None:
    """Gives a model the weights of a GGUF file, as floats, without the package
    accelerate, which `from_pretrained(gguf_file=...)` asks for."""
    theirs = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    read = theirs.load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)
    tensors = read["tensors"]
    missing = model.load_state_dict(tensors, strict=False).missing_keys
    parameters = dict(model.named_parameters(remove_duplicate=False))
    filled = {id(parameters[name]) for name in tensors if name in parameters}
    # Of tied weights the file has one.
    absent = [name for name in missing if id(parameters.get(name)) not in filled]
    if absent:
        raise InvalidInput(f"export: {path} must have all weights, got no {absent[0]}")


def _tokenizer(path: Path) -> Any:
    return importlib.import_module("tokenizers").Tokenizer.from_file(str(path))


def _sample(config: Any, made: type) -> dict[str, torch.Tensor]:
    """Example inputs of a model that generates nothing, by name."""
    kind = made.main_input_name  # type: ignore[attr-defined]
    if not getattr(config, "is_encoder_decoder", False):
        if kind == "input_ids":
            tokens = torch.arange(1, 8)[None] % config.vocab_size
            return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        size = getattr(config, "image_size", None)
        if kind == "pixel_values" and size is not None:
            sides = [size, size] if isinstance(size, int) else list(size)
            channels = getattr(config, "num_channels", 3)
            return {kind: torch.rand(1, channels, *sides)}
    raise InvalidInput(
        "export: a model of transformers must be a language model (...ForCausalLM), an"
        " encoder of text, or one of pictures whose config has an image_size, got"
        f" {made.__name__}; write a function that returns the module and its inputs"
    )


class _Forward(torch.nn.Module):
    """A model of transformers with positional inputs and a tuple of tensors."""

    def __init__(self, model: torch.nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(names)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(**dict(zip(self.names, inputs)), return_dict=True)
        return tuple(each for each in found.values() if isinstance(each, torch.Tensor))


def _forward(model: Any, sample: Mapping[str, torch.Tensor]) -> Source:
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    shapes = None
    if "input_ids" in sample:
        most = min(_LENGTH, getattr(model.config, "max_position_embeddings", _LENGTH))
        length = torch.export.Dim("length", min=1, max=most)
        shapes = (tuple({1: length} for _ in sample),)
    inputs, names = tuple(sample.values()), list(sample)
    return Source(_Forward(model, names), inputs, names, shapes)


class LanguageModel(torch.nn.Module):
    """Tokens [1, S] at positions [S], which follow those of the call before, to the
    logits of the next token [1, 1, V]; the cache is a state of the program."""

    def __init__(self, model: Any, context: int) -> None:
        super().__init__()
        theirs = importlib.import_module("transformers.integrations.executorch")
        self.holder = theirs.TorchExportableModuleWithStaticCache(
            model, batch_size=1, max_cache_len=context
        )

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        cache = self.holder.static_cache
        for layer in cache.layers:
            layer.cumulative_length.copy_(input_pos[0])
        found = self.holder.model(
            input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        logits: torch.Tensor = found.logits
        return logits.float()


def _language_model(model: Any, options: Options, tokenizer: Any) -> Source:
    config = model.config.get_text_config()
    context = min(options.context, config.max_position_embeddings)
    # The exported cache has no window: beyond it, results would be others.
    context = min(context, getattr(config, "sliding_window", None) or context)
    prompt = min(options.prompt, context)
    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    with foreign(f"export: {type(model).__name__} must take a static cache"):
        module = LanguageModel(model, context).eval()
    length = torch.export.Dim("length", min=1, max=prompt)
    count = min(3, prompt)
    ends = model.generation_config.eos_token_id
    constants = {
        "get_max_seq_len": prompt,
        "get_max_context_len": context,
        "get_vocab_size": config.vocab_size,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": prompt > 1,
        "get_n_layers": config.num_hidden_layers,
        "get_bos_id": model.generation_config.bos_token_id or 0,
        "get_eos_ids": ends if isinstance(ends, list) else [ends or 0],
    }
    return Source(
        module,
        (torch.zeros(1, count, dtype=torch.long), torch.arange(count)),
        ["tokens", "input_pos"],
        ({1: length}, {0: length}) if prompt > 1 else None,
        constants,
        tokenizer,
        generates=True,
    )
