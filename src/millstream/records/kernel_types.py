"""The structures of ``native/kernel.h``, field by field."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_void_p
from typing import TYPE_CHECKING, Final, NoReturn

from millstream.model.errors import CorruptLogError
from millstream.records.compression import Codec

if TYPE_CHECKING:  # a broker that only appends builds no batches
    from millstream.records.builder import BatchOptions

OK: Final = 0
CAPACITY: Final = 6
BATCH_HEADER: Final = 7
CRC: Final = 8
COLUMN: Final = 9
PARTITION: Final = 10
OBJECT: Final = 11

REASONS: Final = {
    1: "a number does not end",
    2: "a field runs past its record",
    3: "a record does not fill its length",
    4: "a header does not fit its record or has no key",
    5: "the records do not fill the batch",
    CAPACITY: "the records changed while they were read",
    BATCH_HEADER: "no batch header",
    CRC: "the checksum does not hold",
    COLUMN: "the column's offsets do not fit its data",
    PARTITION: "there is no such partition",
    OBJECT: "an object could not be made",
}


class Structure(ctypes.Structure):
    """A structure with its address."""

    @property
    def address(self) -> int:
        """The address; the structure must outlive its use."""
        return ctypes.addressof(self)


class Fault(Structure):
    """``ms_fault``: what went wrong, in which batch or row, at which byte."""

    _fields_ = (("code", c_int64), ("index", c_int64), ("position", c_int64))
    code: int
    index: int
    position: int

    def raise_corrupt(self, base_offset: int) -> NoReturn:
        """Raise CorruptLogError for the records of the batch at ``base_offset``."""
        raise CorruptLogError(
            f"the batch at offset {base_offset} does not hold its records: "
            f"{REASONS.get(self.code, self.code)}, at byte {self.position} of them"
        )


class BatchEntry(Structure):
    """``ms_batch``: one batch and the address of its decompressed records."""

    _fields_ = (
        ("records", c_void_p),
        ("size", c_int64),
        ("position", c_int64),
        ("base_offset", c_int64),
        ("base_timestamp", c_int64),
        ("max_timestamp", c_int64),
        ("count", c_int32),
        ("attributes", c_int32),
    )
    records: int
    size: int
    position: int
    base_offset: int
    base_timestamp: int
    max_timestamp: int
    count: int
    attributes: int


class Walk(Structure):
    """``ms_walk``: the progress of a search for batches."""

    _fields_ = tuple(
        (name, c_int64)
        for name in ("found", "position", "next_offset", "at_end", "rows", "compressed")
    )
    found: int
    position: int
    next_offset: int
    at_end: int
    rows: int
    compressed: int


class Sizes(Structure):
    """``ms_sizes``: rows and bytes of what will be decoded."""

    _fields_ = tuple(
        (name, c_int64)
        for name in (
            "rows",
            "key_bytes",
            "value_bytes",
            "headers",
            "header_key_bytes",
            "header_value_bytes",
        )
    )
    rows: int
    key_bytes: int
    value_bytes: int
    headers: int
    header_key_bytes: int
    header_value_bytes: int


class BinaryOut(Structure):
    """``ms_binary_out``: the output buffers of a column of byte strings."""

    _fields_ = (
        ("offsets", c_void_p),
        ("data", c_void_p),
        ("validity", c_void_p),
        ("capacity", c_int64),
        ("nulls", c_int64),
    )
    offsets: int | None
    data: int | None
    validity: int | None
    capacity: int
    nulls: int


class Columns(Structure):
    """``ms_columns``: the output buffers of decoded columns; None skips a column."""

    _fields_ = (
        ("offset", c_void_p),
        ("timestamp", c_void_p),
        ("timestamp_factor", c_int64),
        ("timestamp_type", c_void_p),
        ("key", BinaryOut),
        ("value", BinaryOut),
        ("header_offsets", c_void_p),
        ("header_validity", c_void_p),
        ("header_nulls", c_int64),
        ("header_capacity", c_int64),
        ("header_key", BinaryOut),
        ("header_value", BinaryOut),
        ("rows", c_int64),
    )
    offset: int | None
    timestamp: int | None
    timestamp_factor: int
    timestamp_type: int | None
    key: BinaryOut
    value: BinaryOut
    header_offsets: int | None
    header_validity: int | None
    header_nulls: int
    header_capacity: int
    header_key: BinaryOut
    header_value: BinaryOut
    rows: int


CELL_COLUMNS: Final = (
    "offset",
    "timestamp",
    "key_start",
    "key_stop",
    "value_start",
    "value_stop",
    "header_count",
)
HEADER_COLUMNS: Final = (
    "header_key_start",
    "header_key_stop",
    "header_value_start",
    "header_value_stop",
)


class CellsOut(Structure):
    """``ms_cells``: the output of record positions."""

    _fields_ = (
        *((name, c_void_p) for name in (*CELL_COLUMNS, *HEADER_COLUMNS)),
        ("rows", c_int64),
        ("headers", c_int64),
    )
    rows: int
    headers: int


class Interpreter(Structure):
    """``ms_python``: the functions with which the kernel creates Python objects."""

    _fields_ = tuple(
        (name, c_void_p)
        for name in (
            "new_bytes",
            "new_int",
            "new_text",
            "new_tuple",
            "new_instance",
            "set_in_tuple",
            "set_in_list",
            "keep",
            "drop",
            "leave_out",
            "none",
            "no_headers",
        )
    )

    @classmethod
    def this(cls) -> Interpreter:
        """Return the functions of the running interpreter; AttributeError if one is missing."""
        python = ctypes.pythonapi
        functions = (
            python.PyBytes_FromStringAndSize,
            python.PyLong_FromLongLong,
            python.PyUnicode_DecodeUTF8,
            python.PyTuple_New,
            python.PyType_GenericAlloc,
            python.PyTuple_SetItem,
            python.PyList_SetItem,
            python.Py_IncRef,
            python.Py_DecRef,
            python.PyObject_GC_UnTrack,
        )
        addresses = [ctypes.cast(each, c_void_p).value for each in functions]
        # None and the empty tuple live as long as the interpreter.
        return cls(*addresses, id(None), id(()))


class BinaryIn(Structure):
    """``ms_binary_in``: a column of byte strings in Arrow's layout."""

    _fields_ = (
        ("offsets", c_void_p),
        ("data", c_void_p),
        ("validity", c_void_p),
        ("data_size", c_int64),
        ("first", c_int64),
        ("wide", c_int64),
    )
    offsets: int | None
    data: int | None
    validity: int | None
    data_size: int
    first: int
    wide: int


