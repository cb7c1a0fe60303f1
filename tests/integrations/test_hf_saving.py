"""What saved configs say to others: no longest text where there is none, and where the classes are."""

import json
import os
import subprocess
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("lion.integrations.hf")
from lion.integrations.hf import LionCausalConfig, LionConfig, LionForCausalLM, LionModel  # noqa: E402  # noqa: E402
from lion.models.causal import CausalConfig  # noqa: E402
from lion.models.encoder import EncoderConfig  # noqa: E402
from tests.integrations.hf_small import KINDS, SIZES, small, tokens  # noqa: E402

AUTO = ("", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForCausalLM")
LIMIT = "max_position_embeddings"
both = pytest.mark.parametrize(("config", "longest"), [(LionConfig, 512), (LionCausalConfig, 1024)])


@both
def test_the_longest_text(config, longest, tmp_path):
    """Others cut texts at max_position_embeddings: it is there only if there are so many."""
    for given in ({}, {LIMIT: 7}):
        made = config(**given)
        assert not hasattr(made, LIMIT)
        made.save_pretrained(tmp_path)
        assert LIMIT not in json.loads((tmp_path / "config.json").read_text())
        assert not hasattr(transformers.AutoConfig.from_pretrained(tmp_path), LIMIT)
    assert config(positions="learned").max_position_embeddings == longest
    config(positions="learned", max_position_embeddings=7).save_pretrained(tmp_path)
    assert transformers.AutoConfig.from_pretrained(tmp_path).max_position_embeddings == 7


@both
def test_configs_of_before(config, longest, tmp_path):
    """They have a limit, whatever the positions."""
    config(**SIZES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    del content["auto_map"]
    path.write_text(json.dumps(content | {LIMIT: longest}))
    assert not hasattr(transformers.AutoConfig.from_pretrained(tmp_path), LIMIT)
    path.write_text(json.dumps(content | {LIMIT: longest, "positions": "learned"}))
    assert transformers.AutoConfig.from_pretrained(tmp_path).max_position_embeddings == longest


def test_configs_of_ours():
    for of, ours in ((LionConfig, EncoderConfig), (LionCausalConfig, CausalConfig)):
        for given in (ours(), ours(positions="learned", max_tokens=9)):
            made = of.of(given)
            assert (made.encoder() if of is LionConfig else made.causal()) == given


def test_a_long_text_is_read_to_its_end(tmp_path):
    """As sentence-transformers reads it: with the tokenizer's limit, lowered to the config's if that has one."""
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "a": 5, "b": 6}, unk_token="[PAD]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = small(LionModel).float()
    for part in (model, transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]")):
        part.save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    limit = min(tokenizer.model_max_length, getattr(config, LIMIT, tokenizer.model_max_length))
    tokenizer.model_max_length = limit
    batch = tokenizer(["a " * 1500, "b"], padding=True, truncation=limit < 10**9, return_tensors="pt")
    assert batch["input_ids"].shape == (2, 1500)
    states = transformers.AutoModel.from_pretrained(tmp_path)(batch["input_ids"], batch["attention_mask"])[0]
    assert states.shape == (2, 1500, 32)


def test_generation_has_no_end(caplog):
    model = small(LionForCausalLM, num_hidden_layers=1)
    ids = model.generate(tokens(1, 1020), max_new_tokens=8, pad_token_id=0)
    assert ids.shape == (1, 1028)
    assert "maximum length" not in caplog.text


LOADS = """
import json, sys
sys.modules["torchvision"] = None  # one that was built for another torch would not let transformers load
import torch, transformers
folders, ids = json.loads(sys.stdin.read())
assert not any(name.startswith("lion") for name in sys.modules)
for auto, folder in folders.items():
    model = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True)
    torch.save(model(torch.tensor(ids))[0], f"{folder}/output.pt")
    model.save_pretrained(f"{folder}/again")
"""


def test_a_process_that_has_not_imported_lion(tmp_path):
    folders, wanted = {}, {}
    for kind, name in zip(KINDS, AUTO, strict=True):
        auto = f"AutoModel{name}"
        model, folder = small(kind).float(), tmp_path / auto
        model.save_pretrained(folder)
        folders[auto], wanted[auto] = str(folder), model(tokens(2, 9))[0]
    root = os.path.dirname(os.path.dirname(sys.modules["lion"].__file__))
    subprocess.run(
        [sys.executable, "-c", LOADS],
        input=json.dumps([folders, tokens(2, 9).tolist()]),
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "PYTHONPATH": root},
        cwd=tmp_path,
        text=True,
        check=True,
    )
    for auto, want in wanted.items():
        folder = tmp_path / auto
        torch.testing.assert_close(torch.load(folder / "output.pt"), want)
        written = {path.name for path in folder.iterdir() if path.is_file()} - {"output.pt"}
        assert {path.name for path in (folder / "again").iterdir()} == written
        code = (folder / "modeling_lion.py").read_text()
        assert (folder / "again" / "modeling_lion.py").read_text() == code
        assert len(code) < 1000  # names to import: no copy of lion


def test_a_process_without_lion(tmp_path, monkeypatch):
    LionConfig(**SIZES).save_pretrained(tmp_path)
    code = compile((tmp_path / "modeling_lion.py").read_text(), "modeling_lion.py", "exec")
    names = {}
    exec(code, names)
    assert names["LionConfig"] is LionConfig
    monkeypatch.setitem(sys.modules, "lion", None)
    for name in ("lion.integrations", "lion.integrations.hf"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"this model is of the package lion-attention: pip install 'lion-attention"):
        exec(code, {})
