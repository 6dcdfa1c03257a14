"""Turns the proto files of this folder into the descriptor sets that the package loads.

Run it after every change of a proto file: `python connector/rocketmq_wire/stubs/generate.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PROTO_FILES = ("rocketmq/bulk/v1/bulk.proto",)
DESCRIPTOR_SET = FOLDER / "descriptors.binpb"
PUBLIC_PROTO_FILES = ("apache/rocketmq/v2/public.proto",)
PUBLIC_DESCRIPTOR_SET = FOLDER / "public.binpb"


def descriptor_set(proto_files: tuple[str, ...] = PROTO_FILES) -> bytes:
    """Compile the proto files. Comments are left out: they would only make the file larger."""
    # Only a change of a proto file needs it, so it is no dependency of the package.
    import grpc_tools
    from grpc_tools import protoc

    # The folder of the files of google.protobuf, which the public service uses.
    google = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        arguments = ["protoc", f"-I{FOLDER}", f"-I{google}", "--include_imports"]
        if protoc.main([*arguments, f"--descriptor_set_out={target}", *proto_files]) != 0:
            raise SystemExit("protoc refused the proto files; its message is above")
        return target.read_bytes()


def main() -> None:
    for path, files in (
        (DESCRIPTOR_SET, PROTO_FILES),
        (PUBLIC_DESCRIPTOR_SET, PUBLIC_PROTO_FILES),
    ):
        content = descriptor_set(files)
        path.write_bytes(content)
        sys.stdout.write(f"wrote {len(content)} bytes to {path.name}\n")


if __name__ == "__main__":
    main()
