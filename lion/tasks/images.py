"""Image classification."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.data.augment import Augment, Mixup
from lion.data.digests import digest
from lion.limits import PixelsOrAll, Positive, Share
from lion.machine import to_train
from lion.models.registry import MODELS
from lion.models.vision import VisionConfig, VisionModel
from lion.recipes import register_recipe
from lion.tasks import (
    Batch,
    Examples,
    Input,
    Known,
    Prediction,
    Task,
    Trained,
    WrongRun,
    cached,
    classified,
    register_task,
)
from lion.train.config import Optim, Run
from lion.train.distill import Distill, distillation_loss, load_teacher

if TYPE_CHECKING:
    from lion.data.images import ImageSet


@dataclass(frozen=True)
class KnownImages(Known):
    mean: tuple[float, ...] = (0.0,)  # of each channel
    std: tuple[Positive, ...] = (1.0,)


@register_task("images")
@dataclass(frozen=True)
class ImageTask(Task):
    dataset: str = "digits"  # a key of lion.data.images.IMAGE_SETS
    data: str = ""  # where it is, if not in the usual place
    image_size: PixelsOrAll = 0  # 0: as the images are
    model: VisionConfig = field(default_factory=VisionConfig)
    augment: Augment = field(default_factory=Augment)
    mixup: Mixup = field(default_factory=Mixup)
    smoothing: Share = 0.0  # of labels
    distill: Distill = field(default_factory=Distill)

    unit = "image"
    tunable = ("augment", "mixup", "smoothing", "distill")
    known = KnownImages
    usage = "lion predict {run} photo.png"
    reads = "file"

    def resolved(self) -> "ImageTask":
        images = self._load("test")
        size = images.size or (self.image_size or 224, self.image_size or 224)
        model = replace(self.model, num_classes=len(images.classes), in_channels=images.channels, image_size=size)
        return replace(self, model=model)

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

    def measure(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return classified(model(batch["image"]), batch["label"])

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

        config, *scale = _inputs_of_model(trained)
        return FileSet(Path(path).expanduser(), trained.known.classes, config.image_size, config.in_channels, *scale)

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
        return cached(load_images, self.dataset, split, data=data, size=self.image_size or None)


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
    """Your own folder of images, a subfolder for each class: `lion train images --data PATH`."""
    model = replace(MODELS["lion_s_2scan_tiny_patch16_224"], depth=6, patch_size=8, drop_path=0.05)
    task = ImageTask("folder", image_size=64, model=model, augment=Augment(pad_crop=6, flip=True))
    return Run(task, Optim(lr=1e-3, warmup=0.1), epochs=20, batch=64, ema=0.99)
