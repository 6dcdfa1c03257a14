"""Identifies the sender of a request by its signature, and checks its right to the request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_broker.errors import ConfigError
from rocketmq_broker.peer_log import PeerLog
from rocketmq_broker.security.accounts import Account, Accounts
from rocketmq_broker.security.auth_5_3 import parse_auth_file
from rocketmq_broker.security.reloaded_files import ReloadedFiles
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codec import is_free
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.contract import Request
from rocketmq_wire.requests.permissions import Permission
from rocketmq_wire.signing import ACCESS_KEY, call_signature, is_signed_by

_PEERS = PeerLog(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class SigningAccount:
    """The account that signed a request, and the address that it came from."""

    access_key: str
    account: Account
    host: str

    def may(self, permissions: Sequence[Permission]) -> bool:
        return self.account.refusal(permissions, self.host) is None

    def require(self, permissions: Sequence[Permission]) -> None:
        """Raises NotAuthorizedError if the account lacks one of the permissions."""
        reason = self.account.refusal(permissions, self.host)
        if reason is not None:
            raise _refused(self.host, reason)


class Guard:
    """Checks requests against a file of accounts."""

    def __init__(self, path: str, parse: Callable[[str], Accounts]) -> None:
        """Load the accounts. Raises ConfigError."""
        self._accounts = ReloadedFiles("accounts", [path], lambda: _load(Path(path), parse))

    def identify_request(self, host: str, header: Header, body: Buffer) -> SigningAccount | None:
        """The account of a request of the TCP protocol; None if it needs none.

        The body is not parsed yet. As in RocketMQ, a name server's requests need no account, unless
        they change the broker. Raises NotAuthorizedError.
        """
        if is_free(header.code):
            return None
        fields = header.ext_fields
        return self._identify(
            host,
            fields.get(ACCESS_KEY, ""),
            lambda secret_key: is_signed_by(secret_key, fields, header.version, body),
        )

    def identify_call(self, host: str, metadata: Mapping[str, str]) -> SigningAccount | None:
        """The account of a gRPC call; None if the host may do all. Raises NotAuthorizedError."""
        signature = call_signature(metadata)
        if signature is None:
            return self._identify(host, "", lambda _: False)
        return self._identify(host, signature.access_key, signature.is_by)

    def check_right(self, sender: SigningAccount | None, request: Request[Any]) -> None:
        """Check a sender's right to a request. Raises NotAuthorizedError."""
        if sender is not None and (request.access.cluster or not request.to_name_server):
            sender.require(request.permissions())

    def _identify(
        self, host: str, access_key: str, is_signed_by: Callable[[str], bool]
    ) -> SigningAccount | None:
        accounts = self._accounts.value()
        if accounts.trusts(host):
            return None
        if not access_key:
            raise _refused(host, "No accessKey is configured")
        account = accounts.by_key.get(access_key)
        if account is None:
            raise _refused(host, f"No acl config for {access_key[:64]!r}")
        if not account.trusts(host) and not is_signed_by(account.secret_key):
            raise _refused(host, f"Check signature failed for accessKey={access_key}")
        return SigningAccount(access_key, account, host)


def _load(path: Path, parse: Callable[[str], Accounts]) -> Accounts:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def make_guard(acl_file: str, auth_file: str) -> Guard | None:
    """The guard of a configuration; None without access control. Raises ConfigError."""
    if acl_file:
        try:
            # A broker without this file does not load PyYAML.
            from rocketmq_broker.security.acl_4_9 import parse_plain_acl
        except ImportError as error:
            advice = "acl_file needs PyYAML: pip install 'pyspark-rocketmq[broker]'"
            raise ConfigError(advice) from error
        return Guard(acl_file, parse_plain_acl)
    if auth_file:
        return Guard(auth_file, parse_auth_file)
    return None


def _refused(host: str, reason: str) -> BrokerError:
    _PEERS.warning(host, "peer=%s refused: %s", host, reason)
    return broker_error(ResponseCode.NO_PERMISSION, reason)
