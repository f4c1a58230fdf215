"""`millstream cert`: a private certificate authority, and certificates of brokers and clients.

For trying out TLS and for clusters that no other authority serves. The authority's key lies in the
directory beside its certificate: whoever reads it can sign for anybody.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.cli.failures import CommandFailedError
from millstream.cli.full_disks import naming

if TYPE_CHECKING:
    from millstream.security.certificates import Authority, Certificate

app = typer.Typer(help="Certificates for TLS.", no_args_is_help=True)

_CA: Final = "ca.pem"
_CA_KEY: Final = "ca-key.pem"

Directory = Annotated[
    Path, typer.Option("--dir", help="Directory of the authority and of what it signs.")
]
Days = Annotated[int, typer.Option(help="Days for which the certificate is valid.", min=1)]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        help="File whose first line becomes the password of a PKCS12 store, which is written too."
    ),
]
_HERE: Final = Path("millstream-certificates")


@app.callback()
def cert() -> None:
    """Make a private certificate authority, and certificates of brokers and clients."""


@app.command()
def authority(
    directory: Directory = _HERE,
    name: Annotated[str, typer.Option(help="Name of the authority.")] = "Millstream authority",
    days: Days = 3650,
) -> None:
    """Create a certificate authority: ca.pem for everybody, and ca-key.pem, which must be kept
    secret.
    """
    from millstream.security.certificates import Authority

    directory.mkdir(parents=True, exist_ok=True)
    made = Authority.make(name, now=datetime.now(UTC), days=days)
    # The key first: it is never written over, and neither is the certificate then.
    _write(directory / _CA_KEY, made.own.key_pem(), secret=True)
    _write(directory / _CA, made.trust_pem)
    print(f"made {directory / _CA} and its key")


@app.command()
def server(
    host: Annotated[
        list[str],
        typer.Option(help="Name or address that clients connect to; may be repeated."),
    ],
    name: Annotated[str, typer.Option(help="Prefix of the file names.")] = "server",
    directory: Directory = _HERE,
    days: Days = 825,
    password_file: PasswordFile = None,
) -> None:
    """Create a certificate for a broker, and print the settings that use it."""
    signed = _authority(directory).server(host, now=datetime.now(UTC), days=days)
    path = _keep(directory, name, signed, password_file)
    print("ssl.keystore.type=PEM")
    print(f"ssl.keystore.location={path}")
    print("ssl.truststore.type=PEM")
    print(f"ssl.truststore.location={(directory / _CA).absolute()}")


@app.command()
def client(
    user: Annotated[str, typer.Argument(help="The common name: the client is User:CN=USER.")],
    directory: Directory = _HERE,
    days: Days = 825,
    password_file: PasswordFile = None,
) -> None:
    """Create a certificate for a client, and print the settings that use it."""
    if not user or set(user) & set("/\\\0") or user.startswith("."):
        raise typer.BadParameter("it is used as the name of a file", param_hint="USER")
    signed = _authority(directory).client(user, now=datetime.now(UTC), days=days)
    path = _keep(directory, f"client-{user}", signed, password_file)
    print("security.protocol=SSL")
    print("ssl.keystore.type=PEM")
    print(f"ssl.keystore.location={path}")
    print("ssl.truststore.type=PEM")
    print(f"ssl.truststore.location={(directory / _CA).absolute()}")


def _authority(directory: Path) -> Authority:
    from millstream.security.certificates import Authority

    try:
        certificate = (directory / _CA).read_bytes()
        key = (directory / _CA_KEY).read_bytes()
    except OSError as error:
        raise CommandFailedError(
            f"no authority in {directory} ({error.strerror}): create one with millstream cert "
            f"authority --dir {directory}"
        ) from error
    return Authority.read(certificate, key, None)


def _keep(directory: Path, name: str, signed: Certificate, password_file: Path | None) -> Path:
    """Write a certificate and its key, as PEM and where a password is given as PKCS12; return the
    path of the PEM file.
    """
    path = (directory / f"{name}.pem").absolute()
    password = None
    if password_file is not None:
        lines = password_file.read_text().splitlines()
        if not lines or not lines[0]:
            raise CommandFailedError(f"{password_file} has no password in its first line")
        password = lines[0]
    _write(path, signed.key_pem() + signed.chain_pem, secret=True)
    if password is not None:
        store = directory / f"{name}.p12"
        _write(store, signed.pkcs12(name, password), secret=True)
        print(f"# as PKCS12: {store.absolute()}")
    return path


def _write(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Write a new file; what is there already is never replaced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(path, flags, 0o600 if secret else 0o644)
    except FileExistsError:
        raise CommandFailedError(f"{path} already exists") from None
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be written: {error.strerror}") from error
    with naming(path), os.fdopen(descriptor, "wb") as file:
        file.write(data)
