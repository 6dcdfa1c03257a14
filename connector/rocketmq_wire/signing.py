"""RocketMQ's signatures: credentials and a request -> header fields that prove the sender.

    TCP     header fields AccessKey, SecurityToken (if there is one) and Signature
            Signature = Base64(HMAC-SHA1(secret key, values of the header fields in the order of
            their names, then the body)); names sort as Java sorts them
    gRPC    authorization: MQv2-HMAC-SHA1 Credential=<access key>, SignedHeaders=x-mq-date-time,
            Signature=<hex of HMAC-SHA1(secret key, text of x-mq-date-time)>

A signature over gRPC covers the time alone, so only TLS keeps others from using it again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_wire.limits import AUTHORIZATION_SIZE_MAX
from rocketmq_wire.model import Buffer

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
SESSION_TOKEN: Final = "x-mq-session-token"

_UNIQUE_KEY: Final = "_UNIQUE_KEY_QUERY"
# Brokers of 4.9 leave this field out of signatures; later brokers do for older clients only.
_UNIQUE_KEY_VERSION_MAX: Final = 399
_ALGORITHM: Final = "MQv2-HMAC-SHA1"
_SEPARATORS: Final = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """The sender's keys; neither repr() nor str() contains them. Raises ValueError."""

    access_key: str
    """The account's name."""
    secret_key: str
    """The account's secret, which signs requests and is never sent."""
    security_token: str | None = None
    """The token of a temporary account."""

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key", "security_token"):
            value = getattr(self, name)
            if value is None and name == "security_token":
                continue
            # The value is also an HTTP header. The error does not show it, because it is secret.
            if not value or not value.isascii() or not value.isprintable() or " " in value:
                raise ValueError(f"{name} must be printable ASCII without spaces, and not empty")

    def __repr__(self) -> str:
        return "Credentials(***)"


# --- TCP ------------------------------------------------------------------------------------


def sign_request(
    credentials: Credentials, ext_fields: Mapping[str, str], body: Sequence[Buffer] = ()
) -> dict[str, str]:
    """The header fields of a request, with access key and signature."""
    fields = {**ext_fields, ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    fields[SIGNATURE] = _signature(credentials.secret_key, _signed_values(fields, False), body)
    return fields


def signed_version(ext_fields: Mapping[str, str], version: int) -> int:
    """The version to send with a request, so that all brokers verify the same fields."""
    return min(version, _UNIQUE_KEY_VERSION_MAX) if _UNIQUE_KEY in ext_fields else version


def is_signed_by(
    secret_key: str, ext_fields: Mapping[str, str], version: int, body: Buffer
) -> bool:
    """True if the holder of this key signed the request."""
    includes_unique_key = version > _UNIQUE_KEY_VERSION_MAX
    values = _signed_values(ext_fields, includes_unique_key)
    expected = _signature(secret_key, values, (body,))
    given = ext_fields.get(SIGNATURE, "")
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _signed_values(fields: Mapping[str, str], includes_unique_key: bool) -> Iterable[str]:
    for name in sorted(fields, key=_java_order):
        if name != SIGNATURE and (includes_unique_key or name != _UNIQUE_KEY):
            yield fields[name]


def _java_order(name: str) -> bytes:
    # Java compares UTF-16 units, Python code points: they differ beyond the basic plane.
    return name.encode("utf-16-be", "surrogatepass")


def _signature(secret_key: str, values: Iterable[str], body: Sequence[Buffer]) -> str:
    content = "".join(values).encode("utf-8", "replace")
    mac = hmac.new(secret_key.encode(), content, hashlib.sha1)
    for part in body:
        mac.update(part)
    return base64.b64encode(mac.digest()).decode()


# --- gRPC -----------------------------------------------------------------------------------


def sign_call(credentials: Credentials, date_time: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call; `date_time` is written `yyyyMMdd'T'HHmmss'Z'`."""
    digest = _call_digest(credentials.secret_key, date_time)
    authorization = (
        f"{_ALGORITHM} Credential={credentials.access_key}, "
        f"SignedHeaders={DATE_TIME}, Signature={digest.hex().upper()}"
    )
    fields = ((DATE_TIME, date_time), (AUTHORIZATION, authorization))
    if credentials.security_token is None:
        return fields
    return (*fields, (SESSION_TOKEN, credentials.security_token))


@dataclass(frozen=True, slots=True)
class CallSignature:
    access_key: str
    digest: bytes
    date_time: str

    def is_by(self, secret_key: str) -> bool:
        """True if the holder of this key signed the call."""
        return hmac.compare_digest(_call_digest(secret_key, self.date_time), self.digest)


def call_signature(metadata: Mapping[str, str]) -> CallSignature | None:
    """The signature in a call's metadata; None if there is no readable one."""
    authorization = metadata.get(AUTHORIZATION, "")
    if len(authorization) > AUTHORIZATION_SIZE_MAX:
        return None
    algorithm, _, rest = authorization.partition(" ")
    pairs = (part.partition("=") for part in _SEPARATORS.split(rest))
    parts = {name: value for name, _, value in pairs}
    try:
        # Java writes upper case, Python lower case.
        digest = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        return None
    # A credential may carry more after a slash.
    access_key = parts.get("Credential", "").partition("/")[0]
    if algorithm != _ALGORITHM or not access_key or not digest:
        return None
    return CallSignature(access_key, digest, metadata.get(DATE_TIME, ""))


def _call_digest(secret_key: str, date_time: str) -> bytes:
    return hmac.digest(secret_key.encode(), date_time.encode("utf-8", "replace"), "sha1")
