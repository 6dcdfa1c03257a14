"""What a program takes of one peer: sizes of headers and bodies, lengths of lists and texts.

Each limit is above what RocketMQ's clients send, and low enough that one request keeps a server's
event loop busy for 50 ms at most. Limits of whole messages are in `model`.
"""

from __future__ import annotations

from typing import Final

HEADER_SIZE_MAX: Final = 64 * 1024
"""Bytes of a remoting header. The largest carries a message's properties: 32 KiB, and escapes."""
LIST_SIZE_MAX: Final = 1024 * 1024
"""Bytes of a request that carries a list: a heartbeat for 500 groups takes some 200 KB."""
LIST_VALUES_MAX: Final = 64 * 1024
"""Values of such a list in JSON, which take up to 12 ms to parse: 5,000 subscriptions of Java."""
REQUEST_SIZE_MAX: Final = 64 * 1024
"""Bytes of any other request that carries no message, and of JSON that is not strict.

A filter of the longest kind, as a text and as tags, is most.
"""
STREAM_SIZE_MAX: Final = 2 * 1024 * 1024
"""Bytes of the request of a bulk gRPC stream: as many ranges as it may have, with long names."""
UNFINISHED_SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes of frames that have arrived in part, over all connections: 64 batches of 4 MiB."""
AUTHORIZATION_SIZE_MAX: Final = 2 * 1024
"""Characters of the header that signs a gRPC call: an access key and a digest."""
EXPRESSION_SIZE_MAX: Final = 16 * 1024
"""Characters of a filter, tags or SQL92: some thousand tags."""
FILTER_KIND_SIZE_MAX: Final = 16
"""Characters of the name of a filter's kind, `TAG` or `SQL92`."""
CALL_ITEMS_MAX: Final = 4_096
"""Queues, or acknowledged pops, of one request; clients split longer lists."""
BATCH_MESSAGES_MAX: Final = 40_000
"""Messages of one batch, which take 20 ms to store. As stored, 4 MiB hold no more."""
STREAM_RANGES_MAX: Final = 10_000
"""Ranges of one bulk gRPC stream: the queues of a Spark task."""
MESSAGE_FIELDS_MAX: Final = 1_000
"""Fields of a bulk gRPC message that carries records, which has some twenty."""
HEARTBEAT_GROUPS_MAX: Final = 1_000
"""Groups of one heartbeat, producers and consumers each: a client is in a few."""
HEARTBEAT_SUBSCRIPTIONS_MAX: Final = 4_000
"""Subscriptions of one heartbeat, over all groups."""
HEARTBEAT_FILTERS_MAX: Final = 128 * 1024
"""Characters of the filters of one heartbeat, which tools ask for with the hashes of their tags."""
CLIENTS_SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes of memory for the clients online and their subscriptions: 20,000 with four topics each."""
CLIENT_ID_SIZE_MAX: Final = 1_024
"""Characters of a client's id: an address, a process and a time."""
MESSAGE_EXTRAS_MAX: Final = 1024 * 1024
"""Bytes of a public gRPC send beside the bodies: 64 messages with the longest properties."""
PUBLIC_ENTRIES_MAX: Final = 1_024
"""Messages or acknowledgements of one public gRPC call; clients send one, or a batch of 32."""
ROUTE_QUEUES_MAX: Final = 1 << 18
"""Queues of a topic that a client takes from a name server, over all brokers: it lists them all."""
LENIENT_ANSWER_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a server's JSON that is not strict: the statistics of some 30,000 queues."""
LENIENT_KEYS_MAX: Final = 64 * 1024
"""Keys without quotes of a server's JSON: one for each of those queues."""
TOPIC_QUEUES_MAX: Final = 4_096
"""Queues of a topic. Its statistics are one answer, with an entry for each."""
REGISTRATION_TOPICS_MAX: Final = 2_000
"""Topics of one request by which a broker registers; brokers with more register them in parts."""
REGISTERED_BROKERS_MAX: Final = 256
"""Broker names that register with one name server: one answer lists them all."""
REPLICAS_MAX: Final = 8
"""Processes of one broker name that register with a name server."""
REGISTERED_TOPICS_MAX: Final = 32 * 1024
"""Topics that register with one name server, counted at each broker: one answer lists them."""
