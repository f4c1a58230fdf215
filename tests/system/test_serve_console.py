"""`millstream serve --console`: a console beside the broker, which ends with it."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import certificates
from tests.waiting import wait_until

pytestmark = pytest.mark.system

MILLSTREAM = [sys.executable, "-m", "millstream.cli.main"]


@contextmanager
def serving(
    directory: Path, words: Sequence[str] = (), environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str, psutil.Process]]:
    """Run a broker with a console; yield its process, the console's address and its process."""
    command = [*MILLSTREAM, "serve", "--data-dir", str(directory), "--port", "0"]
    with subprocess.Popen(
        [*command, "--console", "--console-port", "0", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            assert process.stdout is not None
            assert "listening on" in process.stdout.readline()
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            console = next(
                each
                for each in psutil.Process(process.pid).children()
                if "millstream.cli.console_beside" in each.cmdline()
            )
            yield process, found[0], console
        finally:
            process.kill()


def asked(address: str, path: str, **more: Any) -> Any:
    with urllib.request.urlopen(f"{address}{path}", timeout=30, **more) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_console_ends_with_the_broker(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as (process, address, console):
        overview = asked(address, "api/overview")
        assert len(overview["brokers"]) == 1
        assert asked(address, "api/session")["read_only"] is True
        process.send_signal(number)
        process.wait(60)
        wait_until(lambda: not console.is_running(), "the console has ended")


def test_the_console_of_several_brokers_shows_them_all(tmp_path: Path) -> None:
    with serving(tmp_path, ["--brokers", "2", "--console-writes"]) as (process, address, console):
        assert len(asked(address, "api/overview")["brokers"]) == 2
        assert asked(address, "api/session")["read_only"] is False
        process.terminate()
        assert process.wait(60) == 0
        wait_until(lambda: not console.is_running(), "the console has ended")


def test_the_settings_of_a_user_do_not_lead_the_console_elsewhere(tmp_path: Path) -> None:
    elsewhere = {"MILLSTREAM_CLIENT_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    with serving(tmp_path, environment=elsewhere) as (_, address, _console):
        assert len(asked(address, "api/overview")["brokers"]) == 1


def test_a_broker_outlives_a_console_that_cannot_start(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as (_, address, _console):
        port = address.rpartition(":")[2].strip("/")
        command = [*MILLSTREAM, "serve", "--data-dir", str(tmp_path / "two"), "--port", "0"]
        with subprocess.Popen(
            [*command, "--console-port", port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as second:
            assert second.stderr is not None
            said = next(line for line in second.stderr if "cannot listen" in line)
            assert f"127.0.0.1:{port}" in said
            assert second.poll() is None
            second.terminate()
            assert second.wait(60) == 0


def test_a_listener_with_users_needs_settings_of_a_client(tmp_path: Path) -> None:
    words = [
        "--console",
        "--override=listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "--override=inter.broker.listener.name=SASL_PLAINTEXT",
        "--override=sasl.enabled.mechanisms=PLAIN",
    ]
    command = [*MILLSTREAM, "serve", "--data-dir", str(tmp_path), *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "MILLSTREAM_CLIENT_CONFIG" in ran.stderr


# --- the command alone ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "needs --login and --tls-keystore FILE"),
        (["--host", "192.0.2.1", "--login"], "needs --tls-keystore FILE"),
        (["--login"], "needs a listener of the cluster with passwords"),
    ],
)
def test_other_addresses_are_refused_without_users_and_tls(words: list[str], said: str) -> None:
    ran = subprocess.run(
        [*MILLSTREAM, "console", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert said in ran.stderr


def test_it_serves_https_to_names_that_it_has(tmp_path: Path) -> None:
    keystore = tmp_path / "server.pem"
    mine = certificates.server("console.test")
    keystore.write_bytes(mine.key_pem() + mine.chain_pem)
    with serving(tmp_path / "data") as (_, plain, _console):
        bootstrap = asked(plain, "api/session")["bootstrap"]
        command = [*MILLSTREAM, "console", "-b", bootstrap, "--port", "0", "--name", "console.test"]
        with subprocess.Popen(
            [*command, "--tls-keystore", str(keystore)], stdout=subprocess.PIPE, text=True
        ) as console:
            try:
                assert console.stdout is not None
                line = console.stdout.readline()
                found = re.search(r"https://console\.test:(\d+)/", line)
                assert found is not None, line
                context = certificates.client_side()
                context.check_hostname = False
                place = f"https://127.0.0.1:{found[1]}/"
                for host, status in (("console.test", 200), ("evil.test", 400)):
                    request = urllib.request.Request(f"{place}api/session", headers={"host": host})
                    assert status_of(request, context) == status
            finally:
                console.terminate()


def status_of(request: urllib.request.Request, context: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
