import pytest

from tests.parallel.processes import Processes


@pytest.fixture(scope="session")
def processes():
    started = Processes(4)
    yield started
    started.close()
