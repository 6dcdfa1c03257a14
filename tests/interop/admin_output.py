"""What mqadmin prints -> lines that are equal where two brokers answered the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from interop.brokers import BrokerUnderTest

_DROPPED: Final = ("\tat ", "\t... ", "See http", "For more information", "Usage")
_REPLACED: Final = (
    (re.compile(r"\d{1,3}(\.\d{1,3}){3}:\d+"), "HOST"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,.:]\d+)?"), "TIME"),
    (re.compile(r"\b1[78]\d{11}\b"), "MILLIS"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"\b[\d.]+@\d+(#\d+)?"), "CLIENT"),
    (re.compile(r"\b(storeSize|commitLogOffset)=\d+"), r"\1=N"),
    (re.compile(r"(CommitLog Offset:) *\d+"), r"\1 N"),
    # Brokers of 5.x add these to every message, and one of 4.9 takes WAIT away.
    (re.compile(r"\b(MSG_REGION|TRACE_ON|CLUSTER|WAIT)=[^,}]*(, )?"), ""),
    (re.compile(r"\bV\d_\d_\d\b"), "VERSION"),
    (re.compile(r"(Consume TPS|Topic Put TPS|Avg RT): .*"), r"\1: N"),
    (re.compile(r"\[(\w*)\] OK, \d+"), r"[\1] OK, N"),
)
_MAP: Final = re.compile(r"\{([^{}]*)\}")
_SYSTEM: Final = re.compile(
    r"\b(RMQ_SYS_\w+|rmq_sys_\S+|\w+_REPLY_TOPIC|BenchmarkTest|OFFSET_MOVED_EVENT|TBW102|"
    r"SELF_TEST_TOPIC|SCHEDULE_TOPIC_XXXX|TestCluster *$|TRANS_CHECK_MAX_TIME_TOPIC)"
    # Made by a tool's first heartbeat, which a short command may not live to send.
    r"|%RETRY%(Reader|TOOLS_CONSUMER)"
)
_SEND_TIMES: Final = re.compile(r"^(broker-a \d+ true) \d+$")


def sections_of(printed: str, broker: BrokerUnderTest) -> list[list[str]]:
    """The normalised lines of each command in turn, without the command itself."""
    sections: list[list[str]] = []
    # 4.9 forgets the line break behind some answers.
    for line in printed.replace("===", "\n===").splitlines():
        if line.startswith("=== "):
            sections.append([])
        elif sections and line.strip() and not line.startswith(_DROPPED):
            sections[-1].append(_normalised(line, broker))
    return sections


def _normalised(line: str, broker: BrokerUnderTest) -> str:
    line = line.replace(broker.address, "HOST").replace(broker.name_server, "HOST")
    for pattern, replacement in _REPLACED:
        line = pattern.sub(replacement, line)
    line = _MAP.sub(lambda found: "{" + ", ".join(sorted(_items_of(found[1]))) + "}", line)
    return _SEND_TIMES.sub(r"\1 N", " ".join(line.split()))


def _items_of(text: str) -> list[str]:
    return [item for item in text.split(", ") if item]


# --- what is compared of single commands ----------------------------------------------------


def as_printed(lines: list[str]) -> object:
    return lines


def in_any_order(lines: list[str]) -> object:
    return sorted(lines)


def user_topics(lines: list[str]) -> object:
    """Real brokers have more topics for themselves, two of them called as cluster and broker."""
    own = {"broker-a", "TestCluster broker-a", "TestCluster TestCluster"}
    wanted = [line for line in lines if not _SYSTEM.search(line) and line not in own]
    # 5.3.3 takes the topics that members online consume for groups of the same name.
    return sorted(line for line in wanted if line.split()[-2:-1] != line.split()[-1:])


def first_columns(lines: list[str]) -> object:
    """Of a cluster's list all but what is measured."""
    return [line.split()[:5] for line in lines]


def names_of(lines: list[str]) -> set[str]:
    """The last word left of `=` or `:`."""
    lefts = (re.split(r"[=:]", line)[0].split() for line in lines if re.search(r"[=:]", line))
    return {words[-1] for words in lefts if words}


def without_retries(lines: list[str]) -> list[str]:
    """A retry topic counts from when a member first stored its offset there, whenever that is."""
    return [line for line in lines if not line.startswith("%RETRY%")]


def without_figures(lines: list[str]) -> object:
    """What was measured differs, and a table's columns are as wide as what they hold.

    A member owns its retry queue when it has learned that topic's route: at its start, if its own
    heartbeat created the topic in time, or half a minute later.
    """
    lines = [re.sub(r"(@|/0x)[0-9a-f]+\b", r"\1HASH", line) for line in without_retries(lines)]
    return sorted(re.sub(r"-?\d+(\.\d+)?", "N", line) for line in lines)


def thread_names(lines: list[str]) -> object:
    """Of stack traces that threads were there at all: which ones is a matter of the moment."""
    return {name for name in ("PullMessageService", "RebalanceService") if name in str(lines)}


SINCE_5: Final = re.compile(
    r"(ackThread|litePullThread|timer)\w+|brokerActive|useServerSideResetOffset|enable\w*TopicList"
)
"""What brokers and name servers of 4.9 do not have to tell; ours is like one of 5.x."""


Comparison = Callable[[list[str]], object]
