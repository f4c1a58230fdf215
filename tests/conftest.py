"""Fixtures that several rooms of the tests share."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import examples, forks
from tests.broker_process import BrokerProcess
from tests.spreading import spread

from millstream.records import kernel
from millstream.sqlite.database import Database

SPARK = Path(__file__).parent / "spark"
SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make check` and `make test` have no time for all examples of the property tests, nor for a
    fresh interpreter for every broker.
    """
    parser.addoption(
        "--one-example-of",
        type=int,
        default=1,
        metavar="N",
        help="draw one of so many examples of property tests",
    )
    parser.addoption(
        "--own-interpreters",
        action="store_true",
        help="a fresh interpreter for each command that a test starts, not a fork of a loaded one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let child processes heed Ctrl-C and the end of a terminal, also where a shell in the
    background or nohup has them ignored, and hold no example of a property to a time: the machine
    that runs it may be busy.
    """
    examples.SHARE = config.getoption("--one-example-of")
    if not config.getoption("--own-interpreters"):
        forks.install()
    settings.register_profile(
        "untimed",
        deadline=None,
        max_examples=examples.examples(100),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("untimed")
    # A JVM of these tests lives for seconds: what it compiles well it seldom runs again.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(SHORT_LIVED_JVM))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(SHORT_LIVED_JVM))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_IGN:
        signal.signal(hangup, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the files whose tests wait for processes evenly among those whose tests compute, so
    that the workers of a whole run have both at any time.
    """
    for each in items:
        marks = {mark.name for mark in each.iter_markers()}
        if "spark" in marks and not marks & {"long", "java"} and SPARK not in each.path.parents:
            raise pytest.UsageError(f"{each.nodeid}: `make test` has Spark for {SPARK} alone")
    waiting: list[list[pytest.Item]] = []
    computing: list[list[pytest.Item]] = []
    for _, tests in itertools.groupby(items, key=lambda item: item.path):
        of_file = list(tests)
        waits = any(of_file[0].iter_markers("system")) or any(of_file[0].iter_markers("interop"))
        (waiting if waits else computing).append(of_file)
    items[:] = itertools.chain(*spread(waiting, computing))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the tests that are found, and all the modules they import, from the garbage collector.

    They stay until the end, and are so many that each full collection takes 0.3 s of CPU to look
    through them: a tenth of the fast tests' whole time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say whether what this test and its fixtures start may be forked."""
    forks.may_fork = item.get_closest_marker("own_interpreter") is None


def pytest_unconfigure() -> None:
    """Let extension modules find their objects when the process ends."""
    forks.close()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def forget_the_command_line() -> Iterator[None]:
    """A command that a test has run in its own process would leave its options and its handlers of
    signals to the next test.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    options = sys.modules.get("millstream.cli.client_options")
    if options is not None:
        options._Given.profile = options._Given.file = None
        options._Given.items = ()
        options._Given.timeout_ms = None


@pytest.fixture(autouse=True, scope="module")
def end_stores() -> Iterator[None]:
    """Close the metadata stores of brokers that a module's tests have killed in their own process,
    as the kernel does where a process ends. From Python 3.13 on a connection to SQLite that is
    forgotten while it is open is warned of.
    """
    opened: list[Database] = []
    open_database = Database._open

    def open_and_note(database: Database) -> None:
        opened.append(database)
        open_database(database)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_open", open_and_note)
        yield
    for each in opened:
        each.abandon()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker process for all tests of this worker; topics need names of their own.

    Records of tests are often years old: retention, which looks every five minutes, keeps them.
    """
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"log.retention.ms": "-1"}) as process:
        yield process


@pytest.fixture(scope="module", params=["c", "python"])
def each_kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a module's tests with the columns kernel, and again without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(kernel, "_loaded", None)
        elif kernel.library() is None:
            pytest.skip(kernel.describe())
        yield request.param


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Make topic names that no other test uses."""
    counter = itertools.count()
    name = f"{request.node.path.stem}-{request.node.name}".replace("test_", "")
    stem = "".join(c if c.isalnum() else "-" for c in name)[:100].strip("-")
    return lambda: f"{stem}-{next(counter)}"
