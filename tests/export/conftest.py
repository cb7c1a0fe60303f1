import pytest


def pytest_collection_modifyitems(items):
    """One line says what is missing."""
    here = [item for item in items if "tests/export/" in item.path.as_posix()]
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if not _there(name)]
    if missing:
        for item in here:
            reason = f"{', '.join(missing)} missing: pip install 'lion-attention[onnx]'"
            item.add_marker(pytest.mark.skip(reason=reason))


def _there(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True
