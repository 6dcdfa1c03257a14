"""A page read back: its tags and its text."""

from __future__ import annotations

from html.parser import HTMLParser


class Tags(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - its shape
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data