class TableIn(Structure):
    """``ms_table``: rows to encode."""

    _fields_ = (
        ("rows", c_int64),
        ("timestamp", c_void_p),
        ("timestamp_validity", c_void_p),
        ("timestamp_first", c_int64),
        ("timestamp_per_ms", c_int64),
        ("default_timestamp", c_int64),
        ("key", BinaryIn),
        ("value", BinaryIn),
        ("header_offsets", c_void_p),
        ("header_validity", c_void_p),
        ("header_first", c_int64),
        ("header_wide", c_int64),
        ("header_rows", c_int64),
        ("header_key", BinaryIn),
        ("header_value", BinaryIn),
    )
    rows: int
    timestamp: int | None
    timestamp_validity: int | None
    timestamp_first: int
    timestamp_per_ms: int
    default_timestamp: int
    key: BinaryIn
    value: BinaryIn
    header_offsets: int | None
    header_validity: int | None
    header_first: int
    header_wide: int
    header_rows: int
    header_key: BinaryIn
    header_value: BinaryIn


class BatchFields(Structure):
    """``ms_batch_options``: the fields of batch headers."""

    _fields_ = (
        ("base_offset", c_int64),
        ("producer_id", c_int64),
        ("log_append_time", c_int64),
        ("attributes", c_int32),
        ("leader_epoch", c_int32),
        ("producer_epoch", c_int32),
        ("base_sequence", c_int32),
        ("batch_bytes", c_int32),
        ("checksum", c_int32),
    )
    base_sequence: int

    @classmethod
    def of(cls, options: BatchOptions, batch_bytes: int = 0) -> BatchFields:
        """Return the fields of ``options``; the CRC is left out for batches that are compressed
        later.
        """
        return cls(
            base_offset=options.base_offset,
            producer_id=options.producer_id,
            log_append_time=options.log_append_time_ms or 0,
            attributes=options.attributes,
            leader_epoch=options.leader_epoch,
            producer_epoch=options.producer_epoch,
            base_sequence=options.base_sequence,
            batch_bytes=batch_bytes,
            checksum=options.has_crc and options.codec is Codec.NONE,
        )


class Written(Structure):
    """``ms_written``: a batch in the output."""

    _fields_ = tuple(
        (name, c_int64) for name in ("position", "size", "count", "base_timestamp", "max_timestamp")
    )
    position: int
    size: int
    count: int
    base_timestamp: int
    max_timestamp: int


class Run(Structure):
    """``ms_run``: contiguous byte strings."""

    _fields_ = (("lengths", c_void_p), ("data", c_void_p), ("size", c_int64))
    lengths: int | None
    data: int | None
    size: int
