"""Data: sources (lion.data.sources), file formats (tables, fasta, image_files, tokenizers) and training examples."""

from lion.data.sources.fetching import FETCHED, fetch, lion_data_folder, to_fetch
from lion.data.splits import stratified

__all__ = ["FETCHED", "fetch", "lion_data_folder", "stratified", "to_fetch"]
