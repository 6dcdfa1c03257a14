"""mqadmin of both versions, unmodified, on the bundled broker and a real one: the same answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.admin_output import (
    SINCE_5,
    Comparison,
    as_printed,
    first_columns,
    in_any_order,
    names_of,
    sections_of,
    thread_names,
    user_topics,
    without_figures,
    without_retries,
)
from interop.brokers import JAVA, BrokerUnderTest, on_both, our_broker, real_broker
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import decode_record
from support.real_cluster import JavaProcess, run_program
from support.real_cluster.java import compile_program, program_arguments

NAMES = "names"
"""Compared are the names alone: ours are some of theirs."""
TAGGED = "-p hello -k key1 -c TagA -b broker-a -i 1"
Command = tuple[str, Comparison | str, str]
"""Its text, what is compared, and what both must have printed."""
# What stands in braces is put in.
FIRST: list[Command] = [
    (
        "updateTopic -c TestCluster -t orders -r 4 -w 4",
        as_printed,
        "topicName=orders, readQueueNums=4",
    ),
    (
        "updateTopic -b {address} -t single -r 2 -w 2",
        as_printed,
        "topicName=single, readQueueNums=2",
    ),
    (f"sendMessage -t orders {TAGGED}", as_printed, "broker-a 1 SEND_OK"),
    (
        "sendMessage -t orders -p world -k key2 -c TagB -b broker-a -i 2",
        as_printed,
        "broker-a 2 SEND_OK",
    ),
]
SECOND: list[Command] = [
    ("topicList", user_topics, "orders"),
    ("topicList -c", user_topics, "orders"),
    ("topicRoute -t orders", as_printed, '"perm":6'),
    ("topicRoute -t absent", as_printed, "CODE: 17"),
    ("topicRoute -t TestCluster", as_printed, '"perm":7'),
    ("topicRoute -t broker-a", as_printed, '"perm":7'),
    ("topicRoute -t BenchmarkTest", as_printed, '"readQueueNums":1024'),
    ("topicRoute -t SELF_TEST_TOPIC", as_printed, '"perm":6'),
    ("topicRoute -t OFFSET_MOVED_EVENT", as_printed, '"perm":6'),
    ("topicRoute -t SCHEDULE_TOPIC_XXXX", as_printed, '"readQueueNums":18'),
    ("topicRoute -t TestCluster_REPLY_TOPIC", as_printed, '"perm":6'),
    ("topicStatus -t orders", as_printed, "broker-a 2 0 1"),
    ("topicStatus -t absent", as_printed, "CODE: 17"),
    ("clusterList", first_columns, "TestCluster broker-a 0 HOST"),
    ("clusterList -m", first_columns, "TestCluster broker-a 0"),
    ("brokerStatus -b {address}", NAMES, "bootTimestamp"),
    ("brokerStatus -c TestCluster", NAMES, "bootTimestamp"),
    ("updateSubGroup -c TestCluster -g G", as_printed, "groupName=G,"),
    ("updateSubGroup -b {address} -g G2", as_printed, "groupName=G2,"),
    ("queryMsgById -t orders -i {offset_id}", in_any_order, "Topic: orders"),
    ("queryMsgByKey -t orders -k key1", as_printed, "ID 1 0"),
    ("queryMsgByKey -t orders -k absent", as_printed, "CODE: 208"),
    ("queryMsgByUniqueKey -t orders -i {unique_id}", in_any_order, "Keys: [key1]"),
    ("queryMsgByOffset -t orders -b broker-a -i 1 -o 0", in_any_order, "Topic: orders"),
    ("consumeMessage -t orders -g Reader -b broker-a -i 1 -o 0 -c 1", as_printed, "Consume ok"),
    ("printMsg -t orders -d true", in_any_order, "BODY: world"),
    ("printMsg -t orders -s TagA", in_any_order, "no matched msg"),
    ("consumerConnection -g OnlineGroup", in_any_order, "CLIENT HOST JAVA"),
    ("consumerConnection -g absent", as_printed, "CODE: 17"),
    ("consumerStatus -g OnlineGroup", as_printed, "1 CLIENT VERSION"),
    (
        "consumerStatus -g OnlineGroup -i {client_id}",
        without_figures,
        "PROP_CONSUME_TYPE : CONSUME_PASSIVELY",
    ),
    ("consumerStatus -g OnlineGroup -i {client_id} -s", thread_names, "RebalanceService"),
    ("consumerStatus -g absent", as_printed, "CODE: 17"),
    (
        "queryMsgById -t online -i {online_id} -g OnlineGroup -d {client_id}",
        without_figures,
        "CR_SUCCESS",
    ),
    (
        "queryMsgById -t online -i {online_id} -g OnlineGroup -d absent",
        without_figures,
        "not online",
    ),
    ("producerConnection -g OnlineProducer -t online", as_printed, "CLIENT HOST JAVA"),
    ("producerConnection -g absent -t online", as_printed, "group[absent] not exist"),
    ("consumerProgress -g OnlineGroup", without_retries, "online broker-a 0 1 1 0"),
    ("consumerProgress -g absent", as_printed, "CODE: 17"),
    ("brokerConsumeStats -b {address}", in_any_order, "online OnlineGroup broker-a 0 1 1 0"),
    ("resetOffsetByTime -g G -t orders -s now -f true", as_printed, "broker-a 1 1"),
    ("resetOffsetByTime -g absent -t orders -s now -f true", as_printed, "CODE: 26"),
    ("resetOffsetByTime -g OnlineGroup -t online -s now -f true", as_printed, "broker-a 0 1"),
    ("skipAccumulatedMessage -g G -t orders", as_printed, "broker-a 1 1"),
    ("checkMsgSendRT -t single -a 3 -s 10", as_printed, "broker-a 0 true"),
    ("getBrokerConfig -b {address}", NAMES, "brokerName"),
    (
        "updateBrokerConfig -b {address} -k maxTransferCountOnMessageInMemory -v 64",
        as_printed,
        "update broker config success",
    ),
    (
        "updateBrokerConfig -b {address} -k nonsense -v 64",
        as_printed,
        "update broker config success",
    ),
    ("getNamesrvConfig", NAMES, "listenPort"),
    ("cleanExpiredCQ -b {address}", as_printed, "success"),
    ("wipeWritePerm -b broker-a", as_printed, "wipe write perm of broker[broker-a]"),
    ("topicRoute -t orders", as_printed, '"perm":4'),
    ("addWritePerm -b broker-a", as_printed, "add write perm of broker[broker-a]"),
    ("topicRoute -t orders", as_printed, '"perm":6'),
    ("deleteSubGroup -c TestCluster -g G2", as_printed, "delete subscription group [G2]"),
    ("deleteTopic -c TestCluster -t single", as_printed, "delete topic [single] from cluster"),
    ("topicList", user_topics, "orders"),
]
COMMANDS = [*FIRST, *SECOND]
# One of each kind, for `--short`; each costs a second and more.
SHORT = (
    *("topicList", "topicStatus -t orders", "clusterList", "brokerStatus -b", "updateSubGroup -c"),
    *("queryMsgById", "consumerConnection -g OnlineGroup", "producerConnection -g OnlineProducer"),
    *(
        "consumerProgress -g OnlineGroup",
        "resetOffsetByTime -g G",
        "getBrokerConfig",
        "deleteTopic",
    ),
)
LONG = [command not in FIRST and not command[0].startswith(SHORT) for command in COMMANDS]
LABELS = [f"{number:02}-{command}" for number, (command, *_) in enumerate(COMMANDS)]
# A 4.9 broker resets members that are online; ours does it by itself, as brokers of 5.x do.
RESETS_ITSELF = ("resetOffsetByTime", "skipAccumulated")


@dataclass(frozen=True)
class Said:
    """By the command's number, the lines it printed."""

    ours: dict[int, list[str]]
    real: dict[int, list[str]]
    version: str


