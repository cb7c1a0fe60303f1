"""All but the CPU kernels is in pyproject.toml. They are compiled if they can be: lion runs without them too."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from lion.ops.cpu import build  # noqa: E402


class BuildKernels(build_ext):
    """A plain shared library, loaded with ctypes: no Python headers, no ABI of an interpreter or of torch."""

    def build_extension(self, ext):
        folder = HERE if self.editable_mode or self.inplace else Path(self.build_lib)
        failure = build.build_into(folder / "lion" / "ops" / "cpu")
        if failure:
            print(f"warning: lion's CPU kernels were not built: {failure}. lion will run on plain torch.")

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def get_outputs(self):
        return [output for output in super().get_outputs() if Path(output).exists()]

    def copy_extensions_to_source(self):
        pass  # build_extension has put it there


setup(
    ext_modules=[Extension("lion.ops.cpu.liblion_cpu", sources=[])],
    cmdclass={"build_ext": BuildKernels},
)
