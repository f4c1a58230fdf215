"""When the codec in C is used and when it is left out; the property test compares the two."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.native.sanitized import run_sanitized

from millstream.native import interpreter, loader
from millstream.native.interpreter import slots_of
from millstream.protocol import coders, headers
from millstream.protocol import native_codec as module
from millstream.protocol.fields import array, int32, records_, string, struct
from millstream.protocol.message import Message
from millstream.protocol.native_codec import NativeCodec, native_codec
from millstream.protocol.native_tables import NoTableError, Table
from millstream.protocol.schema import Struct

NATIVE = Path(__file__).parents[3] / "native"


class Inner(Struct):
    """Holds records."""

    data: bytes = records_(nullable="0+", default=None)  # type: ignore[assignment]


class Tagged(Message, versions="0-0", flexible="0+"):
    """Records in a tagged field, which no message of Kafka has."""

    inner: Inner = struct(Inner, tag=0, factory=Inner)


class Holder(Message, versions="0-0", flexible="none"):
    """Records, and nothing else."""

    data: bytes = records_()  # type: ignore[assignment]


class Plain(Message, versions="0-1", flexible="1+"):
    """What a table is made of without ado."""

    name: str = string()
    numbers: list[int] = array(int32(), "1+", factory=list)


@pytest.fixture
def found() -> NativeCodec:
    codec = native_codec()
    if codec is None:
        pytest.skip("needs the codec in C: python native/build.py")
    return codec


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], NativeCodec | None]]:
    monkeypatch.delenv(loader.SWITCH, raising=False)

    def ask() -> NativeCodec | None:
        module.codec_of.cache_clear()
        return native_codec()

    yield ask
    module.codec_of.cache_clear()


def test_functions_are_built_in(found: NativeCodec) -> None:
    message = Plain(name="a")
    assert Plain.decode_body(0, message.encode_body(0)) == message
    for function in (coders._decoders[Plain, 0], coders._encoders[Plain, 0]):
        assert type(function) is type(len)


def test_without_a_library_or_with_another_one(
    found: NativeCodec,
    asked_anew: Callable[[], NativeCodec | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked_anew() is not None
    copy = tmp_path / loader.LIBRARY.name
    shutil.copy(loader.LIBRARY, copy)
    with monkeypatch.context() as patch:
        patch.setattr(module, "ABI", module.ABI + 1)
        assert asked_anew() is None
    monkeypatch.setattr(loader, "LIBRARY", copy)
    assert asked_anew() is not None
    copy.unlink()
    assert asked_anew() is None
    broken = tmp_path / "broken"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(loader, "LIBRARY", broken)
    assert asked_anew() is None


def test_an_interpreter_with_other_objects_is_left_alone(
    found: NativeCodec,
    asked_anew: Callable[[], NativeCodec | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(interpreter, "_WORD", 4)
        assert asked_anew() is None
    with monkeypatch.context() as patch:
        patch.setattr(interpreter, "type_word", lambda _: 0)
        assert asked_anew() is None
    with monkeypatch.context() as patch:
        patch.setitem(interpreter._FUNCTIONS, "drop", "Py_NoSuchFunction")
        assert asked_anew() is None
    assert asked_anew() is not None


def test_nothing_is_looked_for_in_objects_that_are_not_known(
    found: NativeCodec,
    asked_anew: Callable[[], NativeCodec | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(cls: type, names: tuple[str, ...]) -> dict[str, int]:
        raise AssertionError("memory of an unknown layout is read")

    monkeypatch.setattr(interpreter, "_WORD", 4)
    monkeypatch.setattr(module, "slots_of", look)
    monkeypatch.setattr(headers, "slots_of", look)
    assert asked_anew() is None
    assert headers.header_decoder.__wrapped__() is headers.decode_request_header


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, TimeoutError])
def test_what_comes_between_is_not_lost(found: NativeCodec, raised: type[BaseException]) -> None:
    """Handlers of signals run, and raise, whenever the Python of a value is called."""

    class Payload:
        asked = 0

        def __len__(self) -> int:
            self.asked += 1
            if self.asked == 1:
                raise raised
            return 10

    payload = Payload()
    message = Holder(data=payload)  # type: ignore[arg-type]
    with pytest.raises(raised):
        coders.encode(message, 0)
    assert payload.asked == 1
    assert type(coders._encoders[Holder, 0]) is type(len)
    first, second = coders.encode(message, 0)
    assert second is payload
    assert first == b"\0\0\0\x0a"


def test_functions_work_to_the_end_of_the_interpreter(found: NativeCodec) -> None:
    """Modules are emptied before the last objects go, whose finalizers may still call them."""
    code = (
        "import sys\n"
        "from millstream.protocol import codec, native_codec\n"
        "from millstream.protocol.headers import header_decoder\n"
        "from millstream.protocol.messages.metadata import MetadataRequest as M\n"
        "class Last:\n"
        "    def __init__(self):\n"
        "        message = M(topics=None)\n"
        "        codec.encode_request(message, 1, 7, 'c')\n"
        "        self.frame = memoryview(codec.encode_request(message, 9, 7, 'c').join())[4:]\n"
        "        self.encode = codec._request_encoders[M, 1]\n"
        "        self.header, self.decode = header_decoder(), codec.request_decoder(3, 9)\n"
        "        self.message, self.out = message, sys.stderr\n"
        "        self.module = native_codec.__dict__\n"
        "    def __del__(self):\n"
        "        assert self.module['native_codec'] is None, 'too early to show anything'\n"
        "        header = self.header(self.frame)\n"
        "        assert self.decode(self.frame, header.body_position).topics is None\n"
        "        size = self.encode(self.message, 7, 'c').size\n"
        "        self.out.write(f'{header.client_id} {size}')\n"
        "sys.last = Last()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        # Memory that was given back is overwritten.
        env=os.environ | {"PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "c 19")


def test_the_switch(found: NativeCodec) -> None:
    code = (
        "from millstream.protocol.native_codec import native_codec as n\n"
        "from millstream.protocol.messages.metadata import MetadataRequest as M\n"
        "print(n() is None, M.decode_body(1, M(topics=None).encode_body(1)).topics)"
    )
    for value, expected in (("off", "True None"), ("on", "False None")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {loader.SWITCH: value},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == expected


def test_slots_are_looked_for() -> None:
    slots = slots_of(Plain, ("name", "numbers"))
    assert slots is not None
    assert len(set(slots.values())) == 2

    class Elsewhere:
        pass

    assert slots_of(Elsewhere, ("name",)) is None


def test_a_class_without_a_table_is_left_to_python(found: NativeCodec) -> None:
    with pytest.raises(NoTableError, match="tagged"):
        Table(Tagged, 0, flexible=True)
    message = Tagged()
    assert Tagged.decode_body(0, message.encode_body(0)) == message
    assert type(coders._decoders[Tagged, 0]) is not type(len)


@pytest.mark.slow
def test_hostile_messages_stay_inside_their_buffers(tmp_path: Path) -> None:
    sources = [each.name for each in NATIVE.glob("codec*.c")]
    run_sanitized(tmp_path, "hostile_codec", 500, *sources, "receive.c", "produce.c", "crc32c.c")
