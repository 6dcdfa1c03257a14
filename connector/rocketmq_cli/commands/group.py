"""`rmq group`: create, list, describe and delete consumer groups, and move their offsets."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_attribute_option, add_noun, add_verb, attributes_of
from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.errors import UnknownGroupError
from rocketmq_cli.groups import (
    group_offsets,
    is_system_group,
    known_group,
    listed_groups,
    require_valid_name,
)
from rocketmq_cli.terminal import output
from rocketmq_cli.usage import EXIT_FAILED, UsageError, confirm, report
from rocketmq_wire.errors import RocketMQError, raise_first
from rocketmq_wire.plural import plural

if TYPE_CHECKING:
    from rocketmq_cli.groups import Members
    from rocketmq_client.cluster import Cluster

_TITLES = output.titles_of(
    "topic", "broker", "queue", "committed", "end", "lag", consumed="last one stored"
)
_MOVE_TITLES = output.titles_of(
    "broker", "queue", "committed", wanted="new", again="read again", skipped="skipped"
)


def add_parser(verbs: Verbs) -> None:
    actions = add_noun(verbs, "group", "rmq group describe billing")
    create = add_verb(
        actions,
        "create",
        _create,
        "  rmq group create billing",
        summary="create a group",
        description="Creates a group on every broker, with RocketMQ's default settings. This is "
        "needed only if brokers do not create groups automatically.",
    )
    create.add_argument("group", metavar="GROUP")
    add_attribute_option(create)
    listed = add_verb(
        actions,
        "list",
        _list,
        "  rmq group list\n  rmq group list --all --json",
        summary="print the groups' names, one a line",
        description="Lists the groups whose settings the brokers store. Brokers of 4.9 do not "
        "list a group that only commits, as a Spark query does; `rmq group describe` finds it.",
    )
    listed.add_argument("--all", action="store_true", help="RocketMQ's and our own groups too")
    describe = add_verb(
        actions,
        "describe",
        _describe,
        "  rmq group describe billing\n  rmq group describe billing --topic orders --json",
        summary="show members, subscriptions, committed offsets and lag",
        description="`committed` is the next offset that the group reads. `last one stored` is "
        "the store time of the message before it; brokers do not record when it was consumed.",
    )
    describe.add_argument("group", metavar="GROUP", nargs="?", help="default: the profile's")
    describe.add_argument("--topic", help="only this topic")
    reset, mode = _add_reset(actions), _add_mode(actions)
    delete = add_verb(
        actions,
        "delete",
        _delete,
        "  rmq group delete billing\n  rmq group delete billing --yes --json",
        summary="delete a group and its offsets",
    )
    delete.add_argument("group", metavar="GROUP")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    for parser in (create, listed, describe, reset, mode, delete):
        output.add_json_option(parser)
        add_connection_options(parser)


def _add_reset(actions: Verbs) -> argparse.ArgumentParser:
    reset = add_verb(
        actions,
        "reset-offsets",
        _reset,
        "  rmq group reset-offsets billing --topic orders --to earliest\n"
        "  rmq group reset-offsets billing --topic orders --to 2026-01-31T12:00:00Z --execute\n"
        "  rmq group reset-offsets billing --topic orders --to 2h --execute     (two hours ago)\n"
        "  rmq group reset-offsets billing --topic orders --shift -1000 --execute",
        summary="move a group's committed offsets in a topic",
        description="Shows the new committed offset of every queue of a topic; --execute commits "
        "it. If the group has live members, the brokers move it and notify them. A Spark query "
        "with a checkpoint resumes from that, and commits its own offsets again: give it "
        "another checkpoint.",
    )
    reset.add_argument("group", metavar="GROUP")
    reset.add_argument("--topic", required=True)
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="earliest|latest|TIME", help="the new position")
    target.add_argument("--to-offset", type=int, metavar="N", help="this offset in every queue")
    target.add_argument("--shift", type=int, metavar="N", help="N messages forward, or back (-N)")
    reset.add_argument("--queue", type=int, metavar="INDEX", help="only queues of this index")
    reset.add_argument("--execute", action="store_true", help="move the group (default: only show)")
    return reset


def _add_mode(actions: Verbs) -> argparse.ArgumentParser:
    mode = add_verb(
        actions,
        "set-consume-mode",
        _set_mode,
        "  rmq group set-consume-mode billing orders pop\n"
        "  rmq group set-consume-mode billing orders pop --queues 2\n"
        "  rmq group set-consume-mode billing orders pull",
        summary="make a group's members pop a topic, or pull it",
        description="Sets the mode at every broker of the topic, as `mqadmin setConsumeMode` does. "
        "Members that ask brokers for their queues follow while they run: Java's, and "
        "PushConsumer(…, pop=PopSettings()). It needs RocketMQ 5.",
    )
    mode.add_argument("group", metavar="GROUP")
    mode.add_argument("topic", metavar="TOPIC")
    mode.add_argument("mode", choices=("pull", "pop"))
    mode.add_argument(
        "--queues",
        type=int,
        default=0,
        metavar="N",
        help="with pop: each member pops the queues of N other members, too (default 0: all do)",
    )
    return mode


def _list(args: argparse.Namespace) -> int:
    with open_from(args) as cluster:
        groups, missing = listed_groups(cluster)
    wanted = [name for name in groups if args.all or not is_system_group(name)]
    for name in wanted:
        output.show_result({"group": name}, name, as_json=args.json)
    for broker, error in missing.items():
        report(f"{broker} did not report its groups: {error}")
    return EXIT_FAILED if missing else 0


def _describe(args: argparse.Namespace) -> int:
    from rocketmq_cli.groups import find_members

    with open_from(args) as cluster:
        args.group = args.group or args.profile_group
        if args.group is None:
            raise UsageError("the group is missing: name it, or set group in the profile")
        found, problem = group_offsets(cluster, args.group, args.topic)
        members: Members | None = None
        try:
            members = find_members(cluster, args.group)
        except RocketMQError:
            # A broker did not answer: the answers of the others are shown.
            if problem is None:
                raise
        if not found and members is None and problem is None:
            known_group(cluster, args.group)
    records: list[output.Record] = [
        {
            "group": args.group,
            "topic": queue.topic,
            "broker": queue.broker,
            "queue": queue.index,
            "committed": at.consumer_offset,
            "end": at.broker_offset,
            "lag": at.broker_offset - at.consumer_offset,
            "consumed": output.moment(at.updated_ms),
        }
        for queue, at in sorted(found.items())
    ]
    if args.json:
        for member in members.as_records() if members else ():
            output.show_json({"group": args.group, **member})
        output.show_json(*records)
        return _exit_code(problem)
    total = sum(at.broker_offset - at.consumer_offset for at in found.values())
    count = len(members.clients) if members else 0
    at_least = "at least " if problem is not None else ""
    print(f"group {args.group}: {at_least}{plural(count, 'member')}, lag {at_least}{total:,}")
    if members is not None:
        print(members.summary())
        output.show(
            members.as_records(), output.titles_of("member", "address", "language"), as_json=False
        )
        print()
    if records:
        output.show(records, _TITLES, as_json=False)
    elif problem is None:
        print(f"It has committed nothing {f'in topic {args.topic}' if args.topic else 'yet'}.")
    return _exit_code(problem)


def _exit_code(problem: RocketMQError | None) -> int:
    """Report the problem, if there is one, and return the exit code."""
    if problem is None:
        return 0
    report(str(problem))
    return EXIT_FAILED


def _reset(args: argparse.Namespace) -> int:
    from rocketmq_cli.groups import Target, move_online, plan_move

    target = Target.parse(args.to, args.to_offset, args.shift, now_ms=time.time_ns() // 1_000_000)
    with open_from(args) as cluster:
        is_new = False
        moves = plan_move(cluster, args.group, args.topic, target, args.queue)
        members = cluster.members(args.group, args.topic)
        if not members and all(move.committed is None for move in moves):
            is_new = _warn_if_new(cluster, args.group)
        records: list[output.Record] = [
            {
                "group": args.group,
                "topic": args.topic,
                "broker": move.queue.broker,
                "queue": move.queue.index,
                "committed": move.committed,
                "wanted": move.wanted,
                "again": max(0, (move.committed or move.wanted) - move.wanted),
                "skipped": max(0, move.wanted - move.read_from),
            }
            for move in moves
        ]
        output.show(records, _MOVE_TITLES, as_json=args.json)
        if not args.execute:
            if not args.json:
                print("Nothing was changed: give --execute to move the group.")
            return 0
        if members:
            move_online(
                cluster, args.group, target, moves, index=args.queue, member_count=len(members)
            )
        else:
            raise_first(cluster.commit(args.group, {move.queue: move.wanted for move in moves}))
    if not args.json:
        print(f"group {args.group} was {'new, and begins there' if is_new else 'moved'}")
    return 0


def _warn_if_new(cluster: Cluster, group: str) -> bool:
    """A new group may be given its start, so that an unknown name is no error."""
    try:
        known_group(cluster, group)
    except UnknownGroupError as error:
        if error.hint:
            report(str(error))
        return True
    return False


def _create(args: argparse.Namespace) -> int:
    from rocketmq_wire.requests.groups import ListGroups, PutGroup

    require_valid_name(args.group)
    attributes = {f"+{name}": value for name, value in attributes_of(args.attribute).items()}
    with open_from(args) as cluster:
        for listed in cluster.ask_masters(ListGroups()).values():
            if isinstance(listed, RocketMQError):
                raise listed
            if args.group in listed.groups:
                raise UsageError(f"group {args.group} exists already; nothing was changed")
        request = PutGroup({"groupName": args.group, "attributes": attributes})
        raise_first(cluster.ask_masters(request))
    record = {"group": args.group, "created": True}
    output.show_result(record, f"group {args.group} is created", as_json=args.json)
    return 0


def _set_mode(args: argparse.Namespace) -> int:
    from rocketmq_wire.requests.groups import ConsumeMode

    mode, count = ConsumeMode[args.mode.upper()], args.queues
    if count < 0:
        raise UsageError(f"--queues must be 0 or more, got {count}")
    with open_from(args) as cluster:
        cluster.set_consume_mode(args.group, args.topic, mode, share_queue_count=count)
    record = {"group": args.group, "topic": args.topic, "mode": args.mode, "queues": count}
    text = f"members of group {args.group} {args.mode} topic {args.topic}"
    output.show_result(record, text, as_json=args.json)
    return 0


def _delete(args: argparse.Namespace) -> int:
    from rocketmq_cli.groups import find_members
    from rocketmq_wire.requests.groups import DeleteGroup

    with open_from(args) as cluster:
        known_group(cluster, args.group)
        members = find_members(cluster, args.group)
        if members is not None and members.clients:
            raise UsageError(
                f"group {args.group} has {len(members.clients)} live members: stop them first"
            )
        confirm(f"delete group {args.group} and its offsets?", is_sure=args.yes)
        raise_first(cluster.ask_masters(DeleteGroup(args.group, forgets_offsets=True)))
    record = {"group": args.group, "deleted": True}
    output.show_result(record, f"group {args.group} is deleted", as_json=args.json)
    return 0
