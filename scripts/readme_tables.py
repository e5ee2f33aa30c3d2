"""Writes README's numbers (ops, models, speed), docs/models.md and docs/speed.svg.

    python scripts/readme_tables.py [--check]

Ops are counted in docs/ops.md. Models are what the zoos of test/models declare, and
published ones, each with the test that runs it. Speed is what docs/performance.md says
of the last run. A test checks that all of it is what this script writes.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT / folder) for folder in ("", "test", "test/cpp", "test/models", "examples")
]

# ruff: noqa: E402, all of these are found by the path above
import test_llm
import test_published as published_tests
import test_stories
import transformers_speech
import transformers_text
import transformers_vision
import transformers_zoo
import vision_zoo

from benchmarks import published, report

DOCS = ROOT / "docs"


# With published weights: the name, what a person would look at, and the test.
PUBLISHED = (
    (
        "EfficientNet-Lite0",
        "a cat is a cat",
        published_tests.test_classifier_sees_a_cat,
    ),
    (
        "all-MiniLM-L6-v2",
        "sentences that mean the same are near",
        published_tests.test_sentences_that_mean_the_same_are_near,
    ),
    ("U2-Netp", "the cut-out", published_tests.test_segmenter_cuts_the_astronaut_out),
    (
        "Real-ESRGAN animevideov3",
        "the enlarged picture",
        published_tests.test_upscaler_beats_larger_pixels,
    ),
    (
        "Silero VAD",
        "where speech is",
        published_tests.test_voice_detector_hears_speech_and_silence,
    ),
    ("CREPE", "the pitch", published_tests.test_pitch_of_three_notes),
    ("MTCNN", "the face", published_tests.test_face_is_found),
    ("Whisper tiny.en", "the transcript", published_tests.test_transcript),
    (
        "SmolLM2-135M-Instruct, 4-bit",
        "greedy tokens equal eager's",
        test_llm.test_smollm2_equals_eager,
    ),
    (
        "stories15M",
        "greedy tokens equal eager's",
        test_stories.test_the_plain_runtime_tells_what_eager_tells,
    ),
)
TRANSFORMERS = [
    *transformers_zoo.ZOO,
    *transformers_text.ZOO,
    *transformers_text.LONG,
    *transformers_vision.ZOO,
    *transformers_vision.LONG,
    *transformers_speech.ZOO,
]


def ops() -> str:
    text = _text(DOCS / "ops.md")
    found = re.search(r"^(\d+ of the \d+ overloads .*?)\. The others:", text, re.M)
    assert found, "docs/ops.md must say how much of core ATen is covered"
    table = text[text.index("## ATen ops") : text.index("## Other namespaces")]
    count = len(re.findall(r"^\| `", table, re.M))
    return (
        f"{count} ATen ops, in float32, float16, bfloat16, int32, int64, int16, int8,"
        f" uint8 and bool where torch has them. {found[1]}."
    )


def models() -> str:
    return (
        f"{len(PUBLISHED)} models with their published weights,"
        f" {len(TRANSFORMERS)} architectures of transformers and"
        f" {len(vision_zoo.ZOO)} of torchvision run whole on the GPU and equal eager"
        " PyTorch in the tests: [docs/models.md](docs/models.md)."
    )


def model_list() -> str:
    lines = [
        "| model, with its published weights | checked by | test |",
        "|---|---|---|",
    ]
    for name, checked_by, test in PUBLISHED:
        lines.append(f"| {name} | {checked_by} | `{test.__module__}.{test.__name__}` |")
    return "\n".join(
        [
            *lines,
            "",
            f"With random weights, from transformers: {', '.join(TRANSFORMERS)}.",
            "",
            f"With random weights, from torchvision: {', '.join(vision_zoo.ZOO)}.",
        ]
    )


def written() -> dict[Path, str]:
    """The files that this script keeps, with their content written anew."""
    speed = published.read(_text(DOCS / "performance.md"))
    readme = _text(ROOT / "README.md")
    sections = {"ops": ops(), "models": models(), "speed": published.summary(speed)}
    for name, content in sections.items():
        readme = report.replaced(readme, name, content)
    listed = report.replaced(_text(DOCS / "models.md"), "models", model_list())
    return {
        ROOT / "README.md": readme,
        DOCS / "models.md": listed,
        DOCS / "speed.svg": published.chart(speed),
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = {path: text for path, text in written().items() if _text(path) != text}
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)} {'is stale' if check else 'written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
