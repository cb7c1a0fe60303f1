"""Models' folders with one file damaged: they work exactly as before, or the file is named in a few lines.

A changed JSON file that is still JSON is somebody's edit, as is a vocabulary that is still text: other outputs are
right then. Whatever happens, nothing of the folder is executed: each has traps among its files.
"""

import contextlib
import io
import json
import os
import pickle
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.torture import Campaign, Lost
from tests.torture.children import Children

SECONDS = 60  # for an attempt
LINES, CHARACTERS = 4, 1500  # the longest message
WEIGHTS = ("model.safetensors", "model-")  # how the files begin that are to be as they were written
TEXTS = ["a lovely film of the actor", "the scene was dull and very poor", "A B c d e f"] * 20
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(" ".join(TEXTS).lower().split())]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


# The folders: run.json, and the model with its traps.


def _image(folder: Path) -> None:
    from PIL import Image

    from lion.models.saving import save_model
    from lion.models.vision import VisionConfig, VisionModel
    from lion.tasks.images import ImageTask
    from lion.train.config import Run

    config = VisionConfig(image_size=(16, 16), patch_size=8, dim=16, depth=2, heads=2, num_classes=3)
    save_model(VisionModel(config), folder / "model")
    known = {"mean": [0.5] * 3, "std": [0.5] * 3, "classes": ["a", "b", "c"]}
    _write_run(folder, Run(ImageTask(model=config), steps=1), known)
    Image.new("RGB", (16, 16), (200, 100, 50)).save(folder / "image.png")


def _elsewhere(folder: Path) -> None:
    """Weights without a checksum, and without the config."""
    _image(folder)
    path = folder / "model" / "model.safetensors"
    save_file(load_file(path), path)


def _text(folder: Path) -> None:
    from lion.data.tokenizers import train_wordpiece
    from lion.integrations.hf import LionConfig, LionForSequenceClassification
    from lion.models.saving import save_model
    from lion.tasks.text_classification import TextClassificationTask
    from lion.train.config import Run

    tokenizer = train_wordpiece(TEXTS, 90)
    config = LionConfig(**SIZES, vocab_size=tokenizer.vocab_size, id2label={0: "bad", 1: "good"})
    save_model(LionForSequenceClassification(config), folder / "model")
    tokenizer.save(folder / "model")
    task = TextClassificationTask(classes=("bad", "good"), model=config.encoder())
    _write_run(folder, Run(task, steps=1), {"classes": ["bad", "good"], "max_length": 32, "pairs": False})


def _causal(folder: Path, **options: Any) -> None:
    from lion.data.tokenizers import train_byte_bpe
    from lion.integrations.hf import LionCausalConfig, LionForCausalLM
    from lion.tasks.causal import CausalTask
    from lion.train.config import Run

    tokenizer = train_byte_bpe(TEXTS, 270)
    config = LionCausalConfig(**SIZES, vocab_size=tokenizer.vocab_size, eos_token_id=tokenizer.eos_id)
    LionForCausalLM(config).save_pretrained(folder / "model", **options)
    tokenizer.save(folder / "model")
    _write_run(folder, Run(CausalTask(model=config.causal()), steps=1), {})


def _parts(folder: Path) -> None:
    _causal(folder, max_shard_size="8KB")


def _tokens(folder: Path) -> None:
    from lion.integrations.hf import LionConfig, LionForTokenClassification

    config = LionConfig(**SIZES, vocab_size=len(WORDS), num_labels=3)
    LionForTokenClassification(config).save_pretrained(folder / "model")
    (folder / "model" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))


def _write_run(folder: Path, run: Any, known: dict[str, Any]) -> None:
    content = {"recipe": None, "run": run.to_json(), "to_predict": known}
    (folder / "run.json").write_text(json.dumps(content))


class _Pickled:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def _set_traps(model: Path, mark: Path) -> None:
    code = f"from pathlib import Path\n\nPath({str(mark)!r}).touch()\n"
    (model / "custom_generate").mkdir()
    for name in ("modeling_lion.py", "custom_generate/generate.py", "__init__.py"):
        (model / name).write_text(code)
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(_Pickled(mark)))


# How they are used: what comes out can be compared.


def _outputs(model: Any) -> Any:
    with torch.no_grad():
        if hasattr(model.config, "image_size"):
            return model.eval()(torch.linspace(-1, 1, 3 * 16 * 16).view(1, 3, 16, 16)).tolist()
        return model.eval()(torch.tensor([[5, 9, 12, 7, 11]]))[0].tolist()


def _load(folder: Path) -> Any:
    from lion.models.saving import load_model

    return _outputs(load_model(folder / "model"))


def _class(name: str) -> Any:
    from lion.integrations import hf

    return getattr(hf, name)


def _pretrained(name: str) -> Callable[[Path], Any]:
    return lambda folder: _outputs(_class(name).from_pretrained(folder / "model"))


def _auto(name: str) -> Callable[[Path], Any]:
    import transformers

    def load(folder: Path) -> Any:
        return _outputs(getattr(transformers, name.replace("Lion", "AutoModel")).from_pretrained(folder / "model"))

    return load


