"""transformers' VITS: its parts, and speech of a length that is data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import transformers as hf
from harness import check_op
from torch.export import Dim

LETTERS = 38
# Frames of sound that there may be, as the program asserts.
FRAMES = 128
# Elements by a mask are of a number that is data: their ops stay on the CPU.
BY_MASK = {"aten.index.Tensor", "aten.index_put.default"}

CONFIG: dict[str, Any] = {
    "vocab_size": LETTERS, "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "ffn_dim": 48, "flow_size": 16, "spectrogram_bins": 17,
    "prior_encoder_num_flows": 2, "prior_encoder_num_wavenet_layers": 1,
    "posterior_encoder_num_wavenet_layers": 1, "duration_predictor_num_flows": 2,
    "depth_separable_num_layers": 1, "duration_predictor_filter_channels": 32,
    "upsample_initial_channel": 32, "upsample_rates": [4, 4],
    "upsample_kernel_sizes": [8, 8],
    "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3]],
    # Torch's random numbers are not to be had twice.
    "noise_scale": 0.0, "noise_scale_duration": 0.0,
    "speaking_rate": 0.25,
}  # fmt: skip


class Part(torch.nn.Module):
    """A part of the model, called by a function."""

    def __init__(
        self, part: torch.nn.Module, call: Callable[..., torch.Tensor]
    ) -> None:
        super().__init__()
        self.part = part
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.call(self.part, *inputs)


@pytest.fixture(scope="module")
def model() -> Any:
    # Durations depend on the weights, which are to be the same whatever ran before.
    torch.manual_seed(0)
    made = hf.VitsModel(hf.VitsConfig(**CONFIG)).eval()
    # What an untrained decoder gives is too loud: nearly all of it would be 1 or -1.
    made.decoder.conv_post.weight.data *= 0.1
    return made


def letters(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of nine letters, and a mask: only so many are the text."""
    mask = (torch.arange(9) < length).long()
    return torch.randint(1, LETTERS, (1, 9)), mask.unsqueeze(0)


def test_text_encoder(model: Any) -> None:
    def encode(encoder: Any, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return encoder(tokens, mask.unsqueeze(-1).float(), mask).prior_means

    encoder = Part(model.text_encoder, encode)
    check_op(encoder, *letters(9), others=[letters(5)], rtol=1e-3, atol=1e-4)


def test_flow_of_any_length(model: Any) -> None:
    def sizes(frames: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(1, 16, frames), torch.ones(1, 1, frames)

    frames = {2: Dim("frames", min=2, max=FRAMES)}
    check_op(
        Part(model.flow, lambda flow, x, mask: flow(x, mask, reverse=True)),
        *sizes(13),
        dynamic_shapes=((frames, frames),),
        others=[sizes(30), sizes(2)],
        rtol=1e-3,
        atol=1e-4,
    )


def test_decoder_of_any_length(model: Any) -> None:
    check_op(
        Part(model.decoder, lambda decoder, x: decoder(x)),
        torch.randn(1, 16, 13),
        dynamic_shapes=(({2: Dim("frames", min=2, max=FRAMES)},),),
        others=[(torch.randn(1, 16, 30),), (torch.randn(1, 16, 2),)],
        rtol=1e-3,
        atol=1e-4,
    )


def test_durations_of_given_noise(model: Any) -> None:
    def durations(predictor: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        with mock.patch.object(torch, "randn", return_value=noise):
            return predictor(x, torch.ones(1, 1, 9), reverse=True, noise_scale=1.0)

    def inputs(scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(1, 32, 9), scale * torch.randn(1, 2, 9)

    # The spline is for what is within 5 of 0: most, all or less than half.
    program = check_op(
        Part(model.duration_predictor, durations),
        *inputs(4.0),
        others=[inputs(0.1), inputs(10.0)],
        rtol=1e-3,
        atol=1e-4,
        delegated=False,
    )
    assert {fallback.op for fallback in program.report.fallbacks} == BY_MASK


def test_text_to_speech(model: Any) -> None:
    def speak(model: Any, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        spoken = model(tokens, mask)
        torch._check(spoken.spectrogram.shape[2] <= FRAMES)
        return spoken.waveform

    texts = [letters(length) for length in (9, 7, 4)]
    with torch.no_grad():
        sounds = {speak(model, *text).shape for text in texts}
    assert len(sounds) == len(texts), sounds
    program = check_op(
        Part(model, speak),
        *texts[0],
        others=texts[1:],
        rtol=1e-3,
        atol=1e-4,
        delegated=False,
    )
    left = {fallback.op for fallback in program.report.fallbacks}
    assert left == BY_MASK | {"aten.randn.default"}
