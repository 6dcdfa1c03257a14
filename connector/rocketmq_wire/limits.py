"""What a program takes of one peer: sizes of headers and bodies, lengths of lists and texts.

Each limit is above what RocketMQ's clients send, and low enough that one request keeps a server's
event loop busy for a fraction of a second: 2 MiB of JSON take 0.24 s. Limits of whole messages are
in `model`.
"""

from __future__ import annotations

from typing import Final

HEADER_SIZE_MAX: Final = 64 * 1024
"""Bytes of a remoting header. The largest carries a message's properties: 32 KiB, and escapes."""
REQUEST_SIZE_MAX: Final = 2 * 1024 * 1024
"""Bytes of a request that carries no message. A heartbeat for 500 groups takes some 200 KB."""
UNFINISHED_SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes of frames that have arrived in part, over all connections: 64 batches of 4 MiB."""
LENIENT_JSON_SIZE_MAX: Final = 64 * 1024
"""Bytes of a request's JSON that is not strict: Python parses it, at 2 MB a second."""
AUTHORIZATION_SIZE_MAX: Final = 2 * 1024
"""Characters of the header that signs a gRPC call: an access key and a digest."""
EXPRESSION_SIZE_MAX: Final = 16 * 1024
"""Characters of a filter, tags or SQL92: some thousand tags."""
FILTER_KIND_SIZE_MAX: Final = 16
"""Characters of the name of a filter's kind, `TAG` or `SQL92`."""
CALL_ITEMS_MAX: Final = 4_096
"""Queues of one bulk gRPC call; clients split longer lists."""
STREAM_RANGES_MAX: Final = 10_000
"""Ranges of one bulk gRPC stream: the queues of a Spark task."""
MESSAGE_FIELDS_MAX: Final = 1_000
"""Fields of a bulk gRPC message that carries records, which has some twenty."""
HEARTBEAT_GROUPS_MAX: Final = 1_000
"""Groups of one heartbeat, producers and consumers each: a client is in a few."""
HEARTBEAT_SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions of one heartbeat, over all groups."""
CLIENT_ID_SIZE_MAX: Final = 1_024
"""Characters of a client's id: an address, a process and a time."""
PUBLIC_ENTRIES_MAX: Final = 1_024
"""Messages or acknowledgements of one public gRPC call; clients send one, or a batch of 32."""
ROUTE_QUEUES_MAX: Final = 1 << 18
"""Queues of a topic that a client takes from a name server, over all brokers: it lists them all."""
LENIENT_ANSWER_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a server's JSON that is not strict: the statistics of some 30,000 queues."""
TOPIC_QUEUES_MAX: Final = 4_096
"""Queues of a topic. Its statistics are one answer, with an entry for each."""