def _predict(given: str) -> Callable[[Path], Any]:
    from lion.train.evaluate import most_likely, predict

    return lambda folder: most_likely(predict(folder, [given.format(folder=folder)]))


def _generate(folder: Path) -> Any:
    from lion.tasks.causal import generate

    return generate(folder, "the film", tokens=8)


def _encode(folder: Path) -> Any:
    from lion.data.tokenizers import tokenizer_of_model

    return tokenizer_of_model(folder / "model", len(WORDS)).encode(TEXTS[:3])


def _uses(kind: str) -> dict[str, Callable[[Path], Any]]:
    if kind not in HUGGING_FACE:
        return {"load_model": _load, "predict": _predict("{folder}/image.png")}
    name, last = HUGGING_FACE[kind]
    return {"load_model": _load, "from_pretrained": _pretrained(name), "AutoModel": _auto(name), **last()}


HUGGING_FACE: dict[str, tuple[str, Callable[[], dict[str, Callable[[Path], Any]]]]] = {
    "text classifier": ("LionForSequenceClassification", lambda: {"predict": _predict(TEXTS[0])}),
    "causal model": ("LionForCausalLM", lambda: {"generate": _generate}),
    "causal model in parts": ("LionForCausalLM", lambda: {"generate": _generate}),
    "token classifier": ("LionForTokenClassification", lambda: {"tokenizer_of_model": _encode}),
}
MAKERS: dict[str, Callable[[Path], None]] = {
    "image model": _image,
    "image model of elsewhere": _elsewhere,
    "text classifier": _text,
    "causal model": _causal,
    "causal model in parts": _parts,
    "token classifier": _tokens,
}


# Mutations.


def _somewhere(content: bytes, chance: random.Random) -> tuple[int, int]:
    """A stretch, often a short one, often near the beginning."""
    start = chance.randrange(min(len(content), chance.choice((64, 1 << 12, 1 << 30))) or 1)
    return start, min(len(content), start + chance.choice((1, 2, 8, 100, 4096)))


def _flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 10, 400))):
        start, _ = _somewhere(content, chance)
        changed[start] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwrite(content: bytes, chance: random.Random) -> bytes:
    start, end = _somewhere(content, chance)
    return content[:start] + chance.choice((bytes(end - start), chance.randbytes(end - start))) + content[end:]


def _cut_out(content: bytes, chance: random.Random) -> bytes:
    start, end = _somewhere(content, chance)
    return content[:start] + content[end:]


def _insert(content: bytes, chance: random.Random) -> bytes:
    (start, end), (place, _) = _somewhere(content, chance), _somewhere(content, chance)
    new = chance.choice((content[start:end], chance.randbytes(end - start), b'"', b"[" * 100_000, b'{"a":', b"\0"))
    return content[:place] + new + content[place:]


def _truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _drop_line(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def _change_digit(content: bytes, chance: random.Random) -> bytes:
    places = [i for i, x in enumerate(content[: 1 << 14]) if 48 <= x < 58] or [0]
    place = chance.choice(places)
    return content[:place] + chance.choice((b"0", b"1", b"9", b"99999", b"-1", b".5", b"e9")) + content[place + 1 :]


def _replace(content: bytes, chance: random.Random) -> bytes:
    return chance.choice((b"", b"{}", b"[]", b"null", b"0", b'""', b"{", b"\xff\xfe", b"[" * 200_000, bytes(1000)))


def _encode_anew(content: bytes, chance: random.Random) -> bytes:
    text = content.decode("latin-1")
    return text.encode(chance.choice(("utf-16", "utf-8-sig", "utf-32")))


BYTES_MUTATED = (_flip, _overwrite, _cut_out, _insert, _truncate, _drop_line, _change_digit, _replace, _encode_anew)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**63, 10**30, 0.5, -0.0, 1e300, float("nan"), float("inf")),
    *("", "x", "../../etc/passwd", "lion", "float16", "\0", "é" * 200, [], {}, [[]], [None], {"": None}, {"a": 1}),
    *(["a"] * 10, {"0": "x"}, {"quant_method": "bitsandbytes"}, {"AutoModel": "modeling_lion.X"}),
)
NAMES = (  # that readers know
    *("", "num_labels", "quantization_config", "attn_implementation", "auto_map", "dtype", "torch_dtype", "id2label"),
    *("transformers_weights", "architectures", "fusion_config", "per_layer_config", "custom_generate", "problem_type"),
    *("pruned_heads", "tokenizer_class", "do_lower_case", "cache_implementation", "max_new_tokens", "rope_scaling"),
    *("tie_word_embeddings", "output_attentions", "return_dict", "is_encoder_decoder", "_name_or_path", "use_cache"),
)


