"""Turns the proto files of this folder into the descriptor set that the package loads.

Run it after every change of a proto file: `python connector/rocketmq_wire/stubs/generate.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PROTO_FILES = ("rocketmq/bulk/v1/bulk.proto",)
DESCRIPTOR_SET = FOLDER / "descriptors.binpb"


def descriptor_set() -> bytes:
    """Compile the proto files. Comments are left out: they would only make the file larger."""
    # Needed only by whoever changes a proto file, so it is no dependency of the package.
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        arguments = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={target}", *PROTO_FILES]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc refused the proto files; its message is above")
        return target.read_bytes()


def main() -> None:
    content = descriptor_set()
    DESCRIPTOR_SET.write_bytes(content)
    sys.stdout.write(f"wrote {len(content)} bytes to {DESCRIPTOR_SET.name}\n")


if __name__ == "__main__":
    main()
