"""Certificates for tests, made by the openssl command: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    cert_file: str
    key_file: str


class Authority:
    """Signs certificates; `ca_file` is what its friends trust."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._name = directory, name
        self._count = 0
        self.ca_file = str(directory / f"{name}.pem")
        self._key_file = str(directory / f"{name}.key")
        _openssl(
            *("req", "-x509", "-nodes", *_KEY, "-days", "30", "-subj", f"/CN={name}"),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-keyout", self._key_file, "-out", self.ca_file),
        )

    def issue(self, names: str = "IP:127.0.0.1,DNS:localhost", *, is_expired: bool = False) -> Pair:
        """A certificate for these names, which ran out long ago if `is_expired`."""
        self._count += 1
        stem = self._directory / f"{self._name}-{self._count}"
        pair = Pair(f"{stem}.pem", f"{stem}.key")
        request, extensions = f"{stem}.csr", stem.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
        _openssl(
            *("req", "-nodes", *_KEY, "-subj", f"/CN={stem.name}"),
            *("-keyout", pair.key_file, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca_file, "-CAkey", self._key_file),
            *("-set_serial", str(1_000 + self._count), "-extfile", str(extensions)),
            # A certificate that ends before it begins is never valid, whatever the clock says.
            *("-days", "-1" if is_expired else "30"),
            *("-out", pair.cert_file),
        )
        return pair


def replace_pair(there: Pair, new: Pair) -> None:
    """Put new files in the place of old ones, as tools that renew certificates do."""
    for old, fresh in ((there.key_file, new.key_file), (there.cert_file, new.cert_file)):
        draft = Path(f"{old}.draft")
        shutil.copyfile(fresh, draft)
        draft.replace(old)


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(*words: str) -> None:
    made = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"openssl {words[0]} failed: {made.stderr}")