def _change_json(content: bytes, chance: random.Random) -> bytes:
    plain = json.loads(content)
    places: list[tuple[Any, Any]] = []
    left = [plain]
    while left:
        one = left.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        places += [(one, key) for key in keys]
        left += [one[key] for key in keys if isinstance(one[key], dict | list)]
    inside, key = chance.choice(places)
    if chance.random() < 0.5:  # most are deep inside of vocabularies
        inside, key = plain, chance.choice(list(plain))
    match chance.randrange(4):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, dict):
            inside[chance.choice(NAMES)] = chance.choice(VALUES)
        case _:
            inside[key] = chance.choice(VALUES)
    return json.dumps(plain, indent=2).encode()


def _mutate(model: Path, chance: random.Random) -> tuple[str, bool]:
    """What was done, and whether other outputs are right now."""
    paths = sorted(path for path in model.iterdir() if path.is_file())
    important = [path for path in paths if path.suffix in (".json", ".safetensors", ".txt")]
    path = chance.choice(paths if chance.random() < 0.1 else important)
    if chance.random() < 0.05:
        path.unlink()
        if chance.random() < 0.5:
            return f"{path.name} removed", path.suffix == ".json" and "index" not in path.name
        path.mkdir()
        return f"{path.name} is a folder", path.suffix == ".json" and "index" not in path.name
    if chance.random() < 0.03:
        other = chance.choice(paths)
        path.write_bytes(other.read_bytes())
        return f"{path.name} is {other.name}", _is_edit(path)
    content = path.read_bytes()
    mutate = _change_json if path.suffix == ".json" and chance.random() < 0.5 else chance.choice(BYTES_MUTATED)
    path.write_bytes(mutate(content, chance))
    return f"{path.name} by {mutate.__name__[1:]}", _is_edit(path)


def _is_edit(path: Path) -> bool:
    if path.name.startswith(WEIGHTS) or path.suffix not in (".json", ".txt"):
        return False
    try:
        text = path.read_bytes().decode()
        return path.suffix == ".txt" or isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


# Attempts.


class Attempts:
    def __init__(self, root: Path):
        self.root, self.mark = root, root / "ran"
        self.expected: dict[tuple[str, str], Any] = {}

    def __call__(self, kind: str, seed: int, number: int) -> tuple[str, str]:
        """What was tried, and what is wrong with what happened, if anything."""
        chance = random.Random(f"{kind} {seed} {number}")
        template, folder = self.root / kind, self.root / f"{kind} {os.getpid()}"
        uses = _uses(kind)
        name = chance.choice(sorted(uses))
        if (kind, name) not in self.expected:
            self.expected[kind, name] = uses[name](template)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(template, folder)
        done, edit = _mutate(folder / "model", chance)
        file = done.split()[0]
        # Without a checksum other numbers are nobody's to notice, and what they lead to names no file.
        unchecked = kind == "image model of elsewhere" and file == "model.safetensors"
        return f"{done}, then {name}", self._problem(kind, name, folder, "" if unchecked else file, edit or unchecked)

    def _problem(self, kind: str, name: str, folder: Path, file: str, edit: bool) -> str:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                found = _uses(kind)[name](folder)
            if repr(found) != repr(self.expected[kind, name]) and not edit:
                return "other outputs"
        except (ValueError, OSError, ImportError) as problem:
            text = str(problem)
            if str(folder) not in text and file not in text:
                return f"no file is named: {type(problem).__name__}: {text[:CHARACTERS]}"
            if text.count("\n") >= LINES or len(text) > CHARACTERS:
                return f"{len(text)} characters in {1 + text.count(chr(10))} lines: {text[:CHARACTERS]}"
        except BaseException as problem:
            places = [frame.filename for frame in traceback.extract_tb(problem.__traceback__)]
            if name == "AutoModel" and not any("lion" in Path(place).parts for place in places):
                return ""  # transformers' own: no class of ours is known before it has read config.json
            return f"{type(problem).__name__}: {str(problem)[:CHARACTERS]}"
        return "code of the folder was executed" if self.mark.exists() else ""


def _quiet() -> None:
    """No hub, no progress bars, no warnings."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "critical"}
    torch.set_num_threads(1)
    import logging
    import warnings

    from lion.integrations import hf  # noqa: F401  it registers its models

    logging.disable()
    warnings.simplefilter("ignore")


def _make(root: Path, kinds: Any) -> None:
    from lion.models.saving import quietly

    torch.manual_seed(0)
    for kind in kinds:
        (root / kind).mkdir()
        with quietly():
            MAKERS[kind](root / kind)
        _set_traps(root / kind / "model", root / "ran")


def run(numbers: range, seed: int) -> list[Campaign]:
    """Of each kind of model."""
    with tempfile.TemporaryDirectory() as root:
        _make(Path(root), MAKERS)
        return [
            Campaign(f"model files: {kind}").all(
                Children(Path(root)).attempts(f"{__name__}:attempts", [root, kind, seed], numbers, seconds=SECONDS)
            )
            for kind in MAKERS
        ]


def attempts(given: list[Any]) -> Callable[[int], None]:
    root, kind, seed = given
    _quiet()
    attempt = Attempts(Path(root))

    def one(number: int) -> None:
        what, problem = attempt(kind, seed, number)
        if problem:
            raise Lost(f"{what}: {problem}")

    return one
