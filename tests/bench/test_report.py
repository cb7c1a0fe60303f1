"""The demo's report: it is whole, it says what the numbers say, and its figures show what they should."""

import base64
import io
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from lion.bench.demo import Point
from lion.bench.report.learned import Digits, look
from lion.bench.report.page import Demo, FormResult, TrainedRun, write_report
from lion.models.saving import load_model, save_model
from lion.models.vision import VisionConfig, VisionModel
from lion.pages.figures import RAMPS, VOID, Axis, Line, listed, picture, plot, tag
from tests import SEED

SIZE = {"dim": 16, "depth": 2, "heads": 2, "patch_size": 2, "image_size": (8, 8), "in_channels": 1, "num_classes": 10}
RUNS = {"lion_s": (0.9613, 12.34), "lion_d": (0.9412, 11.0), "lion_lit": (0.8211, 9.5), "softmax": (0.9721, 10.0)}
FORMS = {
    "full": FormResult(0.9613, 0, 0.0, 0.512),
    "rnn": FormResult(0.9613, 0, 3.1e-6, 2.75),
    "chunk": FormResult(0.9613, 0, 1.2e-6, 0.613),
    "scan": FormResult(0.9613, 0, 2.3e-6, 0.311),
}
AGREEMENT = [
    ("LION-LIT, no decay", "full", "4.0e-16", "1.4e-15"),
    ("", "scan", "1.3e-15", "1.9e-15"),
    ("LION-S, selective decay", "full", "4.9e-16", "1.6e-15"),
    ("", "scan", "1.7e-15", "1.5e-15"),
]
QUICK = {"softmax": (0.001, 0.016, 0.256), "scan": (0.002, 0.008, 0.032), "full": (0.004, 0.064)}
SECTIONS = ("Training", "One model, four forms", "What it learned", "A mask", "What the forms cost")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    torch.manual_seed(SEED)
    found = {}
    for name, (accuracy, step_ms) in RUNS.items():
        folder = tmp_path_factory.mktemp(name)
        model = VisionModel(VisionConfig(variant=name, **SIZE))
        save_model(model, folder / "model")
        rows = [{"step": i, "kind": "train", "loss": 2.3 / i, "accuracy": 0.5} for i in range(10, 200, 10)]
        rows += [{"step": i, "kind": "eval", "loss": 1.0, "accuracy": accuracy * i / 200} for i in (50, 100, 150, 200)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found[name] = TrainedRun(folder, accuracy, step_ms, sum(x.numel() for x in model.parameters()))
    return found


def points(times=QUICK):
    return [Point(name, 256 * 4**i, s, (i + 1) << 21) for name, each in times.items() for i, s in enumerate(each)]


def page(tmp_path, runs, **changes):
    """The report's markup, and its words."""
    demo = Demo(runs, FORMS, AGREEMENT, points(), {"torch": "2.7.0", "threads": 2})._replace(**changes)
    path = tmp_path / "new" / "report.html"
    write_report(path, demo)
    markup = path.read_text(encoding="utf-8")
    return markup, Words.of(markup)


class Words(HTMLParser):
    """The text of a page; its tags must be balanced."""

    def __init__(self):
        super().__init__()
        self.open, self.found, self.links, self.ids = [], [], [], []

    @staticmethod
    def of(markup):
        parser = Words()
        parser.feed(markup)
        parser.close()
        assert parser.open == []
        return parser

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "srcset", "href", "action", "data")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.found.append(data)

    def __contains__(self, words):
        return words in re.sub(r"\s+", " ", "".join(self.found))


