"""The functions of the running interpreter, for C that makes Python objects.

They go to the library as addresses (``native/interpreter.h``), so it is compiled without the
headers of any Python and works with every one that has the stable ABI of 3.11. What it takes for
granted about the layout of objects is tried out here first.
"""

from __future__ import annotations

import ctypes
from ctypes import c_size_t, c_void_p
from typing import Final

_WORD: Final = ctypes.sizeof(c_void_p)

_FUNCTIONS: Final = {
    "new_instance": "PyType_GenericAlloc",
    "new_int": "PyLong_FromLongLong",
    "new_float": "PyFloat_FromDouble",
    "new_text": "PyUnicode_DecodeUTF8",
    "new_bytes": "PyBytes_FromStringAndSize",
    "new_list": "PyList_New",
    "new_tuple": "PyTuple_New",
    "new_view": "PyMemoryView_FromObject",
    "new_slice": "PySlice_New",
    "new_function": "PyCFunction_NewEx",
    "new_capsule": "PyCapsule_New",
    "capsule_pointer": "PyCapsule_GetPointer",
    "set_in_list": "PyList_SetItem",
    "set_in_tuple": "PyTuple_SetItem",
    "append": "PyList_Append",
    "list_item": "PyList_GetItem",
    "tuple_item": "PyTuple_GetItem",
    "item": "PyObject_GetItem",
    "size": "PyObject_Size",
    "call": "PyObject_CallObject",
    "as_int": "PyLong_AsLongLongAndOverflow",
    "as_float": "PyFloat_AsDouble",
    "as_text": "PyUnicode_AsUTF8AndSize",
    "as_bytes": "PyBytes_AsString",
    "is_true": "PyObject_IsTrue",
    "compare": "PyObject_RichCompareBool",
    "get_buffer": "PyObject_GetBuffer",
    "release_buffer": "PyBuffer_Release",
    "keep": "Py_IncRef",
    "drop": "Py_DecRef",
    "error": "PyErr_Occurred",
    "clear_error": "PyErr_Clear",
    "is_error": "PyErr_ExceptionMatches",
}

_OWN_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    BufferError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
"""What Python's functions raise for a value, a length or bytes that are not right."""

_OBJECTS: Final[dict[str, object]] = {
    "none": None,
    "yes": True,
    "no": False,
    "int_type": int,
    "text_type": str,
    "bytes_type": bytes,
    "bytearray_type": bytearray,
    "list_type": list,
    "tuple_type": tuple,
    "view_type": memoryview,
    "own_errors": _OWN_ERRORS,
}
"""They live as long as the interpreter: :meth:`Interpreter.this` sees to it."""


class Interpreter(ctypes.Structure):
    """``ms_interpreter``."""

    _fields_ = tuple((name, c_void_p) for name in (*_FUNCTIONS, *_OBJECTS))

    @classmethod
    def this(cls) -> Interpreter | None:
        """Return the interpreter that runs; None for one whose objects look different."""
        python = getattr(ctypes, "pythonapi", None)
        if python is None or object.__basicsize__ != 2 * _WORD:
            return None
        if type_word(1.5) != id(float):
            return None
        try:
            functions = [getattr(python, name) for name in _FUNCTIONS.values()]
        except AttributeError:
            return None
        keep_for_good(_OWN_ERRORS)
        addresses = [ctypes.cast(each, c_void_p).value for each in functions]
        return cls(*addresses, *map(id, _OBJECTS.values()))


def keep_for_good(value: object) -> None:
    """Keep an object of which C knows the address, also when the interpreter ends: it empties the
    modules then, and what they hold goes while other objects may still call functions in C.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def type_word(value: object) -> int:
    """Return the word of an object in which its type is expected."""
    return c_size_t.from_address(id(value) + _WORD).value


def slots_of(cls: type, names: tuple[str, ...]) -> dict[str, int] | None:
    """Return where the objects of a class keep its ``__slots__``, in bytes; None if they are not
    found there.
    """
    probe: object = object.__new__(cls)
    marks = {name: object() for name in names}
    for name, mark in marks.items():
        setattr(probe, name, mark)
    words = (c_size_t * (cls.__basicsize__ // _WORD)).from_address(id(probe))
    places = {word: index * _WORD for index, word in enumerate(words)}
    slots = {name: places.get(id(mark)) for name, mark in marks.items()}
    if None in slots.values():
        return None
    return {name: place for name, place in slots.items() if place is not None}
