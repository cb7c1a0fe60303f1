"""Tasks: what is learned. One file each: data, model, loss and metrics, predictions, and the recipe to begin with.

A module's name in this folder is the kind of its task; `lion train`, `eval` and `predict` find it there. A module whose
name begins with an underscore has what several tasks share. docs/contributing.md adds a task, step by step.
"""

from lion.tasks._base import Batch as Batch
from lion.tasks._base import Examples as Examples
from lion.tasks._base import Input as Input
from lion.tasks._base import Known as Known
from lion.tasks._base import Prediction as Prediction
from lion.tasks._base import Shown as Shown
from lion.tasks._base import Task as Task
from lion.tasks._base import Trained as Trained
from lion.tasks._base import WrongRun as WrongRun
from lion.tasks._base import cached as cached
from lion.tasks._base import classified as classified
from lion.tasks._base import kinds as kinds
from lion.tasks._base import register_task as register_task
from lion.tasks._base import task_class as task_class
