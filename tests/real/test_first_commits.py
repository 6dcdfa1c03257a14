"""What a broker answers with success when a group commits for the first time, it keeps."""

from __future__ import annotations

import pytest

from support.loader import Loader
from support.real_cluster import RealCluster

# Sent all at once, one in 30 to 60 groups lost the progress of a queue.
_GROUPS = 100


@pytest.mark.short
def test_the_first_committed_offset_of_every_queue_is_kept(broker: RealCluster, topic: str) -> None:
    with broker.open() as cluster:
        queues = Loader(cluster).create(topic, 8)
        for queue in queues:
            Loader(cluster).put(queue, 1)
        offsets = dict.fromkeys(queues, 1)
        for number in range(_GROUPS):
            group = f"{topic}-{number}"
            assert set(cluster.commit(group, offsets).values()) == {None}
            assert cluster.committed_offsets(group, queues) == offsets
