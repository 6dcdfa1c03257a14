"""RocketMQ's configuration that this broker keeps in other files: timers and lite topics' offsets.

RocketMQ's `config/timercheck` becomes `timers.json`: up to which time its messages are delivered.
RocketMQ also keeps a wheel of files that lists when each message is due. The messages have that
time, too, so the wheel is not read.
"""

from __future__ import annotations

import struct
from typing import Final

from rocketmq_broker.storage.disk.config_files import (
    CONFIG_DIRECTORY,
    CONSUMER_OFFSETS,
    LMQ_OFFSETS,
    OFFSET_TABLE,
    TIMERS,
    Configs,
    table_of,
)
from rocketmq_broker.storage.disk.files import Files, join, read_file

_TIMER_CHECK: Final = "timercheck"
_READ_UNTIL: Final = struct.Struct(">q")


def adopt_timers(files: Files, configs: Configs) -> None:
    """Take over how far RocketMQ has delivered, durably; without its file nothing changes."""
    data = read_file(files, join(CONFIG_DIRECTORY, _TIMER_CHECK))
    if data is None or len(data) < _READ_UNTIL.size:
        return
    (read_until_ms,) = _READ_UNTIL.unpack_from(data)
    # RocketMQ would have read the messages of that time next.
    delivered_ms = max(int(read_until_ms) - 1, 0)
    known = configs.load(TIMERS)
    start = known.get("start", 0)
    configs.save(TIMERS, {**known, "deliveredUntilMs": delivered_ms, "start": start})


def adopt_lmq_offsets(configs: Configs) -> None:
    """Take over offsets that groups committed while a RocketMQ with lite topics used the store."""
    content = configs.load(LMQ_OFFSETS)
    version = content.get("dataVersion")
    # RocketMQ writes the time of a change here; this broker writes 0.
    if not isinstance(version, dict) or not version.get("timestamp"):
        return
    if OFFSET_TABLE not in content:
        return
    own = configs.load(CONSUMER_OFFSETS)
    offsets = {**table_of(CONSUMER_OFFSETS, own), **table_of(LMQ_OFFSETS, content)}
    own_version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    configs.save(CONSUMER_OFFSETS, {**own, "dataVersion": own_version, OFFSET_TABLE: offsets})