def run_all(
    version: str, broker: BrokerUnderTest, folder: Path, numbers: list[int]
) -> dict[int, list[str]]:
    """Every command, in two processes: the second one needs what the first one printed."""
    folder.mkdir(parents=True, exist_ok=True)
    host, _, port = broker.address.rpartition(":")
    packed = "".join(f"{int(part):02X}" for part in host.split("."))
    names = {"address": broker.address, "offset_id": f"{packed}{int(port):08X}{{position:016X}}"}

    def run(commands: list[Command]) -> str:
        script = folder / "script.txt"
        texts = [command.format(**names) for command, *_ in commands]
        if version.startswith("4."):
            # Not needed there, and what 4.9 does not know ends the whole process.
            texts = [re.sub(r"queryMsgById -t \w+", "queryMsgById", text) for text in texts]
        lines = [text.split() for text in texts]
        ends = ["-n", broker.name_server]
        script.write_text("\n".join("\t".join([*words, *ends]) for words in lines))
        return run_program(version, JAVA / "MqAdmin.java", str(script), seconds=300)

    broker.create_topic("online")
    online = program_arguments(version, JAVA / "Online.java", folder)
    arguments = [*online, broker.name_server, "online"]
    with JavaProcess(
        "online", arguments, log=folder / "online.out", folder=folder, ready="both are online"
    ):
        first = run(FIRST)
        (unique_id, *_) = re.findall(r"SEND_OK +([0-9A-F]{32})", first)
        names["unique_id"] = unique_id
        pattern = names["offset_id"]
        names["offset_id"] = offset_id_of(broker, QueueId("orders", "broker-a", 1), pattern)
        names["online_id"] = offset_id_of(broker, QueueId("online", "broker-a", 0), pattern)
        names["client_id"] = client_id_of(broker, "OnlineGroup", "online")
        second = run([COMMANDS[number] for number in numbers[len(FIRST) :]])
    sections = sections_of(first, broker) + sections_of(second, broker)
    return dict(zip(numbers, sections, strict=True))


