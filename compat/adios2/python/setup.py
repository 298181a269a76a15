"""Puts the .pth file beside the package, where Python reads it at its start; the wheel is of this
machine's kind, and of no Python in particular."""

from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


class WithPth(build_py):
    def run(self) -> None:
        super().run()
        self.copy_file("thalweg_adios2.pth", str(Path(self.build_lib) / "thalweg_adios2.pth"))


class OfThisPlatform(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": WithPth, "bdist_wheel": OfThisPlatform})
