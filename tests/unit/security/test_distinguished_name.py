"""Subjects as Java 17 prints them: ``X500Principal.getName()`` was asked for each."""

from __future__ import annotations

from base64 import b64decode

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from tests import certificates

from millstream.security.distinguished_name import BadCertificateError, name_of, subject_of

JAVA = [
    (
        "MDAxCzAJBgNVBAYTAkRFMRMwEQYDVQQKDApBY21lLCBJbmMuMQwwCgYDVQQDDANhbm4=",
        r"CN=ann,O=Acme\, Inc.,C=DE",
    ),
    ("MBsxGTAXBgNVBAMMECBsZWFkIGFuZCB0cmFpbCA=", "CN=\\ lead and trail\\ "),
    ("MBcxFTATBgNVBAMMDCNoYXNoPSs8PjsiXA==", r"CN=\#hash\=\+\<\>\;\"\\"),
    ("MB8xHTAIBgNVBAsMAXgwEQYDVQQDDApKw7xyZ2VuIMOW", "OU=x+CN=Jürgen Ö"),
    (
        "MCIxFDASBgkqhkiG9w0BCQEWBWFAYi5jMQowCAYDVQQDDAFt",
        "CN=m,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    (
        "MFAxEzARBgoJkiaJk/IsZAEZFgNvcmcxEjAQBgoJkiaJk/IsZAEBDAJ1MTEMMAoGA1UECQwDcyAxMQowCAYDVQQHDAFMMQswCQYDVQQIDAJTVA==",
        "ST=ST,L=L,STREET=s 1,UID=u1,DC=org",
    ),
    (
        "MDIxCzAJBgNVBAwMAkRyMQswCQYDVQQFEwIxMjEKMAgGA1UEKgwBZzEKMAgGAyoDBAwBdg==",
        "1.2.3.4=#0c0176,2.5.4.42=#0c0167,2.5.4.5=#13023132,2.5.4.12=#0c024472",
    ),
    ("MBQxEjAQBgNVBAMMCXRhYgloZXJlAQ==", "CN=tab\there\x01"),
    ("MBExDzANBgNVBAMeBgBiAG0AcA==", "CN=\\00b\\00m\\00p"),
    ("MBExDzANBgNVBAMUBnQ2MSDDqQ==", "CN=t61 é"),
    ("MBIxEDAOBgNVBAMMByAgdHdvICA=", "CN=\\ \\ two\\ \\ "),
    ("MBwxGjAYBgNVBAMMEWEvYjpjQGRfZSpmJmclaCEn", "CN=a/b:c@d_e*f&g%h!'"),
    ("MBAxDjAMBgNVBAMMBW51bAB4", "CN=nul\\00x"),
]


@pytest.mark.parametrize(("der", "printed"), JAVA)
def test_a_name_is_printed_as_java_prints_it(der: str, printed: str) -> None:
    name = b64decode(der)
    assert name_of(name[2:]) == printed


def test_the_subject_of_a_certificate_is_found() -> None:
    der = certificates.client("ann").certificate.public_bytes(Encoding.DER)
    assert subject_of(der) == "CN=ann"


@pytest.mark.parametrize("cut", [0, 1, 2, 10, 40, 100])
def test_bytes_that_are_no_certificate_are_refused(cut: int) -> None:
    der = certificates.client("ann").certificate.public_bytes(Encoding.DER)
    with pytest.raises(BadCertificateError):
        subject_of(der[:cut])