def client_id_of(broker: BrokerUnderTest, group: str, topic: str) -> str:
    with open_cluster(ConnectionSettings((broker.name_server,))) as cluster:
        (client_id,) = cluster.members(group, topic)
    return client_id


def offset_id_of(broker: BrokerUnderTest, queue: QueueId, pattern: str) -> str:
    """The id of the first message of a queue, by its record."""
    with open_cluster(ConnectionSettings((broker.name_server,))) as cluster:
        reply = cluster.pull(queue, 0, 1)
    message, _ = decode_record(b"".join(reply.records))
    return pattern.format(position=message.physical_offset)


@pytest.fixture(scope="module", params=["5.3.3", pytest.param("4.9.7", marks=pytest.mark.long)])
def said(request, tmp_path_factory) -> Said:
    version = request.param
    folder = tmp_path_factory.mktemp(f"admin-{version}")
    is_short = request.config.getoption("--short")
    numbers = [number for number, is_long in enumerate(LONG) if not (is_short and is_long)]
    for program in ("MqAdmin", "Online"):
        compile_program(version, JAVA / f"{program}.java")

    def work(broker: BrokerUnderTest) -> dict[int, list[str]]:
        return run_all(version, broker, folder / broker.address.replace(":", "-"), numbers)

    with our_broker(folder / "ours") as ours, real_broker(version, folder / "real") as real:
        outputs = on_both(ours, real, work)
    return Said(*outputs, version)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=label, marks=[pytest.mark.long] if is_long else [])
        for number, (label, is_long) in enumerate(zip(LABELS, LONG, strict=True))
    ],
)
def test_mqadmin_prints_the_same_for_both_brokers(said: Said, number: int) -> None:
    command, comparison, marker = COMMANDS[number]
    ours, real = said.ours[number], said.real[number]
    if said.version.startswith("4.") and command.startswith(RESETS_ITSELF):
        rows = sorted(line.split()[1] for line in ours if line.startswith("broker-a "))
        assert rows == list("0123") or "CODE: 26" in " ".join(ours)
        assert real
        return
    # Two brokers that say nothing, or both that something is wrong, would agree as well.
    assert any(marker in line for line in ours)
    assert any(marker in line for line in real)
    if isinstance(comparison, str):
        assert len(names_of(ours)) > 5
        ours_alone = names_of(ours) - names_of(real) - {"getTransferedTps", "getTransferredTps"}
        if said.version.startswith("4."):
            ours_alone = {name for name in ours_alone if not SINCE_5.fullmatch(name)}
        assert ours_alone == set()
    else:
        assert comparison(ours) == comparison(real)
