"""Fills README's generated sections: ops and models.

    python scripts/readme_tables.py [--check]

The models are those of test/models; each row names the test that runs it, and a
test checks that the sections are what this script writes.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"

# Published weights: what it is, what a person would look at, and the test.
PUBLISHED = (
    ("EfficientNet-Lite0", "a cat is a cat", "test_classifier_sees_a_cat"),
    (
        "all-MiniLM-L6-v2",
        "sentences that mean the same are near",
        "test_sentences_that_mean_the_same_are_near",
    ),
    ("U2-Netp", "the cut-out", "test_segmenter_cuts_the_astronaut_out"),
    (
        "Real-ESRGAN animevideov3",
        "the enlarged picture",
        "test_upscaler_beats_larger_pixels",
    ),
    (
        "Silero VAD",
        "where speech is",
        "test_voice_detector_hears_speech_and_silence",
    ),
    ("CREPE", "the pitch", "test_pitch_of_three_notes"),
    ("MTCNN", "the face", "test_face_is_found"),
    ("Whisper tiny.en", "the transcript", "test_transcript"),
    (
        "SmolLM2-135M-Instruct, 4-bit",
        "greedy tokens equal eager's",
        "test_smollm2_equals_eager",
    ),
    (
        "stories15M",
        "greedy tokens equal eager's",
        "test_the_plain_runtime_tells_what_eager_tells",
    ),
)


def ops() -> str:
    text = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")
    found = re.search(r"^(\d+ of the \d+ overloads .*?)\. The others:", text, re.M)
    assert found, "docs/ops.md must say how much of core ATen is covered"
    table = text[text.index("## ATen ops") : text.index("## Other namespaces")]
    count = len(re.findall(r"^\| `", table, re.M))
    return (
        f"{count} ATen ops, in float32, float16, bfloat16, int32, int64, int16, int8,"
        f" uint8 and bool where torch has them. {found[1]}."
    )


def models() -> str:
    tests = "".join(p.read_text() for p in (ROOT / "test" / "models").glob("test_*.py"))
    lines = ["| model, with its published weights | checked by |", "|---|---|"]
    for name, seen, test in PUBLISHED:
        assert f"def {test}(" in tests, f"{name} has no test {test}"
        lines.append(f"| {name} | {seen} |")
    names = []
    for kind in ("zoo", "text", "vision", "speech"):
        zoo = (ROOT / "test" / "models" / f"transformers_{kind}.py").read_text()
        names += re.findall(r'^    "([^"]+)": \w+,$', zoo[zoo.index("\nZOO") :], re.M)
    vision = (ROOT / "test" / "models" / "vision_zoo.py").read_text()
    found = re.findall(r'^    "([^"]+)": \(', vision[vision.index("\nZOO") :], re.M)
    lines += [
        "",
        f"With random weights, from transformers: {', '.join(names)};",
        f"from torchvision: {', '.join(found)}.",
    ]
    return "\n".join(lines)


def filled(text: str) -> str:
    """README with its sections written anew."""
    for name, section in (("ops", ops()), ("models", models())):
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = f"{before}{start}\n{section}\n{end}{after}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    old = README.read_text(encoding="utf-8")
    new = filled(old)
    if check:
        return int(old != new)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
