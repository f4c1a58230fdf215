"""The twin of ZooKeeper keeps the contract that ZooKeeper keeps."""

from __future__ import annotations

import pytest
from tests.contracts.metadata_store import MetadataStoreContract, OpenStore
from tests.memory_metadata_store import MemoryTree


class TestMemoryMetadataStore(MetadataStoreContract):
    """Every test of the contract."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        return MemoryTree().open
