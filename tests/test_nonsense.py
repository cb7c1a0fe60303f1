"""Nonsense on the command line and in the files of a run: one line that names the place, and never a traceback."""

import json
import shutil

import pytest

from lion.cli import main
from lion.configs import from_json
from lion.models.vision import VisionConfig
from lion.train.sampler import Sampler
from tests.train.runs import as_options

pytest.importorskip("accelerate")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "run"
    assert main(["train", "digits.lion_s", "--out", str(folder), *as_options(steps="2")]) == 0
    return folder


@pytest.fixture
def fails(capsys):
    def check(arguments, *parts):
        capsys.readouterr()
        assert main([str(x) for x in arguments]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("lion ")
        for part in parts:
            assert part in line

    return check


WHOLE = "expected a whole number from"
TRAINING = {
    "--model.dim 0": f"--model.dim is '0'; {WHOLE} 1 to 65,536.",
    "--model.heads 0": f"--model.heads is '0'; {WHOLE} 1 to 65,536.",
    "--model.dim 1.5": f"--model.dim is '1.5'; {WHOLE} 1 to 65,536.",
    "--model.drop_path -1": "--model.drop_path is '-1'; expected a number from 0 to below 1.",
    "--model.drop_path nan": "--model.drop_path is 'nan'; expected a number from 0 to below 1.",
    "--model.patch_size 99999": f"--model.patch_size is '99999'; {WHOLE} 1 to 1,024.",
    "--model.image_size 0,8": "--model.image_size is '0,8'; expected none: --image_size decides it.",
    "--image_size -8": f"--image_size is '-8'; {WHOLE} 0 to 16,384.",
    "--optim.betas 2,3": "--optim.betas is '2,3'; expected 2 values, each a number from 0 to below 1.",
    "--optim.eps 0": "--optim.eps is '0'; expected a number above 0 and up to 1.",
    "--optim.lr inf": "--optim.lr is 'inf'; expected a number above 0.",
    "--optim.weight_decay nan": "--optim.weight_decay is 'nan'; expected a number, 0 or more.",
    "--optim.schedule=": "--optim.schedule is ''; expected one of 'cosine', 'linear', 'constant'.",
    "--optim 3": "--optim is '3'; expected one of its fields, as --optim.lr.",
    "--workers -1": f"--workers is '-1'; {WHOLE} 0 to 1,024.",
    "--seed 1e99": f"--seed is '1e99'; {WHOLE} 0 to",
    "--batch 99999999999999999999": f"--batch is '99999999999999999999'; {WHOLE} 1 to 1,048,576.",
    "--batch 999999": "batch is 999,999, and there are 1,438 examples; expected at most 8 times as many, or 1,024.",
    "--keep 0": f"--keep is '0'; {WHOLE} 1 to 99,999,999.",
    "--steps -1": f"--steps is '-1'; {WHOLE} 0 to 99,999,999.",
    "--distill.temperature 0": "--distill.temperature is '0'; expected a number from 0.001 to 1e+06.",
    "--model.dim 65536 --model.depth 32": "parameters, and takes",
    "--\u2028x 3": "'--\\u2028x' is no field of this run; --show lists them all.",
}


def test_nothing_to_predict(fails, tmp_path):
    (tmp_path / "genome.fa").write_text(">one\n" + "ACGTTGCATA" * 200)
    model = ["--model.dim", "8", "--model.depth", "1", "--model.heads", "2", "--steps", "1", "--epochs", "0"]
    data = ["--data", tmp_path / "genome.fa", "--length", "32", "--block", "64", "--mask", "1e-30"]
    arguments = ["train", "dna", *data, *model, "--precision", "float32", "--out", tmp_path / "run"]
    fails(arguments, "lion train: ", "the eval set has nothing to predict; expected more data, or a larger")


@pytest.mark.parametrize("options", TRAINING)
def test_training(options, fails, tmp_path):
    arguments = ["train", "digits.lion_s", *as_options(steps="1"), *options.split(" "), "--out", tmp_path / "run"]
    fails(arguments, "lion train: ", TRAINING[options])
    assert not (tmp_path / "run").exists()


OTHERS = {
    "predict RUN x --best -1": f"lion predict: --best is '-1'; {WHOLE} 1 to 1,000,000,000.",
    "predict RUN x --best many": f"lion predict: --best is 'many'; {WHOLE}",
    "predict RUN .": "lion predict: ",
    "eval RUN --batch 0": f"lion eval: --batch is '0'; {WHOLE} 1 to 1,048,576.",
    "eval /dev/null": "lion eval: there is no run in /dev/null",
    "eval RUN --device moon": "lion eval: --device moon cannot be used: torch knows no such device.",
    "predict RUN x --device moon:1": "lion predict: --device moon:1 cannot be used: torch knows no such device.",
    "generate RUN --device moon": "lion generate: --device moon cannot be used: torch knows no such device.",
    "generate RUN --beams 0": f"lion generate: --beams is '0'; {WHOLE} 1 to 1,024.",
    "generate RUN --temperature nan": "lion generate: --temperature is 'nan'; expected a number, 0 or more.",
    "generate RUN --tokens -5": f"lion generate: --tokens is '-5'; {WHOLE} 1 to 1,000,000,000.",
    "generate RUN --seed -1": f"lion generate: --seed is '-1'; {WHOLE} 0 to",
    "bench layer --heads 0": f"lion bench layer: --heads is '0'; {WHOLE} 1 to 65,536.",
    "bench vision --pixels 0": f"lion bench vision: --pixels is '0'; {WHOLE} 1 to 16,384.",
    "bench text --lengths 99999999999": f"lion bench text: --lengths is '99999999999'; {WHOLE}",
    "bench dna x --orders -1": f"lion bench dna: --orders is '-1'; {WHOLE} 0 to 100.",
    "data listops --out x --counts 1 0 1": f"lion data listops: --counts is '0'; {WHOLE} 1 to",
    "demo --epochs inf": "lion demo: --epochs is 'inf'; expected a number from 0 to 1e+06.",
}


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands(command, fails, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(command.replace("RUN", str(finished)).split(), OTHERS[command])


EDITS = {  # a place in run.json, what is put there, and what is said
    "run.optim.lr": ("fast", "run.optim.lr is 'fast'; expected a number above 0."),
    "run.optim.decoupled": (1, "run.optim.decoupled is 1; expected true or false."),
    "run.optim": ([], "run.optim is []; expected an object."),
    "run.batch": (True, "run.batch is True; expected a whole number from 1 to 1,048,576."),
    "run.epochs": (float("nan"), "run.epochs is nan; expected a number from 0 to 1e+06."),
    "run.steps": (10**20, "run.steps is 100000000000000000000; expected a whole number from 0 to 99,999,999."),
    "run.precision": ("bfloat", "run.precision is 'bfloat'; expected one of 'float32', 'bfloat16'. Did you mean"),
    "run.task": (None, "run.task is None; expected an object."),
    "run.task.kind": ({}, "run.task.kind is {}; expected one of 'causal', 'dna',"),
    "run.task.modle": (1, "run.task: the field is 'modle'; expected one of"),
    "run.task.unit": ("x", "run.task: the field is 'unit'; expected one of"),
    "run.task.model.dim": ("x" * 500, "run.task.model.dim is 'xxxxx"),
    "run.task.model.image_size": ([8], "run.task.model.image_size is [8]; expected 2 values, each a whole number"),
    "run.task.model.features": (3, "run.task.model.features is 3; expected a text or null."),
    "run.task.augment.flip": ("yes", "run.task.augment.flip is 'yes'; expected true or false."),
    "run": (3, "run is 3; expected an object."),
    "recipe": (3, "recipe is 3; expected a text or null."),
    "to_predict": ([], "to_predict is []; expected an object."),
    "to_predict.std": ([0.0], "to_predict.std is [0.0]; expected a list, each of them a number above 0."),
}


@pytest.mark.parametrize("place", EDITS)
def test_run_json(place, fails, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    *outer, name = place.split(".")
    inner = content
    for part in outer:
        inner = inner[part]
    inner[name] = EDITS[place][0]
    path.write_text(json.dumps(content))
    fails(["eval", path.parent], f"lion eval: {path}: {EDITS[place][1]}")
    if place != "to_predict.std":  # which resuming makes anew
        fails(["train", "--resume", "--out", path.parent], f"lion train: {path}: {EDITS[place][1]}")


def test_names_of_classes_that_are_missing(fails, finished, tmp_path):
    from PIL import Image

    shutil.copytree(finished, tmp_path / "run")
    Image.new("L", (8, 8), 7).save(tmp_path / "image.png")
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    for classes in ([], ["a"]):
        content["to_predict"]["classes"] = classes
        path.write_text(json.dumps(content))
        message = f"to_predict.classes has {len(classes)} names; expected 10, as many as the model has classes."
        fails(["predict", path.parent, tmp_path / "image.png"], f"{path}: {message}")


@pytest.mark.parametrize("missing", ["run", "to_predict", "run.task"])
def test_keys_that_are_missing(missing, fails, finished, tmp_path):
    content = json.loads((finished / "run.json").read_text())
    del (content["run"] if "." in missing else content)[missing.split(".")[-1]]
    (tmp_path / "run.json").write_text(json.dumps(content))
    fails(["eval", tmp_path], f"{tmp_path}/run.json: {missing} is missing; expected an object.")


CONTENTS = {
    "empty": (b"", "run.json is damaged: it is no JSON"),
    "bytes": (b'{"run": "\xff"}', "run.json is damaged: it is no JSON ('utf-8' codec can't decode byte 0xff"),
    "deep": (b"[" * 100_000, "run.json is damaged: its lists and objects are nested too deep."),
    "digits": (b"9" * 5000, "run.json is damaged: it is no JSON"),
    "null": (b"null", "run.json is None; expected an object."),
    "list": (b"[1, 2]", "run.json is [1, 2]; expected an object."),
}


@pytest.mark.parametrize("what", CONTENTS)
def test_what_is_no_run_json(what, fails, tmp_path):
    (tmp_path / "run.json").write_bytes(CONTENTS[what][0])
    fails(["eval", tmp_path], f"{tmp_path}/{CONTENTS[what][1]}")


def test_a_folder_in_the_place_of_a_file(fails, tmp_path):
    (tmp_path / "run.json").mkdir()
    fails(["eval", tmp_path], "Is a directory", f"{tmp_path}/run.json")


OTHER_FILES = {  # content, and what is said
    "checkpoints/step-00000002/state.json": ('{"version": 1, "step": "x"}', "state.json is damaged: step is 'x'"),
    "environment.json": ("[1]", ""),
    "metrics.jsonl": ('[1]\n{"step": "x", "kind": "train"}\n{"step": 1, "kind": "eval", "loss": []}', ""),
}


@pytest.mark.parametrize("name", OTHER_FILES)
def test_other_files_when_resuming(name, fails, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    content, said = OTHER_FILES[name]
    (tmp_path / "run" / name).write_text(content)
    arguments = ["train", "--resume", "--out", str(tmp_path / "run")]
    if said:
        fails(arguments, said)
    else:  # what is not understood is left out
        assert main(arguments) == 0
        rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert all(isinstance(row["step"], int) for row in rows)


def test_a_model_that_is_much_larger_than_its_weights(fails, finished, tmp_path):
    """It is refused before there is memory for it."""
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "model" / "config.json"
    content = json.loads(path.read_text())
    content["config"]["dim"], content["config"]["depth"] = "wide", 3
    path.write_text(json.dumps(content))
    assert main(["eval", str(path.parents[1])]) == 0  # the weights have a config of their own
    fails(["predict", path.parents[1], path], "lion predict: ")
    (path.parent / "model.safetensors").unlink()
    from safetensors.torch import save_file
    from torch import zeros

    save_file({"norm.weight": zeros(16)}, path.parent / "model.safetensors")
    fails(["eval", path.parents[1]], "config.dim is 'wide'; expected a whole number from 1 to 65,536.")
    content["config"]["dim"], content["config"]["heads"] = 65536, 8
    path.write_text(json.dumps(content))
    fails(["eval", path.parents[1]], "does not fit its config", "norm.weight (16,), expected (65536,)")


def test_constructors_and_readers_say_the_same():
    with pytest.raises(ValueError, match=r"^depth is -1; expected a whole number from 0 to 1,024\.$"):
        VisionConfig(depth=-1)
    with pytest.raises(ValueError, match=r"^a: pool is 'token', but there is no class token"):
        from_json(VisionConfig, {"class_token": False}, "a")
    assert from_json(VisionConfig, {"mlp_ratio": 2, "orders": ["snake"], "features": None}) == VisionConfig(
        mlp_ratio=2.0, orders=("snake",)
    )


def test_batches_of_the_data_many_times_over():
    assert len(next(iter(Sampler(3, 1024, 0, range(1))))) == 1024
    with pytest.raises(ValueError, match="batch is 1,025, and there are 3 examples"):
        Sampler(3, 1025, 0, range(1))
