"""The first thing to run: every stage once, in seconds, without any download."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from harness import Program, check_op, lower

from executorch_webgpu import cli, last_error


class Classifier(torch.nn.Module):
    """A convolution, attention over its positions, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.attention = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = torch.nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = self.attention(x.flatten(2).transpose(1, 2))
        return self.head(x.mean(1)).softmax(-1)


@pytest.fixture(scope="module")
def table() -> Program:
    return lower(torch.nn.Embedding(7, 4), (torch.tensor([1, 2]),))


def test_a_model_is_delegated_whole_and_equals_eager() -> None:
    batch = torch.export.Dim("batch", min=1, max=4)
    check_op(
        Classifier().eval(),
        torch.randn(3, 3, 10, 12),
        dynamic_shapes=({0: batch},),
        others=[(torch.randn(n, 3, 10, 12),) for n in (4, 1)],
    )


def test_state_stays_between_calls() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    program = lower(Sum(), (torch.ones(5),))
    assert program.report.complete, str(program.report)
    for call in (1, 2, 3):
        assert program(torch.ones(5))[0].tolist() == [2.0 * call] * 5


def test_what_stays_on_the_cpu_has_a_reason() -> None:
    x = torch.randn(3, 3, dtype=torch.float64)
    program = check_op(lambda x: x.exp(), x, delegated=False)
    (left,) = program.report.fallbacks
    assert left.op == "aten.exp.default"
    assert "must not be float64, got float64" in left.reason


def test_a_bad_index_is_an_error_and_the_next_call_works(
    table: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError):
        table.run(torch.tensor([1, 7]))
    said = capfd.readouterr().err + str(last_error())
    assert "aten.embedding.default" in said
    assert "must be in [0, 7), got 7" in said
    assert table.run(torch.tensor([1, 6]))[0].shape == (2, 4)


def test_a_program_is_printed(
    table: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(table.buffer)
    assert cli.main(["dump", str(path), "--wgsl"]) == 0
    shown = capsys.readouterr().out
    assert "aten.embedding.default" in shown
    assert "fn main(" in shown
