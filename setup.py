"""All but the CPU kernels is in pyproject.toml. They are compiled if they can be: lion runs without them too.

One wheel serves every Python and every torch of a platform: py3-none-PLATFORM with kernels, py3-none-any without.
"""

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
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


class Wheel(bdist_wheel):
    """Builds first: the wheel's tag depends on whether there are kernels."""

    def run(self):
        self.run_command("build")
        self.skip_build = True
        if not self.get_finalized_command("build_ext").get_outputs():
            self.distribution.ext_modules, self.root_is_pure = [], True
        super().run()

    def get_tag(self):
        if self.root_is_pure:
            return "py3", "none", "any"
        where = super().get_tag()[2]
        return "py3", "none", where.replace("universal2", platform.machine())  # macOS: one processor's kernels


setup(
    ext_modules=[Extension("lion.ops.cpu.liblion_cpu", sources=[])],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel},
)
