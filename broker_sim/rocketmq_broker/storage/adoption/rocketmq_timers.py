"""RocketMQ's `config/timercheck` -> our `timers.json`: up to which time its messages are delivered.

RocketMQ keeps a wheel of files beside it, which says when each message is due. The messages say so
themselves, so the wheel is not read.
"""

from __future__ import annotations

import struct
from typing import Final

from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY, TIMERS, Configs
from rocketmq_broker.storage.disk.files import Files, join, read_file

_NAME: Final = "timercheck"
_READ_UNTIL: Final = struct.Struct(">q")


def adopt_timers(files: Files, configs: Configs) -> None:
    """Take over how far RocketMQ has delivered, durably; without its file nothing changes."""
    data = read_file(files, join(CONFIG_DIRECTORY, _NAME))
    if data is None or len(data) < _READ_UNTIL.size:
        return
    (read_until_ms,) = _READ_UNTIL.unpack_from(data)
    # The slot of that time itself is the next one it would have read.
    delivered_ms = max(int(read_until_ms) - 1, 0)
    known = configs.load(TIMERS)
    start = known.get("start", 0)
    configs.save(TIMERS, {**known, "deliveredUntilMs": delivered_ms, "start": start})
