from tests import transformers_tests


def pytest_configure(config):
    for name in transformers_tests.marks():
        config.addinivalue_line("markers", f"{name}: of transformers' own tests")
