"""Asks who sends a request and whether it may: the file of accounts, read anew when it changes.

The file is looked at when a request comes, at most once a second. A file that cannot be read leaves
the last good accounts in force, and is complained of once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rocketmq_broker.security.accounts import Account, AccountFileError, Accounts
from rocketmq_broker.security.auth_5_3 import parse_auth_file
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.contract import Request
from rocketmq_wire.signing import ACCESS_KEY, call_signature, is_signed_by

_LOG = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0


class Guard:
    """Lives on the event loop's thread. Raises AccountFileError when made with a bad file."""

    def __init__(self, path: str, parse: Callable[[str], Accounts]) -> None:
        self._path, self._parse = Path(path), parse
        self._looked_at = time.monotonic()
        self._stamp = self._look()
        self._accounts = self._load()

    def check_request(self, host: str, header: Header, body: Buffer, request: Request[Any]) -> None:
        """Of the TCP protocol. Raises NotAuthorizedError.

        Name servers ask nobody, as in RocketMQ, but for what changes the broker behind ours.
        """
        if _is_free(request):
            return
        fields = header.ext_fields
        account = self._identify(
            host,
            fields.get(ACCESS_KEY, ""),
            lambda secret_key: is_signed_by(secret_key, fields, header.version, body),
        )
        self.check_right(account, host, request)

    def identify_call(self, host: str, metadata: Mapping[str, str]) -> Account | None:
        """Who makes a gRPC call; None for one who may do all. Raises NotAuthorizedError."""
        signature = call_signature(metadata)
        if signature is None:
            return self._identify(host, "", lambda _: False)
        return self._identify(host, signature.access_key, signature.is_by)

    def check_right(self, account: Account | None, host: str, request: Request[Any]) -> None:
        """Raises NotAuthorizedError when the account may not do this."""
        if account is None or _is_free(request):
            return
        reason = account.refusal(request.permissions(), host)
        if reason is not None:
            raise _refused(host, reason)

    def _identify(
        self, host: str, access_key: str, is_signed_by: Callable[[str], bool]
    ) -> Account | None:
        self._refresh()
        if self._accounts.trusts(host):
            return None
        if not access_key:
            raise _refused(host, "No accessKey is configured")
        account = self._accounts.by_key.get(access_key)
        if account is None:
            raise _refused(host, f"No acl config for {access_key[:64]!r}")
        if not account.trusts(host) and not is_signed_by(account.secret_key):
            raise _refused(host, f"Check signature failed for accessKey={access_key}")
        return account

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._accounts = self._load()
        except AccountFileError as error:
            _LOG.error("the accounts of before stay in force: %s", error)
            return
        _LOG.warning("new accounts are in force: %s", self._path)

    def _look(self) -> tuple[int, int, int]:
        try:
            stat = os.stat(self._path)
        except OSError as error:
            raise AccountFileError(f"cannot read {self._path}: {error.strerror}") from error
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def _load(self) -> Accounts:
        try:
            return self._parse(self._path.read_text(encoding="utf-8"))
        except OSError as error:
            raise AccountFileError(f"cannot read {self._path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise AccountFileError(f"{self._path} is not UTF-8") from error
        except AccountFileError as error:
            raise AccountFileError(f"{self._path}: {error}") from error


def make_guard(acl_file: str, auth_file: str) -> Guard | None:
    """The guard that a configuration asks for; None: nobody is asked. Raises AccountFileError."""
    if acl_file:
        try:
            # A broker without this file does not load PyYAML.
            from rocketmq_broker.security.acl_4_9 import parse_plain_acl
        except ImportError as error:
            told = "acl_file needs PyYAML: pip install 'pyspark-rocketmq[broker]'"
            raise AccountFileError(told) from error
        return Guard(acl_file, parse_plain_acl)
    if auth_file:
        return Guard(auth_file, parse_auth_file)
    return None


def _is_free(request: Request[Any]) -> bool:
    return request.to_name_server and not request.access.cluster


def _refused(host: str, reason: str) -> BrokerError:
    _LOG.warning("peer=%s refused: %s", host, reason)
    return broker_error(ResponseCode.NO_PERMISSION, reason)
