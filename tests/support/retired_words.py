"""Words and phrases that gave way to the terms of Spark and RocketMQ, or to plain sentences."""

from __future__ import annotations

# Words of docstrings, comments, log lines, errors, help and documentation.
PROSE = (
    *("alike", "anew", "borrows?", "borrowed", "hurry", "lends?", "lent", "lookout", "loans?"),
    *("patience", "seats?", "settles?", "somebody", "stamps", "told", "verdicts?", "whoever"),
    *("goes on", "go on", "in the way", "is away", "is had", "no matter", "so many"),
    *("tells? of", "says? so"),
)
# Phrases of sentences that readers of the documentation had to read twice.
DOCUMENTATION = (
    *("puts? away", "taken for dead", "stands? still", "letter by letter", "it is not where"),
    *("for people and tools", "the very", "a longest wait", "and not there", "one of that size"),
    *("once more", "planned again", "has them all", "whole of it", "is called for", "so far that"),
)
# Another field's own term, or a name that is public or stored.
EXCEPTIONS = {
    r'"anew"': "a key of stored repair reports",
    r"[Tt]ime_?stamps?|TIME_?STAMPS?": "Spark's and RocketMQ's timestamps",
    r"[Dd]ead[-_ ]?[Ll]etters?|DEAD_LETTERS?": "RocketMQ's dead letters",
}