def test_report(tmp_path, runs):
    markup, words = page(tmp_path, runs)
    assert markup.startswith("<!doctype html>")
    assert len(markup) < 1.5e6
    for title in SECTIONS:
        assert f"<h2>{title}</h2>" in markup
    assert [link for link in words.links if link.startswith("#")] == [f"#{each}" for each in words.ids]
    assert len(set(words.ids)) == len(SECTIONS)
    for run in runs.values():
        assert f"{run.accuracy:.1%}" in words
        assert f"{run.step_ms:.1f}" in words
        assert f"{run.step_ms / 10:.2f}" in words
        assert f"{run.parameters:,}" in words
    for form in FORMS.values():
        assert f"{form.image_ms:.3g}" in words
        assert form.logits == 0 or f"{form.logits:.1e}" in words
    for _, _, output, gradients in AGREEMENT:
        assert output in words
        assert gradients in words
    assert "2.7.0" in words
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]


def test_nothing_is_loaded_from_anywhere(tmp_path, runs):
    markup, words = page(tmp_path, runs)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in words.links)
    for word in ("http:", "https:", "file:", "//", "url(", "@import", "<script", "<link", str(tmp_path)):
        assert word not in re.sub(r"base64,[\w+/=]+", "", markup)
    assert not any(str(run.folder) in markup for run in runs.values())


def test_light_dark_narrow_and_on_paper(tmp_path, runs):
    markup, _ = page(tmp_path, runs)
    for query in ("(prefers-color-scheme: dark) {", "(max-width: 40rem)", "print"):
        assert f"@media {query}" in markup
    assert 'name="viewport"' in markup
    sheet = re.search("<style>(.*)</style>", markup, re.DOTALL)[1]
    used = set(re.findall(r"var\(--([\w-]+)\)", markup)) - {"c"}
    assert used <= set(re.findall(r"--([\w-]+): ", sheet))
    assert sheet.count("{") == sheet.count("}")


def test_words_follow_the_numbers(tmp_path, runs):
    _, words = page(tmp_path, runs)
    assert "with the same predictions." in words
    assert "In every form, the trained LION-S predicts the same for each of the 359 digits" in words
    assert "differ by up to 3.1e-06, which is rounding. The fastest form for images this small is scan." in words
    assert "The accuracy of LION-S on the evaluation set is 96.1%, that of softmax attention 97.2%." in words
    assert "Compared with softmax, LION-D is 3.1 points below and LION-LIT is 15.1 points below: more than" in words
    assert "LION-S 1.23, LION-D 1.10 and LION-LIT 0.95 times softmax's time" in words
    assert "faster than softmax at 4,096 tokens8.0\N{MULTIPLICATION SIGN}32 ms against 256 ms" in words
    assert "scan takes 32 ms and 6.0 MiB, softmax 256 ms and 6.0 MiB" in words
    assert "Softmax is quicker than every form at 256 tokens, but not above." in words
    assert "multiplies scan's time by 2.0 and softmax's time by 4.0" in words


def test_words_when_it_went_the_other_way(tmp_path, runs):
    alike = {name: run._replace(accuracy=0.97 + 0.01 * (name == "lion_d")) for name, run in runs.items()}
    forms = FORMS | {"rnn": FormResult(0.95, 3, 0.02, 2.75)}
    slow = QUICK | {"softmax": (0.001, 0.002, 0.016)}
    _, words = page(tmp_path, alike, forms=forms, points=points(slow))
    assert "with nearly the same predictions." in words
    assert "Of 359 predictions of the trained LION-S, 3 of rnn differ from those of full; its logits differ" in words
    assert "rounding" not in words
    assert "356of 359" in words
    assert "No model is further from softmax than chance explains: one digit of 359 is 0.28%." in words
    assert "slower than softmax at 4,096 tokens2.0\N{MULTIPLICATION SIGN}32 ms against 16 ms" in words
    assert "faster" not in words
    assert "Softmax is quicker than every form at 4,096 tokens." in words


def test_no_length_in_common(tmp_path, runs):
    _, words = page(tmp_path, runs, points=[Point("scan", 256, 0.1, 1 << 20), Point("softmax", 512, 0.1, 1 << 20)])
    assert "have no length in common" in words
    assert "faster than" not in words


