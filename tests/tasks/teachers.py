"""Small BERTs to learn from."""

import torch

from lion.data.tokenizers import ByteTokenizer
from tests import SEED


def save_teacher(folder, kind, places):
    config = kind.config_class(
        vocab_size=ByteTokenizer().vocab_size,
        pad_token_id=ByteTokenizer().pad_id,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=places,
        hidden_dropout_prob=0.2,
    )
    torch.manual_seed(SEED)
    teacher = kind(config)
    for name, weight in teacher.named_parameters():  # as a BERT begins, what attention adds hardly matters
        if name.endswith("weight") and "LayerNorm" not in name:
            torch.nn.init.normal_(weight, std=0.5)
    teacher.save_pretrained(folder)
    ByteTokenizer().save(folder)
