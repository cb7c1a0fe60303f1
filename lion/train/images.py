"""Image classification as a task."""

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lion.configs import check
from lion.data.augment import Augment, Mixup
from lion.data.digests import digest
from lion.limits import PixelsOrAll, Share
from lion.machine import to_train
from lion.models.vision import VisionConfig, VisionModel
from lion.train.distill import Distill, distillation_loss, load_teacher
from lion.train.task import Batch, Examples, Task, classified

if TYPE_CHECKING:
    from lion.data.images import ImageSet


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

    unit: ClassVar[str] = "image"
    tunable: ClassVar[tuple[str, ...]] = ("augment", "mixup", "smoothing", "distill")

    def __post_init__(self):
        check(self)

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
                wanted = self._teacher(batch["image"].device)(batch["image"])
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

    def to_predict(self) -> dict[str, Any]:
        images = self._load("test")
        return {"classes": images.classes, "mean": list(images.mean), "std": list(images.std)}

    def _load(self, split: str) -> "ImageSet":
        return _load(self.dataset, split, self.data, self.image_size)

    def _teacher(self, device: torch.device) -> nn.Module:
        return load_teacher(self.distill.teacher).to(device)


@functools.lru_cache(maxsize=4)
def _load(dataset: str, split: str, data: str, size: int) -> "ImageSet":
    from lion.data.images import load_images

    return load_images(dataset, split, data=Path(data).expanduser() if data else None, size=size or None)
