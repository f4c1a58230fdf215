"""The subject of a certificate as Java prints it: the name of a client that TLS authenticates.

Java: ``X500Principal.getName()``, RFC 2253: the most specific part first, ``CN=ann,O=Acme,C=DE``.
Attributes that the RFC has no keyword for are printed as ``OID=#`` and their DER in hex. Rules of
access and mapping rules are written for these texts, so every character counts.

Only the few fields on the way to the subject are read; a certificate that is read here has been
verified by TLS before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from millstream.model.errors import MillstreamError

_KEYWORDS: Final[Mapping[str, str]] = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""The tags of character strings: UTF8, Printable, Teletex, IA5, General, Universal, BMP."""

_ESCAPED: Final = frozenset(',=+<>#;"\\')
_VERSION_TAG: Final = 0xA0


class BadCertificateError(MillstreamError):
    """The bytes are not those of a certificate."""


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER; BadCertificateError when it has none."""
    try:
        (_, whole), *_ = _elements(certificate)
        (_, signed), *_ = _elements(whole)
        fields = list(_elements(signed))
        if fields[0][0] == _VERSION_TAG:
            del fields[0]
        _, _, _, _, (_, subject), *_ = fields  # serial, algorithm, issuer, validity, subject
        return name_of(subject)
    except (IndexError, ValueError) as error:
        raise BadCertificateError("the certificate cannot be read") from error


def name_of(name: bytes) -> str:
    """Return a name in DER, without its own tag and length, as Java prints it."""
    parts = [_relative(part) for _, part in _elements(name)]
    return ",".join(reversed(parts))


def _relative(part: bytes) -> str:
    return "+".join(_attribute(attribute) for _, attribute in _elements(part))


def _attribute(attribute: bytes) -> str:
    (_, identifier), (tag, value) = _elements(attribute)
    oid = _dotted(identifier)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or oid}=#{attribute[2 + len(identifier) :].hex()}"
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    if not inner:
        return "\\ " * len(text)
    lead = len(text) - len(text.lstrip(" "))
    trail = len(text) - lead - len(inner)
    escaped = "".join(
        f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in inner
    )
    return "\\ " * lead + escaped + "\\ " * trail


def _dotted(identifier: bytes) -> str:
    first = True
    numbers: list[int] = []
    number = 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if byte & 0x80:
            continue
        if first:
            root = min(number // 40, 2)
            numbers += [root, number - 40 * root]
            first = False
        else:
            numbers.append(number)
        number = 0
    return ".".join(map(str, numbers))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element; ValueError when they are cut short."""
    position = 0
    while position < len(data):
        tag = data[position]
        size = data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count])
            position += count
        if position + size > len(data):
            raise ValueError("cut short")
        yield tag, data[position : position + size]
        position += size
