import pytest

from lion.tasks._base import forget
from tests.tasks.texts import write_texts


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture
def data(tmp_path_factory, monkeypatch):
    """A folder for tokens and tokenizers, and nothing remembered of other files."""
    monkeypatch.setenv("LION_DATA", str(tmp_path_factory.getbasetemp() / "text data"))
    forget()
