"""Builds the columns kernel into wheels and editable installs.

Without a C compiler on the machine the ``ziglang`` wheel becomes a build requirement. Where
nothing compiles, the install goes on: numpy then does what the kernel would have done.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang>=0.13"
ZIG_SYSTEMS = {"linux", "darwin", "win32"}


class KernelBuildHook(BuildHookInterface[Any]):
    """Compiles before files are collected, and says for which platform the wheel is."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling.

        The wheel is asked for only where there is one: elsewhere the install would end here.
        """
        native = _load(self.root)
        has_wheel = native.knows_processor() and sys.platform in ZIG_SYSTEMS
        return [ZIG] if has_wheel and not native.list_compilers() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install finds the library beside the sources."""
        if self.target_name != "wheel":
            return
        native = _load(self.root)
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
