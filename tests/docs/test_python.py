"""The blocks of Python in README.md and docs run: in the order of the page, in one namespace."""

import pytest
from torch import distributed

from lion.reproduce import exhibits
from tests.docs.pages import PAGES, ROOT, python_blocks

RUN_ELSEWHERE = {  # blocks that are not run here, by a part of them: the test that runs them
    '@register_task("brackets")': "tests/tasks/test_contributing.py",
    "def test_from_training": "tests/tasks/test_contributing.py",
    "def full(": "tests/ops/test_contributing.py",
    'BACKENDS["einsum"]': "tests/ops/test_contributing.py",
    "class Handler": "tests/export/test_runs.py",
}
COPIES = {  # blocks that are code of ours without its comments: the file
    '"gated_deltanet": Variant(': "lion/nn/variants.py",
    "class Complementary(Decay)": "lion/nn/decay.py",
    '"gated_deltanet": _with(': "lion/nn/decay.py",
    "def gated_deltanet(p, x, H": "tests/nn/naive_blocks.py",
}
SMALLER = {  # what takes long, and what there are no machines for: something of the same kind in its place
    'LionConfig("lion_s"': 'LionConfig("lion_s", hidden_size=32, num_attention_heads=2, num_hidden_layers=2',
    '{"epochs": "2"}': '{"epochs": "0", "steps": "2"}',
    'init_device_mesh("cuda", (4, 8)': 'init_device_mesh("cpu", (1, 1)',
}


@pytest.fixture
def process():
    """One process, for pages that speak of many."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(exhibits, "_exhibits", dict(exhibits._exhibits))


@pytest.fixture
def distilled(tmp_path):
    """The run that a page goes on with, small."""
    pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    from lion.integrations.hf import LionConfig, LionModel

    folder = tmp_path / "runs/distill.text/model"
    words = {"[PAD]": 0, "[UNK]": 1, "text": 2, "length": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 4}
    LionModel(LionConfig("lion_s", **sizes)).save_pretrained(folder)


NEEDS = {"docs/scale.md": "process", "docs/reproduce.md": "registered", "docs/text.md": "distilled"}


def is_listed(block, table):
    return next((name for part, name in table.items() if part in block), "")


def bare(code):
    """Lines without comments and indentation."""
    return [line for line in (x.split("  #")[0].strip() for x in code.splitlines()) if line]


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)])
def test_blocks_of_a_page(page, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page in NEEDS:
        request.getfixturevalue(NEEDS[page])
    namespace = {"__name__": "page"}
    for line, block in python_blocks(page):
        if is_listed(block, RUN_ELSEWHERE) or is_listed(block, COPIES):
            continue
        for ours, small in SMALLER.items():
            block = block.replace(ours, small)
        exec(compile("\n" * (line - 1) + block, page, "exec"), namespace)


def test_what_others_run():
    """They read the page, and the blocks are on it."""
    blocks = "".join(block for page in PAGES for _, block in python_blocks(page))
    for part, name in RUN_ELSEWHERE.items():
        assert part in blocks
        assert '.md"' in (ROOT / name).read_text()


def test_copies_are_up_to_date():
    found = [(name, block) for page in PAGES for _, block in python_blocks(page) if (name := is_listed(block, COPIES))]
    assert len(found) == len(COPIES)
    for name, block in found:
        assert "\n".join(bare(block)) in "\n".join(bare((ROOT / name).read_text())), name
