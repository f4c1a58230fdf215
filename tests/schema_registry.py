"""A small schema registry for tests: Confluent's API in memory, and faults on demand."""

from __future__ import annotations

import json
import ssl
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Fault:
    """What is answered instead: a status, headers, a body of which only some bytes are sent."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    sent: int | None = None
    before: Callable[[], object] = lambda: None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no news."""


class RegistryServer:
    """The registry; ``faults`` are answered first, each once, and ``fault`` for as long as set."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.guids: dict[str, int] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.faults: list[Fault] = []
        self.fault: Fault | None = None
        self.authorization: str | None = None
        self._context = context
        self._server = _Server(("127.0.0.1", 0), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RegistryServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(
        self,
        subject: str,
        text: Any,
        *,
        kind: str = "AVRO",
        references: Any = (),
        number: int | None = None,
    ) -> int:
        """Add a version to a subject; return the schema's id."""
        schema = {
            "schema": text if isinstance(text, str) else json.dumps(text),
            "schemaType": kind,
            "references": list(references),
        }
        known = [each for each, other in self.schemas.items() if other == schema]
        number = number or (known[0] if known else max(self.schemas, default=0) + 1)
        self.schemas[number] = schema
        self.guids.setdefault(str(uuid.uuid5(uuid.NAMESPACE_URL, str(number))), number)
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def guid(self, number: int) -> uuid.UUID:
        return next(uuid.UUID(each) for each, other in self.guids.items() if other == number)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
            case ["schemas", "ids", text]:
                return self._schema(int(text))
            case ["schemas", "guids", text]:
                return self._schema(self.guids.get(text, -1))
            case ["subjects", subject, "versions"] if method == "POST":
                number = self.register(
                    subject,
                    body["schema"],
                    kind=body.get("schemaType", "AVRO"),
                    references=body.get("references", ()),
                )
                guid = str(self.guid(number))
                return 200, {"id": number, "guid": guid, **self.schemas[number]}
            case ["subjects", subject, "versions", which] if method == "GET":
                return self._version(subject, which)
            case ["subjects", subject] if method == "POST":
                for place, number in enumerate(self.subjects.get(subject, ()), 1):
                    if self.schemas[number]["schema"] == body["schema"]:
                        return 200, {"subject": subject, "version": place, "id": number}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _schema(self, number: int) -> tuple[int, Any]:
        if number not in self.schemas:
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        found = self.schemas[number]
        if found["schemaType"] == "AVRO":  # as Confluent's leaves it out
            found = {"schema": found["schema"], "references": found["references"]}
        return 200, found

    def _version(self, subject: str, which: str) -> tuple[int, Any]:
        versions = self.subjects.get(subject)
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        version = len(versions) if which == "latest" else int(which)
        if not 1 <= version <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {which} not found."}
        number = versions[version - 1]
        guid = str(self.guid(number))
        found = {"subject": subject, "version": version, "id": number, "guid": guid}
        return 200, {**found, **self.schemas[number]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.authorizations.append(self.headers.get("Authorization"))
                fault = registry.faults.pop(0) if registry.faults else registry.fault
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                if fault is not None:
                    self._send(fault)
                    return
                wanted = registry.authorization
                if wanted is not None and self.headers.get("Authorization") != wanted:
                    status, value = 401, {"error_code": 401, "message": "Unauthorized"}
                else:
                    status, value = registry.answer(self.command, self.path, body)
                kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
                self._send(Fault(status, json.dumps(value).encode(), kind))

            do_POST = do_GET  # noqa: N815

            def _send(self, fault: Fault) -> None:
                fault.before()
                self.send_response(fault.status)
                for name, value in fault.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(fault.body)))
                self.end_headers()
                self.wfile.write(fault.body[: fault.sent])
                if fault.sent is not None:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
