"""The runs on CIFAR-10 that several exhibits share, at laptop scale."""

from lion.reproduce.readings import SEEDS
from lion.reproduce.steps import Step, seeds

EPOCHS = 1.5
MINUTES = 2.0  # of a run, on a core; longer ones by a part of the recipe's name
LONGER = {"hydra": 9.0, "vim": 30.0, "vector_decay": 3.0, "2scan": 2.5}
CIFAR10 = f"CIFAR-10 in patches of 4 x 4, models of 64 channels and 4 blocks, {EPOCHS} epochs"


def on_cifar10(recipe: str, *fields: str | Step, minutes: float = MINUTES) -> tuple[Step, ...]:
    minutes = next((x for part, x in LONGER.items() if part in recipe), minutes)
    return seeds(SEEDS, recipe, f"--epochs {EPOCHS}", *fields, minutes=minutes)
