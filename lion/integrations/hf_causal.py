"""The causal models of `lion.integrations.hf`, in the module where folders of earlier versions look for them."""

from lion.integrations.hf import MODES, LionCache, LionCausalConfig, LionForCausalLM

__all__ = ["MODES", "LionCache", "LionCausalConfig", "LionForCausalLM"]
