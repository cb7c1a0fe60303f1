from tests.tasks.conftest import data as data
from tests.tasks.conftest import texts as texts