def test_everything_is_escaped(tmp_path, runs):
    odd = '<b onclick="x">&'
    markup, words = page(tmp_path, runs, environment={odd: odd}, agreement=[(odd, "full", odd, odd)])
    assert "<b" not in markup.replace("<br>", "").replace("<body>", "")
    assert odd in words
    assert tag("p", odd, title=odd).count("&lt;b onclick=&quot;x&quot;&gt;&amp;") == 2


@pytest.mark.parametrize("name", ["lion_s", "lion_d"])
def test_half_lives_and_masks(name, runs):
    digits = Digits.load()
    state = torch.random.get_rng_state()
    seen = look(runs[name].folder / "model", digits)
    assert torch.random.get_rng_state().equal(state)
    assert (seen.tokens, seen.grid, len(seen.layers)) == (17, (4, 4), 2)
    model = load_model(runs[name].folder / "model").eval()
    with torch.no_grad():
        x = model.blocks[0].norm1(model._embed(digits.images)[0])
        attention = model.blocks[0].attn
        log_decay = attention.tokens(x).log_decay
        assert seen.right.equal(model(digits.images).argmax(-1) == digits.labels)
    want = (math.log(0.5) / log_decay).reshape(-1, 2)
    layer = seen.layers[0]
    torch.testing.assert_close(layer.half_lives(), want)
    torch.testing.assert_close(0.5 ** (1 / want), log_decay.exp().reshape(-1, 2))
    assert not layer.attention._forward_pre_hooks
    assert not layer.attention.decay._forward_hooks
    masks = layer.masks(5)
    assert masks.shape == (2, 17, 17)
    torch.testing.assert_close(masks.sum(-1), torch.ones(2, 17))
    if name == "lion_s":
        bias = torch.tensor([2.0, 6.0])
        torch.testing.assert_close(seen.begin[0], math.log(0.5) / torch.nn.functional.logsigmoid(bias))
    else:  # the weight falls by the decay with every token of distance
        torch.testing.assert_close(masks[0, 3, 6] / masks[0, 3, 5], log_decay[0].exp())
        torch.testing.assert_close(seen.begin[0], want[0])  # nothing was trained


def test_axes():
    assert list(Axis.linear("loss", 0.2, 2.4).ticks.values()) == ["0.5", "1.0", "1.5", "2.0"]
    assert list(Axis.linear("step", 0, 9000).ticks.values()) == ["0", "2,000", "4,000", "6,000", "8,000"]
    assert list(Axis.linear("right", 0.42, 1.0, percent=True).ticks.values())[-2:] == ["90%", "100%"]
    log = Axis.powers("tokens", [100, 10000])
    assert log.ticks == {100: "100", 1000: "1,000", 10000: "10,000"}
    assert log.at(1000) == pytest.approx(0.5)
    assert list(Axis.powers("MiB", [0.1, 5]).ticks.values()) == ["0.1", "1"]


def test_a_plot_has_a_marker_with_words_for_every_point():
    x, y = Axis.linear("step", 0, 10), Axis.linear("loss", 0, 1)
    drawn = plot([Line("scan", [(0, 0), (10, 1)], ["first", "last"])], x, y, "a <plot>")
    Words.of(drawn)
    assert 'points="0.0,194.0 348.0,0.0"' in drawn
    assert drawn.count("<title>") == 2
    assert "a &lt;plot&gt;" in drawn


def test_a_picture_has_the_colours_of_its_ramp():
    from matplotlib.image import imread

    drawn = picture("lion_s", np.array([[0.0, 0.5, 1.0], [2.0, -1.0, 0.5]]), "a mask")
    dark, light = re.findall(r"base64,([\w+/=]+)", drawn)
    for ramp, png in zip(RAMPS["lion_s"], (light, dark), strict=True):
        pixels = (imread(io.BytesIO(base64.b64decode(png))) * 255).round().astype(int)
        found = [["#" + "".join(f"{x:02x}" for x in pixel) for pixel in row] for row in pixels]
        assert found == [list(ramp), [ramp[2], ramp[0], ramp[1]]]


def test_listed():
    assert [listed("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
