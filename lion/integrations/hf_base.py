"""What lion's models for transformers have in common."""

from typing import Any

from lion import files
from lion.optional import need_transformers

need_transformers()

from transformers import PreTrainedModel  # noqa: E402


class LionBase(PreTrainedModel):
    supports_gradient_checkpointing = True
    # Losses are divided by `num_items_in_batch` where that is given: over accumulated batches they are means of all.
    accepts_loss_kwargs = True

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        """As transformers has it; it says which weights are damaged, if they are."""
        with files.intact(pretrained_model_name_or_path):
            return super().from_pretrained(pretrained_model_name_or_path, *args, **options)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """Nothing to do: whatever is saved has its auto_map (LionBaseConfig)."""

    def post_init(self) -> None:
        # Rounded to half precision, decays close to 1 would forget some percent too fast or too slowly.
        if any(".decay." in name for name in self.state_dict()):
            self._keep_in_fp32_modules_strict = {"decay"}
        super().post_init()

    def as_dict(self, return_dict: bool | None) -> bool:
        return bool(self.config.return_dict if return_dict is None else return_dict)
