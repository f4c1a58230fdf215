"""What every metadata store must do: derive a test class and say how to open one.

The same tests run over the embedded file and over a real ZooKeeper. A deriving class defines the
fixture ``open_store``: a function that returns a new store (a new session) over one tree, which
is empty at the start of the test.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

import pytest

from millstream.model.deferred import Deferred
from millstream.model.metadata_store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
)

T = TypeVar("T")

OpenStore: TypeAlias = Callable[[], MetadataStore]


class MetadataStoreContract:
    """The tests. ``wait`` gives a store that works on threads the time to fill a Deferred, and
    ``until`` the time to tell a watch, which may come later than the answer to the change.
    """

    def wait(self, deferred: Deferred[T]) -> T:
        return deferred.result()

    def until(self, condition: Callable[[], bool]) -> None:
        assert condition()

    def test_a_new_node_has_version_0_and_its_data(self, open_store: OpenStore) -> None:
        store = open_store()
        (done,) = self.wait(store.multi([Create("/a", b"one")]))
        node = self.wait(store.get("/a"))
        assert (node.data, node.version, node.ephemeral) == (b"one", 0, False)
        assert (done.version, done.creation_id) == (0, node.creation_id)

    def test_an_absent_node_is_an_error(self, open_store: OpenStore) -> None:
        store = open_store()
        with pytest.raises(NoNodeError) as raised:
            self.wait(store.get("/a"))
        assert raised.value.path == "/a"
        with pytest.raises(NoNodeError) as raised:
            self.wait(store.children("/a"))
        assert raised.value.path == "/a"

    def test_many_nodes_are_read_and_the_absent_left_out(self, open_store: OpenStore) -> None:
        store = open_store()
        names = [f"/a{number}" for number in range(1_200)]
        self.wait(store.multi([Create(name, name.encode()) for name in names]))
        self.wait(store.multi([SetData("/a7", b"")]))
        found = self.wait(store.get_all(["/none", *names, "/a1/none"]))
        assert list(found) == names
        assert found["/a7"] == self.wait(store.get("/a7"))
        assert found["/a7"].version == 1
        assert found["/a1199"].data == b"/a1199"
        assert self.wait(store.get_all([])) == {}

    def test_a_set_raises_the_version_and_keeps_the_creation_id(
        self, open_store: OpenStore
    ) -> None:
        store = open_store()
        (created,) = self.wait(store.multi([Create("/a", b"")]))
        (done,) = self.wait(store.multi([SetData("/a", b"two", 0)]))
        assert (done.version, done.creation_id) == (1, created.creation_id)
        assert self.wait(store.get("/a")).data == b"two"

    @pytest.mark.parametrize(
        "stale",
        [SetData("/a", b"x", 1), Delete("/a", 1), Check("/a", 1)],
        ids=lambda o: type(o).__name__,
    )
    def test_another_version_is_refused(
        self, open_store: OpenStore, stale: SetData | Delete | Check
    ) -> None:
        store = open_store()
        self.wait(store.multi([Create("/a", b"one")]))
        with pytest.raises(BadVersionError) as raised:
            self.wait(store.multi([stale]))
        assert raised.value.path == "/a"
        assert self.wait(store.get("/a")).data == b"one"

    def test_any_version_is_accepted(self, open_store: OpenStore) -> None:
        store = open_store()
        self.wait(store.multi([Create("/a", b""), SetData("/a", b"1"), SetData("/a", b"2")]))
        assert self.wait(store.get("/a")).version == 2
        self.wait(store.multi([Delete("/a", ANY_VERSION)]))
        with pytest.raises(NoNodeError):
            self.wait(store.get("/a"))

    @pytest.mark.parametrize(
        "operation",
        [SetData("/none", b""), Delete("/none"), Check("/none", 0), Create("/none/b", b"")],
        ids=lambda o: type(o).__name__,
    )
    def test_an_operation_on_an_absent_node_is_refused(
        self, open_store: OpenStore, operation: SetData | Delete | Check | Create
    ) -> None:
        store = open_store()
        with pytest.raises(NoNodeError) as raised:
            self.wait(store.multi([operation]))
        assert raised.value.path == operation.path

    def test_a_node_is_created_once(self, open_store: OpenStore) -> None:
        store = open_store()
        self.wait(store.multi([Create("/a", b"one")]))
        with pytest.raises(NodeExistsError) as raised:
            self.wait(store.multi([Create("/a", b"two")]))
        assert raised.value.path == "/a"

    def test_a_node_with_children_is_not_deleted(self, open_store: OpenStore) -> None:
        store = open_store()
        self.wait(store.multi([Create("/a", b""), Create("/a/b", b"")]))
        with pytest.raises(NotEmptyError):
            self.wait(store.multi([Delete("/a")]))
        self.wait(store.multi([Delete("/a/b"), Delete("/a")]))

    def test_children_are_names_in_order(self, open_store: OpenStore) -> None:
        store = open_store()
        names = ["b", "a", "a.b", "10", "9"]
        self.wait(store.multi([Create("/x", b""), *(Create(f"/x/{n}", b"") for n in names)]))
        self.wait(store.multi([Create("/x/a/inner", b"")]))
        assert self.wait(store.children("/x")) == tuple(sorted(names))
        assert self.wait(store.children("/x/b")) == ()
        assert "x" in self.wait(store.children("/"))

    def test_a_tree_is_a_node_and_all_below_it(self, open_store: OpenStore) -> None:
        store = open_store()
        paths = ["/x", "/x/a", "/x/a/b", "/x-y", "/x0", "/w"]
        self.wait(store.multi([Create(path, path.encode()) for path in paths]))
        tree = self.wait(store.tree("/x"))
        assert list(tree) == ["/x", "/x/a", "/x/a/b"]
        assert all(node.data == path.encode() for path, node in tree.items())
        assert self.wait(store.tree("/none")) == {}
        everything = self.wait(store.tree("/"))
        assert set(paths) <= set(everything)

    def test_a_multi_is_all_or_nothing(self, open_store: OpenStore) -> None:
        store = open_store()
        self.wait(store.multi([Create("/a", b"one")]))
        with pytest.raises(MetadataStoreError) as raised:
            self.wait(
                store.multi(
                    [Create("/b", b""), SetData("/a", b"two"), Check("/a", 7), Create("/a", b"")]
                )
            )
        assert isinstance(raised.value, BadVersionError)  # the first that could not be
        assert self.wait(store.get("/a")).data == b"one"
        with pytest.raises(NoNodeError):
            self.wait(store.get("/b"))

    def test_operations_of_a_multi_see_those_before(self, open_store: OpenStore) -> None:
        store = open_store()
        done = self.wait(
            store.multi(
                [Create("/a", b""), Create("/a/b", b""), SetData("/a", b"", 0), Check("/a", 1)]
            )
        )
        assert [each.version for each in done] == [0, 0, 1, 1]
        assert len({each.creation_id for each in done}) == 1

    def test_creation_ids_grow_and_are_never_used_again(self, open_store: OpenStore) -> None:
        store = open_store()
        ids = []
        for _ in range(3):
            (done,) = self.wait(store.multi([Create("/a", b"")]))
            ids.append(done.creation_id)
            self.wait(store.multi([Delete("/a")]))
        self.wait(store.close())
        store = open_store()
        (done,) = self.wait(store.multi([Create("/a", b"")]))
        ids.append(done.creation_id)
        assert ids == sorted(set(ids))

    def test_nodes_outlive_the_session_and_ephemeral_ones_do_not(
        self, open_store: OpenStore
    ) -> None:
        store = open_store()
        self.wait(store.multi([Create("/a", b""), Create("/b", b"", ephemeral=True)]))
        assert self.wait(store.get("/b")).ephemeral
        self.wait(store.close())
        store = open_store()
        assert not self.wait(store.get("/a")).ephemeral
        with pytest.raises(NoNodeError):
            self.wait(store.get("/b"))

    def test_data_is_bytes_of_any_kind(self, open_store: OpenStore) -> None:
        store = open_store()
        data = bytes(range(256)) * 40
        self.wait(store.multi([Create("/a", data), Create("/b", b"")]))
        assert self.wait(store.get("/a")).data == data
        assert self.wait(store.get("/b")).data == b""

    def test_a_watch_tells_of_the_node_and_of_its_children(self, open_store: OpenStore) -> None:
        store = open_store()
        told: list[str] = []
        for path in ("/a", "/a/b"):
            store.watch(path, told.append)
        for operation, expected in (
            (Create("/a", b""), {"/a"}),
            (Create("/a/b", b""), {"/a", "/a/b"}),
            (SetData("/a/b", b"x"), {"/a/b"}),
            (Delete("/a/b"), {"/a", "/a/b"}),
        ):
            self.wait(store.multi([operation]))
            # A change is told once, so nothing of this one comes after the list is cleared.
            self.until(partial(expected.issubset, told))
            assert set(told) == expected
            told.clear()

    def test_a_watch_is_silent_when_nothing_changed(self, open_store: OpenStore) -> None:
        store = open_store()
        self.wait(store.multi([Create("/a", b"")]))
        told: list[str] = []
        store.watch("/a", told.append)
        self.wait(store.multi([Check("/a", 0)]))
        with pytest.raises(MetadataStoreError):
            self.wait(store.multi([SetData("/a", b"x"), Check("/a", 0)]))
        assert told == []
