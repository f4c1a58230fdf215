"""From the texts of a Protobuf schema to descriptors, by Google's own compiler.

A registered text is a ``.proto`` file, or the base64 of a FileDescriptorProto, as some serializers
register it. The compiler comes with ``grpcio-tools`` and runs as a process of its own, once for a
schema. What every registry has built in (``google/type``, ``confluent/meta.proto``) needs no
reference.
"""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from millstream.model.errors import ConfigError
from millstream.schemas.complete import CompleteSchema, Import
from millstream.schemas.schema import InvalidSchemaError

_MAIN: Final = "millstream/schema.proto"
_TIMEOUT_S: Final = 60
_BUILT_IN: Final = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
}


@lru_cache(maxsize=1_000)
def descriptor_set(schema: CompleteSchema) -> tuple[bytes, str]:
    """Return a FileDescriptorSet with a schema and its imports, and the name of the schema's file
    in it.

    InvalidSchemaError where it does not compile; ConfigError where the compiler is not installed.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = [Import(_MAIN, schema.text), *schema.imports]
    compiled = {each.name: _decoded(each) for each in files}
    texts = [each for each in files if compiled[each.name] is None]
    ready = FileDescriptorSet(file=[each for each in compiled.values() if each is not None])
    if compiled[_MAIN] is None or texts:
        return _compiled(texts, ready), _MAIN
    return _with_built_in(ready), _MAIN


def _decoded(file: Import) -> Any:
    """Return a FileDescriptorProto if the text is the base64 of one."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(base64.b64decode(file.text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    if not found.name:
        return None
    found.name = file.name
    return found


def _compiled(texts: Sequence[Import], ready: Any) -> bytes:
    tools = _tools()
    with tempfile.TemporaryDirectory(prefix="millstream-proto-") as name:
        directory = Path(name)
        for each in texts:
            _write(directory / "in", each)
        for path, text in _BUILT_IN.items():
            _write(directory / "builtin", Import(path, text))
        words = [f"--proto_path={each}" for each in (directory / "in", directory / "builtin")]
        words += [f"--proto_path={each}" for each in tools]
        if ready.file:
            _add_standard(ready)
            (directory / "ready").write_bytes(ready.SerializeToString())
            words.append(f"--descriptor_set_in={directory / 'ready'}")
        words += [f"--descriptor_set_out={directory / 'out'}", "--include_imports", _MAIN]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *words],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchemaError("the compiler of Protobuf schemas does not end") from None
        if done.returncode:
            raise InvalidSchemaError(f"not a Protobuf schema: {_first_line(done.stderr)}")
        return (directory / "out").read_bytes()


def _write(directory: Path, file: Import) -> None:
    place = PurePosixPath(file.name)
    if place.is_absolute() or ".." in place.parts or not place.parts or "\0" in file.name:
        raise InvalidSchemaError(f"a Protobuf schema cannot be imported as {file.name!r}")
    path = directory / place
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    except OSError as error:
        raise InvalidSchemaError(
            f"a Protobuf schema cannot be imported as {file.name!r}: {error.strerror}"
        ) from None


def _tools() -> list[Path]:
    """Return the directories of Google's own files, the compiler's first."""
    found = find_spec("grpc_tools")
    if found is None or found.origin is None:
        raise ConfigError(
            "Protobuf schemas of a registry need the compiler: pip install grpcio-tools"
        )
    directories = [Path(found.origin).parent / "_proto"]
    common = find_spec("google.type") if find_spec("google") else None
    for place in (common.submodule_search_locations or ()) if common else ():
        directories.append(Path(place).parent.parent)
    return directories


def _with_built_in(files: Any) -> bytes:
    _add_standard(files)
    content: bytes = files.SerializeToString()
    return content


def _add_standard(files: Any) -> None:
    """Add the files that are imported and that the library has itself, before those that import
    them.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import Default

    own = {each.name: each for each in files.file}
    ordered: dict[str, Any] = {}

    def add(names: Iterable[str]) -> None:
        for name in names:
            if name in ordered:
                continue
            each = own.get(name)
            if each is None:
                each = FileDescriptorProto()
                try:
                    _load(name)
                    Default().FindFileByName(name).CopyToProto(each)
                except (KeyError, ImportError):
                    continue  # a text beside it, or missing, which the compiler or the pool tells
            ordered[name] = each
            add(each.dependency)

    add(list(own))
    del files.file[:]
    files.file.extend(_in_order(ordered))


def _in_order(files: dict[str, Any]) -> list[Any]:
    done: dict[str, Any] = {}

    def add(name: str, inside: frozenset[str]) -> None:
        if name in done or name in inside or name not in files:
            return
        for each in files[name].dependency:
            add(each, inside | {name})
        done[name] = files[name]

    for name in files:
        add(name, frozenset())
    return list(done.values())


def _load(name: str) -> None:
    """Import the module of one of Google's own files, which puts it where descriptors are found."""
    if name.startswith("google/") and name.endswith(".proto"):
        import importlib

        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")


def _first_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[0].replace(_MAIN, "the schema")[:300] if lines else "the compiler failed"


def message_name(content: bytes, file: str, indexes: Sequence[int]) -> str:
    """Return the full name of the message at a place of a file; InvalidSchemaError if there is
    none.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found = next(each for each in FileDescriptorSet.FromString(content).file if each.name == file)
    names = [found.package] if found.package else []
    messages = found.message_type
    for index in indexes:
        if index >= len(messages):
            place = ".".join(map(str, indexes))
            raise InvalidSchemaError(f"the schema has no message at the place {place}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)
