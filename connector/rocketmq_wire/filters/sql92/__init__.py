"""SQL92 filter expressions: text -> a selector that says of a message's properties yes or no.

The dialect, its types and its oddities are those of RocketMQ 5.3: `a = NULL` is refused,
`NOT a = 6` negates `a`, and text behind a complete expression is not read at all.
"""

from rocketmq_wire.filters.sql92.grammar import Selector, parse_selector
from rocketmq_wire.filters.sql92.tokens import SqlSyntaxError

__all__ = ["Selector", "SqlSyntaxError", "parse_selector"]
