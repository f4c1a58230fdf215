"""The check of produced records in C, ``native/produce.h``.

It returns whether a batch is plain, which means valid without further checks. If not,
``record_checks`` decides in Python whether and with which error it is refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int32, c_int64, c_void_p
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from millstream.native.interpreter import slots_of
from millstream.protocol.native_codec import Kind, codec_of
from millstream.records import kernel
from millstream.records.crc32c import Buffer
from millstream.records.kernel import Address, Library, Pinned
from millstream.records.kernel_types import Fault, Structure

if TYPE_CHECKING:
    from millstream.records.batch import Batch

ABI: Final = 2
"""The version of ``native/produce.h`` that this module describes."""

NOT_PLAIN: Final = -2
"""The result of :attr:`ProduceLibrary.check_batch` if Python has to decide."""


class ProduceRules(Structure):
    """``ms_produce_rules``: the rules of a topic for its records."""

    _fields_ = tuple(
        (name, c_int64)
        for name in (
            "before_ms",
            "after_ms",
            "needs_keys",
            "any_time",
            "max_bytes",
            "looks_inside",
            "codec",
        )
    )
    before_ms: int
    after_ms: int
    needs_keys: int
    any_time: int
    max_bytes: int
    looks_inside: int
    codec: int


class Produced(Structure):
    """``ms_produced``: the result of checking the records of a batch."""

    _fields_ = (("fault", Fault), ("largest_timestamp", c_int64), ("in_order", c_int64))
    fault: Fault
    largest_timestamp: int
    in_order: int


BATCH_FIELDS: Final = (
    "base_offset",
    "length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)
"""The attributes of a ``Batch`` in the order of its header."""


class Receiver(Structure):
    """``ms_receiver``: where a ``Batch`` keeps its fields."""

    _fields_ = (
        ("batch_type", c_void_p),
        ("buffer_slot", c_int32),
        ("slots", c_int32 * len(BATCH_FIELDS)),
    )


class _Buffers(Structure):
    """``ms_buffers``: the functions with which the kernel accesses the buffer of an object."""

    _fields_ = (("get_buffer", c_void_p), ("release_buffer", c_void_p))

    @classmethod
    def of_this_interpreter(cls) -> _Buffers:
        python = ctypes.pythonapi
        functions = (python.PyObject_GetBuffer, python.PyBuffer_Release)
        return cls(*(ctypes.cast(each, c_void_p).value for each in functions))


class ProduceLibrary:
    """The functions of ``native/produce.h``; AttributeError where the library has none of them."""

    def __init__(self, library: Library) -> None:
        loaded = ctypes.CDLL(str(library.path))
        self._abi = loaded.ms_produce_abi
        self._abi.restype = c_int32
        self._abi.argtypes = []
        self._check_records = loaded.ms_check_records
        self._check_records.restype = None
        self._check_records.argtypes = [c_void_p, c_void_p, *[c_int64] * 5, c_void_p]
        # This holds the GIL: releasing and acquiring it costs more than the check.
        check = ctypes.PyDLL(str(library.path)).ms_check_produced
        check.restype = c_int64
        check.argtypes = [c_void_p, c_void_p, ctypes.py_object, c_int64]
        self.check_batch = cast(Callable[[Address, Address, Buffer, int], int], check)
        """Check a whole batch by rules, with ``buffers``, at a time in milliseconds; return its
        largest timestamp, at least -1, or :data:`NOT_PLAIN`.
        """
        self._buffers = _Buffers.of_this_interpreter()
        self.buffers: Address = self._buffers.address

    def abi(self) -> int:
        """Return the version of the header that the library was built with."""
        return cast(int, self._abi())

    def check_records(
        self,
        found: Produced,
        rules: ProduceRules,
        records: Pinned,
        *,
        position: int,
        first: int,
        count: int,
        base_timestamp: int,
        now_ms: int,
    ) -> None:
        """Check ``records``, decompressed, of a batch of ``count`` from the one numbered ``first``,
        which starts at ``position``, on; other threads run meanwhile.

        ``found`` is filled; its fault's position counts from ``position``.
        """
        self._check_records(
            rules.address,
            records.address + position,
            records.size - position,
            first,
            count,
            base_timestamp,
            now_ms,
            found.address,
        )


def produce_library() -> ProduceLibrary | None:
    """Return the functions, or None if the Python implementation is used: there is no kernel, or
    one that was built before them.
    """
    return _load(kernel.library())


Receive: TypeAlias = "Callable[[Buffer, Address, int, int], Batch | None]"
"""(a partition's records, the address of its rules, now in milliseconds, version of Produce) to the
batch if it is to be appended as it is, None where Python has to decide.
"""


@cache
def receiver(library: Library | None) -> Receive | None:
    """Return what checks header, CRC and records of a batch and makes its object, in one call; None
    without a kernel, or with one that cannot.
    """
    if library is None or _load(library) is None:
        return None
    native = codec_of(library.path)
    if native is None:
        return None
    from millstream.records.batch import Batch

    slots = slots_of(Batch, ("buffer", *BATCH_FIELDS))
    if slots is None:
        return None
    places = (c_int32 * len(BATCH_FIELDS))(*(slots[name] for name in BATCH_FIELDS))
    works_with = Receiver(batch_type=id(Batch), buffer_slot=slots["buffer"], slots=places)
    return native.new(Kind.RECEIVE, works_with, Batch)


def why_not() -> str:
    """Return the reason why the Python implementation is used; empty if the kernel is."""
    if produce_library() is not None:
        return ""
    if kernel.library() is not None:
        return "the C kernel is of another version: install Millstream again"
    return kernel.describe()


@cache
def _load(library: Library | None) -> ProduceLibrary | None:
    if library is None:
        return None
    try:
        found = ProduceLibrary(library)
    except (OSError, AttributeError):
        return None
    return found if found.abi() == ABI else None
