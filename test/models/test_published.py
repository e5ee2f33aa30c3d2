"""Published weights, judged by what a person would look at.

Every model is delegated whole and equals eager; then the cut-out, the transcript,
the pitch, the face or the class of a real picture or voice must be right. Those of the
gallery are its own files, which the tests in a browser play, too.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from browser_gallery import FOLDER
from gallery import pitch, shared, transcribe
from gallery.classify import Classifier
from harness import Program, compare, lower
from models import SentenceEmbedder, embedder_shapes, labels, picture
from published import crepe, mtcnn, u2net, upscaler, vad, whisper
from published.files import photo, speech

DIM = torch.export.Dim


def load(
    model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], shapes: object = None
) -> Program:
    """The model in the standard runtime, with nothing left on the CPU."""
    program = lower(model, inputs, shapes)
    assert program.report.complete, f"not all delegated:\n{program.report}"
    assert len(program.delegates) == 1
    return program


def of_gallery(name: str) -> shared.Loaded:
    """The same of a model of the gallery; exported once, for the browser as well."""
    folder, _ = shared.write(FOLDER, name)
    assert shared.check_delegated(folder / shared.PROGRAM)
    return shared.Loaded(folder / shared.PROGRAM)


def batch(most: int) -> tuple[dict[int, object]]:
    return ({0: DIM("batch", min=1, max=most)},)


@torch.no_grad()
def test_segmenter_cuts_the_astronaut_out():
    pixels = photo("astronaut.png", (160, 160))
    x = u2net.preprocess(pixels)
    model = u2net.U2Netp().eval()
    (mask,) = of_gallery("cutout")(x)
    expected = model(x)
    compare([mask], [expected], rtol=1e-3, atol=1e-3)
    inside, wanted = mask[0, 0] > 0.5, expected[0, 0] > 0.5
    assert (inside & wanted).sum() / (inside | wanted).sum() > 0.99
    assert 0.3 < inside.float().mean() < 0.7
    assert inside[20:50, 60:78].all(), "her face is foreground"
    assert not inside[:80, 112:].any(), "the wall and the rocket are background"


@torch.no_grad()
def test_upscaler_beats_larger_pixels():
    model = upscaler.Upscaler().eval()
    whole = photo("coffee.png")[None, :, 100:228, 200:328] / 255
    small = F.interpolate(whole, (32, 32), mode="area")
    narrow = small[..., :16].contiguous()
    program = of_gallery("enlarge")
    for x in (small, narrow):
        (result,) = program(x)
        compare([result], [model(x)], rtol=1e-3, atol=1e-3)

    def likeness(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(-10 * torch.log10((a - b).square().mean()))

    (result,) = program(small)
    pixels = F.interpolate(small, scale_factor=4.0)
    assert likeness(result, whole) > likeness(pixels, whole) + 1
    assert likeness(F.interpolate(result, (32, 32), mode="area"), small) > 30


@torch.no_grad()
def test_voice_detector_hears_speech_and_silence():
    silence = torch.zeros(16000)
    sound = torch.cat([silence, speech()[:48000], silence])
    # Two tensors: export takes one that is passed twice for a single input.
    hidden, cell = torch.zeros(1, 128), torch.zeros(1, 128)
    windows = vad.windows(sound).unsqueeze(1).contiguous()
    program = load(vad.VoiceDetector(), (windows[0], hidden, cell))
    published = vad.published()
    chances = []
    for window in windows:
        chance, hidden, cell = program(window, hidden, cell)
        wanted = published(window[:, vad.CONTEXT :], 16000)
        compare([chance], [wanted.reshape(1)], rtol=1e-3, atol=1e-3)
        chances.append(float(chance))
    second = 16000 // vad.CHUNK
    assert max(chances[:second]) < 0.1
    assert max(chances[-second // 2 :]) < 0.1
    spoken = chances[second:-second]
    assert sum(chance > 0.5 for chance in spoken) > len(spoken) // 3


@torch.no_grad()
def test_pitch_of_three_notes():
    model = pitch.Pitch().eval()
    time = torch.arange(4096) / 16000
    program = of_gallery("pitch")
    for note in (220.0, 440.0, 880.0):
        sound = torch.sin(2 * torch.pi * note * time)
        frames = sound.unfold(0, crepe.FRAME, pitch.HOP)
        hertz, sure = program(frames)
        compare([hertz, sure], model(frames), rtol=1e-3, atol=1e-4)
        assert (hertz / note - 1).abs().max() < 0.01
        assert sure.min() > 0.5


@torch.no_grad()
def test_face_is_found():
    pixels = photo("astronaut.png")
    models = (mtcnn.Proposal(), mtcnn.Refinement(), mtcnn.Output())
    # Export tells odd sizes from even ones, where the pool's last window is whole.
    height, width = DIM("height", min=8, max=80), DIM("width", min=8, max=80)
    sizes = {2: 2 * height, 3: 2 * width}
    programs = [
        load(models[0], (torch.randn(1, 3, 160, 160),), (sizes,)),
        load(models[1], (torch.randn(32, 3, 24, 24),), batch(32)),
        load(models[2], (torch.randn(32, 3, 48, 48),), batch(32)),
    ]

    def checked(number: int, x: torch.Tensor) -> list[torch.Tensor]:
        results = programs[number](x)
        compare(results, models[number](x), rtol=1e-3, atol=1e-3)
        return results

    boxes, points = mtcnn.find_faces(
        pixels,
        *(lambda x, number=number: checked(number, x) for number in range(3)),
        scales=(0.3, 0.21, 0.15, 0.1),
        limit=32,
    )
    expected, _ = mtcnn.find_faces(pixels, *models, (0.3, 0.21, 0.15, 0.1), 32)
    face = torch.tensor([181.0, 64.0, 265.0, 173.0])
    assert len(boxes) == len(expected) == 1
    assert mtcnn.overlap(boxes[0], expected) > 0.99
    assert mtcnn.overlap(boxes[0], face[None]) > 0.9
    left_eye, right_eye, nose = points[0, 0], points[0, 1], points[0, 2]
    assert left_eye[0] < nose[0] < right_eye[0]
    assert left_eye[1] < nose[1]


@torch.no_grad()
def test_transcript():
    encoder, decoder = whisper.Encoder().eval(), whisper.Decoder().eval()
    encode = transcribe.Encode(encoder, decoder)
    decode = transcribe.Decode(decoder)
    program = of_gallery("transcribe")
    sound = speech()
    states = transcribe.states_of(len(sound))
    padded = F.pad(sound, (0, states * transcribe.SAMPLES - len(sound))).unsqueeze(0)
    heard = program(padded, method="encode")
    compare(heard, encode(padded), rtol=1e-3, atol=1e-3)
    tokens = transcribe.greedy(program, *heard)
    wanted = transcribe.greedy(lambda *x, method: [decode(*x)], *heard)
    assert tokens == wanted
    assert whisper.text(tokens).strip() == (
        "Ever tried, ever failed. No matter, try again. Fail again, fail better."
    )


@torch.no_grad()
def test_classifier_sees_a_cat():
    x = picture("chelsea.png")
    (chances,) = of_gallery("classify")(x)
    compare([chances], [Classifier().eval()(x)], rtol=1e-3, atol=1e-4)
    assert labels()[int(chances.argmax())] in ("tabby", "tiger cat", "Egyptian cat")


@pytest.mark.parametrize(
    "dtype", [torch.float16, pytest.param(torch.float32, marks=pytest.mark.long)]
)
@torch.no_grad()
def test_sentences_that_mean_the_same_are_near(dtype):
    model = SentenceEmbedder()
    sentences = [
        "A cat is sleeping on the sofa.",
        "A kitten naps on the couch.",
        "The central bank raised interest rates again this year.",
    ]
    reference = model(*model.tokenize(sentences))
    if dtype is torch.float16:
        program, far = of_gallery("search"), 4e-3
    else:
        shapes = embedder_shapes(4, 32)
        program, far = load(model, model.tokenize(sentences), shapes), 1e-4
    (vectors,) = program(*model.tokenize(sentences))
    compare([vectors], [reference], rtol=1e-3, atol=far)
    same, other = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert same > 0.6 > other + 0.3
    for count in (1, 2, 1):
        inputs = model.tokenize(sentences[:count])
        compare([program(*inputs)[0]], [reference[:count]], rtol=1e-3, atol=far)
