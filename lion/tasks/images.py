"""Image classification."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.data import fetch, lion_data_folder, to_fetch
from lion.data.augment import Augment, Mixup
from lion.data.digests import digest
from lion.data.findings import BadData
from lion.limits import CountOrAll, PixelsOrAll, Positive, Share
from lion.machine import to_train
from lion.models.positions import spanning
from lion.models.registry import MODELS
from lion.models.vision import VisionConfig, VisionModel
from lion.recipes import register_recipe
from lion.tasks import Batch, Examples, Input, Known, Prediction, Shown, Trained, WrongRun, cached, register_task
from lion.tasks._labelled import SIMPLE, LabelledTask, Plain, to_skip
from lion.train.config import Optim, Run
from lion.train.distill import Distill, distillation_loss, load_teacher

if TYPE_CHECKING:
    from lion.data.images import ImageSet

OF_DATA = {"model.image_size": "--image_size"} | dict.fromkeys(("model.num_classes", "model.in_channels"), "the data")


@dataclass(frozen=True)
class KnownImages(Known):
    mean: tuple[float, ...] = (0.0,)  # of each channel
    std: tuple[Positive, ...] = (1.0,)


LARGEST = 64  # side of one's own images, if none is given: time grows with their pixels
SMALL = 32  # the same for a simple model


@register_task("images")
@dataclass(frozen=True)
class ImageTask(LabelledTask):
    dataset: str = "digits"  # "folder": your own; or digits, mnist, cifar10, cifar100, imagenet
    data: str = ""  # your folder with a subfolder for each class; or where a known set is
    image_size: PixelsOrAll = 0  # pixels along both sides, to which images are resized; 0: as they are
    tokens: CountOrAll = 0  # about so many patches of an image, by which their size is chosen; 0: by model.patch_size
    model: VisionConfig = field(default_factory=VisionConfig)
    augment: Augment = field(default_factory=Augment)
    mixup: Mixup = field(default_factory=Mixup)
    smoothing: Share = 0.0  # of labels: so much of each goes to all classes alike
    distill: Distill = field(default_factory=Distill)
    skip_bad: bool = False  # leave out pictures of a folder that cannot be decoded
    by_content: bool = True  # hold copies of a picture out together; false: as runs of earlier versions did

    numbers = False
    share = "a fifth"
    unit = "image"
    tunable = ("augment", "mixup", "smoothing", "distill")
    decided = OF_DATA
    known = KnownImages
    usage = "lion predict {run} photo.png"
    reads = "file"

    def resolved(self) -> "ImageTask":
        if self.dataset == "folder" and not self.data and not (lion_data_folder() / "folder").is_dir():
            raise ValueError(
                "there is no data; expected a folder with a subfolder for each class, as pets/cat/1.jpg and "
                "pets/dog/2.jpg: lion train images --data pets"
            )
        if self.dataset == "folder" and not self.image_size:
            return replace(self, image_size=self._usual_side()).resolved()
        images = self._load("test")
        size = images.size or (self.image_size or 224, self.image_size or 224)
        model = replace(self.model, num_classes=len(images.classes), in_channels=images.channels, image_size=size)
        if self.tokens:
            model = replace(model, patch_size=_patch(min(size), self.tokens))
        patches = math.prod(-(-side // model.patch_size) for side in size)
        return replace(self, model=spanning(model, patches))

    def _usual_side(self) -> int:
        from lion.data.image_folders import usual_side

        return min(usual_side(Path(self.data).expanduser()), LARGEST)

    def make_model(self) -> nn.Module:
        model = to_train(lambda: VisionModel(self.model))
        model.set_distilled_training(self.distill.kind != "none")
        return model

    def train_set(self, seed: int) -> Examples:
        return self._load("train").with_augmentation(self.augment, seed)

    def eval_set(self) -> Examples:
        return self._load("test")

    def loss(self, model: nn.Module, batch: Batch, *, seed: int, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        batch = self.mixup(batch, seed, step, self.model.num_classes)
        output = model(batch["image"])
        logits, distilled = output if isinstance(output, tuple) else (output, output)
        target = batch.get("target", batch["label"])
        loss = F.cross_entropy(logits, target, label_smoothing=self.smoothing)
        if self.distill.kind != "none":
            with torch.no_grad():
                wanted = load_teacher(self.distill.teacher).to(logits.device)(batch["image"])
            part = distillation_loss(distilled, wanted, self.distill)
            loss = (1 - self.distill.alpha) * loss + self.distill.alpha * part
        right = (logits.argmax(-1) == batch["label"]).float().mean()
        return loss, {"accuracy": right}

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["image"])

    @property
    def metrics(self) -> tuple[str, ...]:
        return super().metrics if self.dataset == "folder" else ("accuracy",)

    def plain(self) -> Plain | None:
        if self.dataset != "folder":
            return None
        train, test = self._load("train"), self._load("test")
        some = np.random.default_rng(0).permutation(len(train))[:SIMPLE]
        return Plain("images", _pixels(train, some), _pixels(test, np.arange(len(test))))

    def source(self) -> str:
        return self.data or f"the set {self.dataset}"

    def held_out(self) -> str:
        train, test = (getattr(self._load(split), "root", None) for split in ("train", "test"))
        if test != train:
            return f"all of {test}"
        return super().held_out() if test else "its test set"

    def notes(self) -> Mapping[str, str]:
        return self._load("train").notes

    def names_of_classes(self) -> tuple[str, ...]:
        return tuple(self._load("train").classes)

    def shown(self, index: int, examples: Any) -> Shown:
        """The image as the model sees it: resized, and cropped to its middle."""
        mean, std = (torch.tensor(x)[:, None, None] for x in (examples.mean, examples.std))
        pixels = examples.__getitems__([(0, index)])["image"][0] * std + mean  # [C, H, W], 0 to 1
        pixels = pixels.clamp(0, 1).mul(255).round().byte().expand(3, -1, -1).permute(1, 2, 0)
        return Shown("image", pixels.numpy(), examples.path(index))

    def digests(self) -> dict[str, str]:
        if self.distill.kind == "none":
            return {}
        return {"teacher": digest(*load_teacher(self.distill.teacher).state_dict().values())}

    def to_predict(self) -> Known:
        images = self._load("test")
        return KnownImages(tuple(images.classes), tuple(images.mean), tuple(images.std))

    def test_set(self, trained: Trained, path: str) -> Examples:
        """The images below a folder, with a subfolder for each class, read as `predict` does."""
        from lion.data.images import FileSet

        config, known = _inputs_of_model(trained)[0], trained.known
        folder, size, channels = Path(path).expanduser(), config.image_size, config.in_channels
        return FileSet(folder, known.classes, size, channels, known.mean, known.std)

    def inputs(self, trained: Trained, given: str) -> Iterable[Input]:
        """The image, or all images below the folder."""
        from lion.data.images import images_below

        if not Path(given).exists():
            raise FileNotFoundError(f"{given} is not there; expected an image, or a folder of them.")
        return (Input(x, x) for x in images_below(given)) if Path(given).is_dir() else [Input(given, given)]

    def example(self, trained: Trained, given: str) -> Tensor:
        """given: the path of an image."""
        from lion.data.images import read_image

        config, mean, std = _inputs_of_model(trained)
        return (read_image(Path(given), size=config.image_size, channels=config.in_channels) - mean) / std

    def predict_batch(self, trained: Trained, examples: list[Tensor]) -> list[Prediction]:
        return [Prediction(x) for x in trained.model(torch.stack(examples).to(trained.device))]

    def _load(self, split: str) -> "ImageSet":
        from lion.data.images import load_images

        data = Path(self.data).expanduser() if self.data else None
        how = {"skip_bad": self.skip_bad, "by_content": self.by_content}
        load = partial(
            cached, load_images, self.dataset, split, file=None, data=data, size=self.image_size or None, **how
        )
        try:
            return load()
        except BadData as problem:
            raise to_skip(problem) from None
        except FileNotFoundError:
            if data is not None or not to_fetch(self.dataset):
                raise
        fetch(self.dataset)
        return load()


def _patch(side: int, tokens: int) -> int:
    """The patch size, a power of two, that gives about so many tokens."""
    return 2 ** max(0, round(math.log2(side / math.sqrt(tokens))))


def _pixels(images: "ImageSet", indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images as rows of pixels, no larger than a simple model can take; and their labels."""
    rows = []
    for part in np.array_split(indices, max(1, len(indices) // 256)):
        batch = images.__getitems__([(0, int(i)) for i in part])["image"]
        if max(batch.shape[2:]) > SMALL:
            batch = F.interpolate(batch, (SMALL, SMALL), mode="bilinear", antialias=True)
        rows.append(batch.flatten(1).numpy())
    return np.concatenate(rows), images.labels.numpy()[indices]


def _inputs_of_model(trained: Trained) -> tuple[VisionConfig, Tensor, Tensor]:
    """The model's config; and the mean and the standard deviation of its inputs, [channels or 1, 1, 1]."""
    config, known = trained.model.config, trained.known
    if not isinstance(config, VisionConfig):
        raise WrongRun(f"the model in {trained.folder}/model reads no images, and the run in its folder does.")
    mean, std = (_channels(name, getattr(known, name), config, trained.folder) for name in ("mean", "std"))
    return config, mean, std


def _channels(name: str, numbers: Sequence[float], config: VisionConfig, folder: Path) -> Tensor:
    """[channels or 1, 1, 1]"""
    if len(numbers) not in (1, config.in_channels):
        raise WrongRun(
            f"{folder}/run.json: to_predict.{name} has {len(numbers)} numbers; expected {config.in_channels}, one for "
            "each channel."
        )
    return torch.tensor(numbers)[:, None, None]


@register_recipe("images")
def images() -> Run:
    """Your own folder of images, a subfolder for each class: `lion train images --data FOLDER`."""
    size: dict[str, Any] = {"dim": 128, "heads": 4, "depth": 2, "mlp_ratio": 2.0, "drop_path": 0.1}
    model = replace(MODELS["lion_s_2scan_tiny_patch16_224"], **size, stem="conv", class_token=False, pool="mean")
    task = ImageTask("folder", tokens=64, model=model, augment=Augment(pad_crop=2, padding="reflect"), smoothing=0.1)
    return Run(task, Optim(lr=2e-3, warmup=0.1), epochs=15, min_steps=800, batch=64, ema=0.99)
