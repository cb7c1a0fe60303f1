"""Tests that need a Triton that interprets: `TRITON_INTERPRET=1 pytest tests/ops/triton/interpreted`."""

import inspect

from lion.ops.triton.available import INSTALLED, interpreting

collect_ignore_glob = [] if INSTALLED and interpreting() else ["test_*.py"]

if not collect_ignore_glob:
    import triton.language as tl
    from triton.language import core
    from triton.runtime import interpreter

    patch = interpreter._patch_lang

    def patch_once(function):
        """Triton's interpreter prepares its language again for every function that a kernel calls: half of the time."""
        modules = [x for x in function.__globals__.values() if inspect.ismodule(x) and x in (tl, core)]
        unprepared = any(core.is_builtin(x.load) for x in modules)
        return patch(function) if unprepared else interpreter._LangPatchScope()

    interpreter._patch_lang = patch_once
