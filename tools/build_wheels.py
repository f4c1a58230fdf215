"""Builds the wheels of a release: ``make wheels``, or ``python tools/build_wheels.py``.

Compiles the kernel for every platform of ``native/build.py`` with zig, checks each wheel by its
file alone, then installs the one for this machine into a fresh environment and works with it.
``python tools/build_wheels.py manylinux_2_17_x86_64`` builds for that platform only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "native"), str(ROOT / "tools")]

from build import TARGETS  # noqa: E402 - the path is set above
from library_exports import Library, read_library  # noqa: E402 - as above

TRY = """
set -eu
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true' EXIT
{bin}/millstream serve --port 0 --data-dir data >served 2>&1 & server=$!
for attempt in $(seq 300); do
    address=$(grep -oE '127\\.0\\.0\\.1:[0-9]+' served | head -1)
    test -z "$address" || break
    kill -0 $server
    sleep 0.2
done
test -n "$address"
seq 1000 | {bin}/millstream produce numbers -b $address
{bin}/millstream consume numbers -b $address --exit | sort -n >read
seq 1000 | cmp - read
"""


class WheelError(Exception):
    """A wheel is not what its tag says, or does not work."""


def build(platform_tag: str, directory: Path) -> Path:
    """Build the wheel for a platform and return its path."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        env=os.environ | {"MILLSTREAM_WHEEL_PLATFORM": platform_tag},
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(directory.glob(f"*-py3-none-{platform_tag}.whl"))
    if done.returncode or len(wheels) != 1:
        raise WheelError(f"{platform_tag} was not built: {done.stderr.strip()[-2000:]}")
    return wheels[0]


def check(wheel: Path, platform_tag: str) -> Library:
    """Return the library of a wheel, the only one in it. Raises WheelError for another one."""
    suffix = TARGETS[platform_tag].suffix
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if "/_kernel" in name]
        if libraries != [f"millstream/records/_kernel{suffix}"]:
            raise WheelError(f"{wheel.name} has the libraries {libraries}")
        library = read_library(archive.read(libraries[0]))
    expected = expect(platform_tag)
    if (library.system, library.processor) != expected:
        raise WheelError(f"{wheel.name} has a library for {library.system} {library.processor}")
    if library.system == "linux":
        check_manylinux(wheel, platform_tag)
    return library


def expect(platform_tag: str) -> tuple[str, str]:
    """Return the system and the processor that a tag promises."""
    prefixes = {"manylinux": "linux", "macosx": "macos", "win": "windows"}
    system = next(prefixes[each] for each in prefixes if platform_tag.startswith(each))
    return system, "aarch64" if platform_tag.endswith(("aarch64", "arm64")) else "x86_64"


def check_manylinux(wheel: Path, platform_tag: str) -> None:
    """Ask auditwheel whether the library needs nothing newer than the tag says."""
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = " ".join(done.stdout.split())
    if f'following platform tag: "{platform_tag}"' not in said:
        raise WheelError(f"auditwheel about {wheel.name}: {said or done.stderr.strip()}")


def try_out(wheel: Path) -> str:
    """Install into a fresh environment and send records through a broker; return the kernel."""
    with tempfile.TemporaryDirectory(prefix="millstream-wheel-") as name:
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("MILLSTREAM_", "PYTHON"))
        }
        programs = Path(name, "venv", "bin")
        python = str(programs / "python")
        steps = [
            [sys.executable, "-m", "venv", str(programs.parent)],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)],
            ["bash", "-c", TRY.format(bin=programs)],
            [str(programs / "millstream"), "--version"],
            [python, "-m", "millstream.records.kernel"],
        ]
        for step in steps:
            done = subprocess.run(
                step,
                cwd=name,
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode:
                served = Path(name, "served")
                more = served.read_text()[-2000:] if served.exists() else ""
                raise WheelError(f"{wheel.name}: {step[0]}: {done.stderr.strip()[-2000:]} {more}")
    kernel = done.stdout.strip()
    if not kernel.startswith("C kernel"):
        raise WheelError(f"{wheel.name} was installed, but works without its library: {kernel}")
    return kernel


def main() -> None:
    """Build, check, try; print one line for each wheel."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(TARGETS))
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--no-install", action="store_true", help="build and check only")
    options = parser.parse_args()
    directory = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    unknown = set(options.platforms) - set(TARGETS)
    if unknown:
        parser.error(f"no platform {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    own = sysconfig.get_platform().replace("-", "_").replace("linux", "manylinux_2_17")
    functions: set[str] | None = None
    for platform_tag in options.platforms or TARGETS:
        wheel = build(platform_tag, directory)
        library = check(wheel, platform_tag)
        names = {each for each in library.exports if each.startswith("ms_")}
        if not names or (functions is not None and names != functions):
            raise WheelError(f"{wheel.name} has other functions: {sorted(names)}")
        functions = names
        tried = platform_tag == own and not options.no_install
        result = f"works: {try_out(wheel)}" if tried else "checked, not run"
        print(
            f"{wheel.name}\t{library.system} {library.processor}\t{len(names)} functions\t{result}"
        )


if __name__ == "__main__":
    try:
        main()
    except WheelError as problem:
        sys.exit(str(problem))
