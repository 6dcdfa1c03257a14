"""Stored records <-> Arrow columns, whole buffers at a time. No I/O, no object per message."""
