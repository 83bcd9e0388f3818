"""librdkafka's mock cluster: one broker in this process's memory, gone with it.

It serves produce (idempotent too), fetch and one member in each group; no admin calls. Topics appear
with four partitions when a client asks about them.

The mock lets a group wait three seconds for members that may come. Only librdkafka's C functions can tell it not to,
so the cluster is made through them where the wheel brings its library, and through the Python client elsewhere.
"""

from __future__ import annotations

import ctypes
from itertools import chain
from pathlib import Path

import confluent_kafka

_READY_SECONDS = 10.0
_PRODUCER = 0
_ERROR_BYTES = 512
_SETTINGS = {"bootstrap.servers": "unused:1", "test.mock.num.brokers": "1", "log_level": "3"}


class MockKafka:
    """Runs from construction to `close()`."""

    def __init__(self) -> None:
        library = _bundled_library()
        self._owner: _QuickCluster | _PlainCluster | None = (
            _PlainCluster() if library is None else _QuickCluster(library)
        )
        self.bootstrap = self._owner.bootstrap

    def close(self) -> None:
        """Every record is lost with it."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()


class _PlainCluster:
    def __init__(self) -> None:
        self._producer: confluent_kafka.Producer | None = confluent_kafka.Producer(_SETTINGS)
        brokers = self._producer.list_topics(timeout=_READY_SECONDS).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def close(self) -> None:
        self._producer = None


class _QuickCluster:
    """A group's first member gets its partitions at once."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        settings = ctypes.c_void_p(library.rd_kafka_conf_new())
        for name, value in _SETTINGS.items():
            library.rd_kafka_conf_set(settings, name.encode(), value.encode(), error, _ERROR_BYTES)
        self._handle = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, settings, error, _ERROR_BYTES))
        if self._handle.value is None:
            raise RuntimeError(f"the mock cluster did not start: {error.value.decode()}")
        cluster = ctypes.c_void_p(library.rd_kafka_handle_mock_cluster(self._handle))
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, ctypes.c_int32(0))
        bootstrap: bytes = library.rd_kafka_mock_cluster_bootstraps(cluster)
        self.bootstrap = bootstrap.decode()

    def close(self) -> None:
        self._library.rd_kafka_destroy(self._handle)


def _bundled_library() -> ctypes.CDLL | None:
    """The librdkafka of the wheel, with the types of the functions used here."""
    package = Path(confluent_kafka.__file__).parent
    found = chain(
        package.parent.glob("confluent_kafka.libs/librdkafka*.so*"), package.glob(".dylibs/librdkafka*.dylib")
    )
    path = next(found, None)
    if path is None:
        return None
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_handle_mock_cluster"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
