"""The classes of this folder's model, for AutoModel.from_pretrained(folder, trust_remote_code=True)."""

try:
    from lion.integrations.hf import LionConfig, LionForMaskedLM, LionForSequenceClassification, LionForTokenClassification, LionModel
except ModuleNotFoundError as problem:
    if (problem.name or "").split(".")[0] != "lion":
        raise
    raise ImportError("this model is of the package lion-attention: pip install 'lion-attention[hf]'") from problem

__all__ = ["LionConfig", "LionForMaskedLM", "LionForSequenceClassification", "LionForTokenClassification", "LionModel"]
