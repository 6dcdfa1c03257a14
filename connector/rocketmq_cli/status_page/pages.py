"""Renders samples and messages as HTML pages: pure. It escapes all text from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final
from urllib.parse import quote, urlencode

from rocketmq_cli.status_page.browsing import Browsed
from rocketmq_cli.status_page.history import BrokerSample, History, Sample
from rocketmq_cli.status_page.markup import Html, facts, heading, link, page, size_text, table
from rocketmq_cli.terminal.output import Cell, broker_version, moment
from rocketmq_client.line_chart import line_chart
from rocketmq_wire.model import DEAD_LETTER_PREFIX

_BODY_SHOWN: Final = 600
_LISTED_MAX: Final = 1_000
_PROBLEMS_MAX: Final = 20
_RANKED_MAX: Final = 10

_UP: Final = Html('<span class="good">up</span>')
_DOWN: Final = Html('<span class="bad">no answer</span>')
_BROKER_TITLES: Final = (
    *("broker", "cluster", "address", "state", "version"),
    *("log", "disk used", "retention", "oldest message"),
)


def overview(history: History, interval_s: float) -> str:
    """Brokers, throughput, the groups with the largest lag, and dead letters."""
    sample = history.newest
    if sample is None:
        waiting = "<h1>Overview</h1><p class='hint'>Looking at the cluster…</p>"
        return page("Overview", waiting, interval_s, "Overview")
    lags = {group: (sample.lag(group), sample.seconds_behind(group)) for group in sample.groups}
    behind = [group for group, (messages, _) in lags.items() if messages > 0]
    is_known = any(broker.error is None for broker in sample.brokers)
    by_messages = sorted(behind, key=lambda group: (-lags[group][0], group))
    by_seconds = sorted(behind, key=lambda group: (-(lags[group][1] or 0.0), group))
    parts = [
        "<h1>Overview</h1>",
        _problems(sample),
        line_chart("messages stored a second", history.topic().rate.points()),
        "<h2>Brokers</h2>",
        table(_BROKER_TITLES, [_broker_row(broker) for broker in sample.brokers]),
        '<div class="columns"><section><h2>Most messages behind</h2>',
        _ranking(by_messages, lags, is_known=is_known),
        "</section><section><h2>Longest behind</h2>",
        _ranking(by_seconds, lags, is_known=is_known),
        "</section></div>",
        _dead_letters(sample),
    ]
    return page("Overview", "".join(parts), interval_s, "Overview")


def topics(history: History, interval_s: float) -> str:
    """All topics, then the dead letters of groups."""
    sample = history.newest or Sample(0)
    rows = [
        (
            link("topics", name),
            len(queues),
            sample.message_count(name),
            history.topic(name).rate.value_at(sample.time_ms),
            _newest(sample, name),
        )
        for name, queues in sorted(sample.topics.items())
        if not name.startswith(DEAD_LETTER_PREFIX)
    ]
    titles = ("topic", "queues", "messages", "stored a second", "newest message")
    content = f"<h1>Topics</h1>{_problems(sample)}{table(titles, rows)}{_dead_letters(sample)}"
    return page("Topics", content, interval_s, "Topics")


def topic(history: History, name: str, interval_s: float) -> str | None:
    """One topic: throughput, queues, groups. None if it does not exist."""
    sample = history.newest
    if sample is None or name not in sample.topics:
        return None
    queues = [
        (q.broker, q.index, stat.start, stat.end, stat.end - stat.start, moment(stat.updated_ms))
        for q, stat in sorted(sample.topics[name].items())
    ]
    readers = [
        (link("groups", group), sample.lag(group, name), sample.seconds_behind(group, name))
        for group, offsets in sorted(sample.groups.items())
        if any(queue.topic == name for queue in offsets)
    ]
    parts = [
        heading("Topic", name),
        _problems(sample),
        _dead_letter_note(sample, name),
        facts(("messages", sample.message_count(name)), ("newest message", _newest(sample, name))),
        f'<p><a href="/messages?topic={quote(name, safe="")}">Browse messages</a></p>',
        line_chart("messages stored a second", history.topic(name).rate.points()),
        "<h2>Groups</h2>",
        table(("group", "lag", "seconds behind"), readers),
        "<h2>Queues</h2>",
        table(("broker", "queue", "start", "end", "messages", "newest"), queues),
    ]
    return page(f"Topic {name}", "".join(parts), interval_s, "Topics")


def groups(history: History, interval_s: float) -> str:
    sample = history.newest or Sample(0)
    rows = [
        (
            link("groups", name),
            ", ".join(sorted({queue.topic for queue in offsets})),
            sample.lag(name),
            sample.seconds_behind(name),
            history.group(name).rate.value_at(sample.time_ms),
            _member_count(sample, name),
            sample.dead_letters(name),
        )
        for name, offsets in sorted(sample.groups.items())
    ]
    titles = (
        *("group", "topics", "lag", "seconds behind", "consumed a second"),
        *("members", "dead letters"),
    )
    content = f"<h1>Groups</h1>{_problems(sample)}{table(titles, rows)}"
    return page("Groups", content, interval_s, "Groups")


def group(history: History, name: str, interval_s: float) -> str | None:
    """One group: its lag over time, members, and every queue. None if it does not exist."""
    sample = history.newest
    if sample is None or name not in sample.groups:
        return None
    rows = [
        (
            link("topics", q.topic) if q.topic in sample.topics else q.topic,
            q.broker,
            q.index,
            at.consumer_offset,
            at.broker_offset,
            at.lag,
            moment(sample.unread_ms.get(name, {}).get(q)),
            sample.queue_age(name, q) if at.lag else 0.0,
        )
        for q, at in sorted(sample.groups[name].items())
    ]
    titles = (
        *("topic", "broker", "queue", "committed", "end", "lag"),
        *("next unread message", "seconds behind"),
    )
    dead: Cell | Html = sample.dead_letters(name)
    if dead:
        dead = link("topics", DEAD_LETTER_PREFIX + name, f"{dead:,}")
    parts = [
        heading("Group", name),
        _problems(sample),
        facts(
            ("lag", sample.lag(name)),
            ("seconds behind", sample.seconds_behind(name)),
            ("members", _member_count(sample, name)),
            ("dead letters", dead),
        ),
        '<div class="columns">',
        line_chart("lag", history.group(name).lag.points()),
        line_chart("messages consumed a second", history.group(name).rate.points()),
        "</div>",
        "<h2>Queues</h2>",
        table(titles, rows),
        "<h2>Members</h2>",
        _members(sample, name),
    ]
    return page(f"Group {name}", "".join(parts), interval_s, "Groups")


def messages(
    wanted: Mapping[str, str], found: Browsed, problem: str | None, topics: Sequence[str]
) -> str:
    """The message browser: the form and the messages found. It does not refresh."""

    def field(name: str, title: str, extra: str = "") -> str:
        value = escape(wanted.get(name, ""), quote=True)
        return f'<label>{title}<input name="{name}" value="{value}"{extra}></label>'

    number = ' inputmode="numeric"'
    names = "".join(f'<option value="{escape(name)}">' for name in topics[:_LISTED_MAX])
    form = (
        '<form action="/messages">'
        + field("topic", "topic", ' list="topics" autocomplete="off"')
        + f'<datalist id="topics">{names}</datalist>'
        + field("key", "key or id")
        + field("queue", "queue", number)
        + field("offset", "from offset", number)
        + "<button>Show</button></form>"
    )
    result = _found(wanted, found)
    if problem is not None:
        result = f'<p class="problem">{escape(problem)}</p>'
    elif not wanted.get("topic"):
        listed = ", ".join(_messages_link(name) for name in topics[:_LISTED_MAX])
        result = (
            "<p class='hint'>A topic alone shows its newest messages. Choose one: "
            f"{listed or 'there is no topic yet'}.</p>"
        )
    return page("Messages", f"<h1>Messages</h1>{form}{result}", None, "Messages")


def missing(what: str) -> str:
    return page("Not found", f"<h1>Not found</h1><p>There is no {escape(what)} here.</p>", None)


def _found(wanted: Mapping[str, str], found: Browsed) -> str:
    rows = [
        (
            f"{record['broker']}/{record['queue']}",
            record["offset"],
            record["stored"],
            record["tags"],
            record["keys"],
            _message(record),
        )
        for record in found.records
    ]
    more = ""
    given = {name: wanted[name] for name in ("topic", "queue") if wanted.get(name)}
    if wanted.get("older"):
        more = f'<a href="/messages?{escape(urlencode(given))}">Newest</a> '
    if found.older is not None:
        older = urlencode({**given, "older": str(found.older)})
        more += f'<a href="/messages?{escape(older)}" rel="next">Older</a>'
    if not rows:
        return f"<p>No messages.</p><p>{more}</p>"
    titles = ("from", "offset", "stored", "tags", "keys", "message")
    return f'{table(titles, rows)}<p class="more">{more}</p>'


def _message(record: Mapping[str, Cell]) -> Html:
    """The body of a message, its id, and its properties."""
    properties = record["properties"]
    assert isinstance(properties, Mapping)
    details = [("id", str(record["id"]))]
    details += [(name, str(value)) for name, value in properties.items()]
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(_cut(value))}</dd></div>"
        for name, value in details
    )
    body = escape(_cut(str(record["body"])))
    return Html(f'<span class="body">{body}</span><dl class="properties">{shown}</dl>')


def _messages_link(name: str) -> str:
    return f'<a href="/messages?topic={quote(name, safe="")}">{escape(name)}</a>'


def _broker_row(broker: BrokerSample) -> Sequence[Cell | Html]:
    used, hours = broker.disk_used, broker.retention_hours
    return (
        broker.name,
        broker.cluster,
        broker.address,
        _UP if broker.error is None else _DOWN,
        broker_version(broker.runtime),
        size_text(broker.log_bytes),
        None if used is None else f"{used:.0%}",
        None if hours is None else f"{hours} h",
        moment(broker.oldest_ms),
    )


def _ranking(
    names: Iterable[str], lags: Mapping[str, tuple[int, float | None]], *, is_known: bool
) -> str:
    rows = [(link("groups", name), *lags[name]) for name in names][:_RANKED_MAX]
    if not rows:
        text = "No group is behind." if is_known else "Unknown while no broker answers."
        return f'<p class="hint">{text}</p>'
    return table(("group", "lag", "seconds behind"), rows)


def _dead_letters(sample: Sample) -> str:
    """The groups with dead letters, most first; nothing if there are none."""
    rows = [
        (
            link("topics", name, name.removeprefix(DEAD_LETTER_PREFIX)),
            sample.message_count(name),
            _newest(sample, name),
        )
        for name in sorted(sample.topics, key=lambda name: (-sample.message_count(name), name))
        if name.startswith(DEAD_LETTER_PREFIX) and sample.message_count(name)
    ]
    if not rows:
        return ""
    return "<h2>Dead letters</h2>" + table(("of group", "messages", "newest message"), rows)


def _dead_letter_note(sample: Sample, name: str) -> str:
    if not name.startswith(DEAD_LETTER_PREFIX):
        return ""
    group = name.removeprefix(DEAD_LETTER_PREFIX)
    shown = link("groups", group).text if group in sample.groups else escape(group)
    return (
        f'<p class="hint">Messages that group {shown} could not process. '
        f"<code>rmq dlq replay {escape(group)}</code> counts them, and sends them again with "
        "<code>--execute</code>.</p>"
    )


def _member_count(sample: Sample, group: str) -> int:
    members = sample.members.get(group)
    return 0 if members is None else len(members.clients)


def _members(sample: Sample, group: str) -> str:
    members = sample.members.get(group)
    if members is None:
        return (
            '<p class="hint">No consumer of this group is connected. A streaming query is a member '
            "only with joinGroup=true.</p>"
        )
    rows = [
        (record["member"], record["address"], record["language"]) for record in members.as_records()
    ]
    return f"<p>{escape(members.summary())}</p>" + table(("member", "address", "language"), rows)


def _problems(sample: Sample) -> str:
    unavailable = [
        f"no answer from broker {broker.name}: {broker.error}. The numbers here leave it out."
        for broker in sample.brokers
        if broker.error is not None
    ]
    shown = [*unavailable, *sample.problems][:_PROBLEMS_MAX]
    return "".join(f'<p class="problem">{escape(text)}</p>' for text in shown)


def _newest(sample: Sample, name: str) -> Cell:
    return moment(max((stat.updated_ms for stat in sample.topics[name].values()), default=0))


def _cut(text: str) -> str:
    return text if len(text) <= _BODY_SHOWN else f"{text[:_BODY_SHOWN]}… ({len(text):,} characters)"
