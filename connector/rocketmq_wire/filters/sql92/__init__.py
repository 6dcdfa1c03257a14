"""SQL92 filter expressions: text -> a selector that decides by a message's properties.

The dialect, its types and its oddities are those of RocketMQ 5.3: `a = NULL` is refused,
`NOT a = 6` negates `a`, and the parser does not read text after a complete expression.
"""

from rocketmq_wire.filters.sql92.grammar import Selector, parse_selector

__all__ = ["Selector", "parse_selector"]
