"""What lion's models for transformers have in common."""

from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedModel

from lion import checksums, files
from lion.integrations.hf.damage import check_index, check_shapes, naming
from lion.models.blocks import NO_WEIGHTS, no_weights
from lion.models.card import write_card


class LionBase(PreTrainedModel):
    supports_gradient_checkpointing = True
    # Losses are divided by `num_items_in_batch` where that is given: over accumulated batches they are means of all.
    accepts_loss_kwargs = True
    no_weights: ClassVar[tuple[str, ...]] = NO_WEIGHTS  # parts of names

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        """As transformers has it; it says which weights are damaged, if they are. Pickled weights are for those who
        ask for them, with use_safetensors=False."""
        options.setdefault("use_safetensors", True)
        if pretrained_model_name_or_path is not None:
            folder = Path(pretrained_model_name_or_path, options.get("subfolder") or "")
            check_index(folder, options.get("variant"))
        with naming(pretrained_model_name_or_path), files.intact(pretrained_model_name_or_path):
            return super().from_pretrained(pretrained_model_name_or_path, *args, **options)

    @staticmethod
    def _load_pretrained_model(
        model: Any, state_dict: Any, checkpoint_files: list[str] | None, load_config: Any, *args: Any, **options: Any
    ) -> Any:
        """Where transformers has found a model's files, or an adapter's, and opens them."""
        paths = [Path(name) for name in checkpoint_files or () if name.endswith(".safetensors")]
        if state_dict is None and paths:
            found = checksums.check_model(paths, load_config.sharded_metadata)
            if not load_config.ignore_mismatched_sizes and load_config.hf_quantizer is None:
                check_shapes(model, found, paths[0])
        return PreTrainedModel._load_pretrained_model(
            model, state_dict, checkpoint_files, load_config, *args, **options
        )

    def save_pretrained(self, save_directory: Any, is_main_process: bool = True, *args: Any, **options: Any) -> None:
        """As transformers has it; weights get a checksum (lion.checksums), and the folder a model card."""
        folder = Path(save_directory)
        before = checksums.times(folder)
        super().save_pretrained(save_directory, is_main_process, *args, **options)
        if is_main_process and not options.get("distributed_checkpoint"):  # whose files other processes may be writing
            checksums.add(folder, before)
        if is_main_process:
            write_card(self, folder)

    def _upload_modified_files(
        self, working_dir: Any, repo_id: str, files_timestamps: Any, *args: Any, **options: Any
    ) -> Any:
        """Of save_pretrained(push_to_hub=True): what is uploaded has its checksums, too."""
        checksums.add(Path(working_dir), files_timestamps)
        return super()._upload_modified_files(working_dir, repo_id, files_timestamps, *args, **options)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """Nothing to do: whatever is saved has its auto_map (LionBaseConfig)."""

    def post_init(self) -> None:
        # Rounded to half precision, decays close to 1 would forget some percent too fast or too slowly.
        if any(".decay." in name for name in self.state_dict()):
            self._keep_in_fp32_modules_strict = {"decay"}
        super().post_init()

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that an optimizer should not shrink: decays and the like."""
        return no_weights(self, self.no_weights)

    def asked(self, option: str, given: bool | None) -> bool:
        """An option of a call; by default the config's."""
        return bool(getattr(self.config, option) if given is None else given)
