"""The part of Unity Catalog's REST API that loads use, in this process: as its server answers, and
as it must not.

``with UnityTwin() as server``: ``server.uri`` names it. ``refuse`` and ``keys`` are what a test
makes of it. That it answers as the real server does is shown by `test_unity_catalog.py`, which runs
the same load against both.
"""

from __future__ import annotations

import http.server
import json
import threading
import uuid
from types import TracebackType
from typing import Any
from urllib.parse import unquote

_API = "/api/2.1/unity-catalog"


class UnityTwin:
    def __init__(self, *catalogs: str, token: str | None = None) -> None:
        self.token = token
        self.catalogs = set(catalogs)
        self.schemas: set[str] = set()
        self.tables: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, Any] = {}
        """The answer to a question for keys; {} is that of a server that has none."""
        self.failures: list[tuple[int, str]] = []
        """What the next requests are answered with, instead of what they ask for."""
        self.asked: list[tuple[str, str, Any]] = []

    def __enter__(self) -> UnityTwin:
        twin = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                self._answer(json.loads(self.rfile.read(size)))

            def _answer(self, body: Any) -> None:
                token = self.headers.get("Authorization")
                code, value = twin.answer(self.command, unquote(self.path), body, token)
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def answer(self, method: str, path: str, body: Any, token: str | None) -> tuple[int, Any]:
        self.asked.append((method, path.removeprefix(_API), body))
        if self.failures:
            code, text = self.failures.pop(0)
            return code, text.encode() if text.startswith("<") else _error(text, "it said so")
        if not path.startswith(_API):
            return 404, b"<html>not here</html>"
        if self.token is not None and token != f"Bearer {self.token}":
            return 401, _error("UNAUTHENTICATED", "no such token")
        kind, _, name = path.removeprefix(_API).strip("/").partition("/")
        return self._get(kind, name) if method == "GET" else self._post(kind, body)

    def _get(self, kind: str, name: str) -> tuple[int, Any]:
        there = {"catalogs": self.catalogs, "schemas": self.schemas, "tables": self.tables}[kind]
        if name not in there:
            return 404, _error(f"{kind[:-1].upper()}_NOT_FOUND", f"{name} is not there")
        return 200, self.tables[name] if kind == "tables" else {"name": name}

    def _post(self, kind: str, body: Any) -> tuple[int, Any]:
        if kind.startswith("temporary-"):
            if not self.keys:
                return 400, _error("FAILED_PRECONDITION", "no keys for that bucket")
            return 200, self.keys
        if kind == "schemas":
            if body["catalog_name"] not in self.catalogs:
                return 404, _error("CATALOG_NOT_FOUND", "no such catalogue")
            self.schemas.add(f"{body['catalog_name']}.{body['name']}")
            return 200, body
        name = f"{body['catalog_name']}.{body['schema_name']}.{body['name']}"
        if name in self.tables:
            return 400, _error("TABLE_ALREADY_EXISTS", f"Table already exists: {name}")
        self.tables[name] = {**body, "table_id": str(uuid.uuid4())}
        return 200, self.tables[name]


def _error(code: str, message: str) -> dict[str, str]:
    return {"error_code": code, "message": message}
