"""What the tests with foreign programs share. They are collected by `./run test-interop` alone."""

from __future__ import annotations
