"""Builds the columns kernel into wheels and editable installs.

Without a C compiler on the machine the ``ziglang`` wheel becomes a build requirement. Where
nothing compiles, the install goes on: numpy then does what the kernel would have done.

``MILLSTREAM_WHEEL_PLATFORM`` in the environment names another platform to build the wheel for, by
its tag. Then the kernel has to compile, and the library of the checkout stays as it is.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang>=0.13"
ZIG_SYSTEMS = {"linux", "darwin", "win32"}
PLATFORM = "MILLSTREAM_WHEEL_PLATFORM"


class KernelBuildHook(BuildHookInterface[Any]):
    """Compiles before files are collected, and says for which platform the wheel is."""

    PLUGIN_NAME = "custom"
    _directory: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling.

        The wheel is asked for only where there is one: elsewhere the install would end here.
        """
        if os.environ.get(PLATFORM):
            return [ZIG]
        native = _load(self.root)
        has_wheel = native.knows_processor() and sys.platform in ZIG_SYSTEMS
        return [ZIG] if has_wheel and not native.list_compilers() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install finds the library beside the sources."""
        if self.target_name != "wheel":
            return
        native = _load(self.root)
        platform_tag = os.environ.get(PLATFORM)
        if platform_tag and version == "standard":
            self._add_library_for(platform_tag, native, build_data)
            return
        try:
            compiler = native.build(portable=version == "standard")
        except native.NoCompilerError as problem:
            self.app.display_warning(f"the kernel was not built, numpy does its work: {problem}")
            return
        self.app.display_info(f"the kernel was built with {compiler}")
        library = native.LIBRARY.relative_to(self.root).as_posix()
        build_data["artifacts"].append(library)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(native, compiler)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the library of another platform; the wheel has it now."""
        if self._directory is not None:
            self._directory.cleanup()

    def _add_library_for(
        self, platform_tag: str, native: ModuleType, build_data: dict[str, Any]
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="millstream-wheel-")
        library = Path(self._directory.name, "_kernel")
        native.build_for(platform_tag, library)
        suffix = native.TARGETS[platform_tag].suffix
        build_data["force_include"][str(library)] = f"millstream/records/_kernel{suffix}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag}"


def _platform(native: ModuleType, compiler: str) -> str:
    own = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if compiler == "zig" and native.zig_target():
        return own.replace("linux_", f"manylinux_{native.GLIBC.replace('.', '_')}_")
    return own


def _load(root: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("native_build", Path(root, "native", "build.py"))
    if spec is None or spec.loader is None:
        raise FileNotFoundError("native/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
