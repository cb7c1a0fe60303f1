"""Training with sequence parallelism: which process has which examples, and which piece of them."""

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from lion.nn.pieces import Cuttable
from lion.parallel.sequence import sequence_parallel

Model = TypeVar("Model", bound=nn.Module)


class Sharing:
    """All processes, in groups of `pieces` that share each sequence.

    Args:
        dims: the tensors of a batch that are cut, and in which dimension: a task's `cut`.
    """

    def __init__(self, pieces: int, processes: int, rank: int, device: str, dims: Mapping[str, int], task: str):
        if pieces > 1 and not dims:
            raise ValueError(f"sequence_parallel is {pieces}, and a task of kind {task!r} has no sequences to cut.")
        if processes % pieces:
            raise ValueError(
                f"sequence_parallel is {pieces}, and there are {processes} processes; expected a multiple of {pieces}: "
                f"torchrun --nproc-per-node {pieces} ..."
            )
        self.pieces, self.dims = pieces, dims
        self.groups, self.group = processes // pieces, rank // pieces  # of the examples
        self.piece = rank % pieces
        names = ("data", "sequence")
        self.mesh = None if pieces == 1 else init_device_mesh(device, (self.groups, pieces), mesh_dim_names=names)

    @property
    def partial(self) -> bool:
        """Whether a process has the labels of its own tokens alone."""
        return self.pieces > 1 and "labels" in self.dims

    def of(self, model: Model) -> Model:
        return model if self.mesh is None else sequence_parallel(model, self.mesh["sequence"])

    def end(self, model: nn.Module) -> None:
        """From now on each process uses the model by itself."""
        for module in model.modules():
            if isinstance(module, Cuttable):
                module.piece = None

    def cut(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """This process's piece of a batch."""
        if self.pieces == 1:
            return batch
        cut = {
            name: x.tensor_split(self.pieces, self.dims[name])[self.piece]
            for name, x in batch.items()
            if name in self.dims
        }
        return batch | cut

    def counted(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sums over examples, as this process adds them to those of the others: each once."""
        return sums if self.partial or not self.piece else {}
