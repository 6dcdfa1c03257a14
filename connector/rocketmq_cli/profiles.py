"""Profiles of clusters: the tables of `~/.config/rmq.toml` as defaults of connection options.

    [prod]
    name-server = "mq1:9876;mq2:9876"
    tls = true
    tls-ca-file = "ca.pem"               beside this file, unless it is absolute
    credentials-file = "prod.yml"        accessKey, secretKey and securityToken, as in tools.yml
    group = "billing"

`--profile` names the table, else `$RMQ_PROFILE`, else it is `[default]`; `none` is no table.
Options of the command line replace its values. Variables of the environment do so, too, but
`$NAMESRV_ADDR` does not replace the address of a profile that `--profile` names.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rocketmq_cli.usage import UsageError, report

NAME_SERVER_VARIABLE: Final = "NAMESRV_ADDR"
PROFILE_VARIABLE: Final = "RMQ_PROFILE"
NO_PROFILE: Final = "none"
_DEFAULT: Final = "default"
_FILES: Final = ("tls-ca-file", "tls-cert-file", "tls-key-file", "credentials-file")
_SECRETS: Final = ("tls-key-file", "credentials-file")
_SWITCHES: Final = ("tls", "tls-no-verify")
_KEYS: Final = ("name-server", "endpoints", *_SWITCHES, "tls-server-name", *_FILES, "group")
_KEY_NAMES: Final = ("accessKey", "secretKey", "securityToken")
_READABLE_BY_OTHERS: Final = 0o077


class Keys(NamedTuple):
    access_key: str
    secret_key: str
    security_token: str | None = None


def apply_profile(args: argparse.Namespace) -> None:
    """Put a profile's values in the place of options that are absent. Raises UsageError.

    The profile's group becomes `profile_group`: verbs choose whether to use it.
    """
    if hasattr(args, "profile_group"):
        return  # A verb that connects twice reports no finding twice.
    wanted = args.profile or os.environ.get(PROFILE_VARIABLE, "")
    profile = _read(wanted)
    given = "" if args.profile else os.environ.get(NAME_SERVER_VARIABLE, "")
    if args.name_server or args.endpoints or given:
        own = profile.get("name-server") or profile.get("endpoints")
        if given and wanted and own not in (None, given) and not args.name_server:
            report(f"{NAME_SERVER_VARIABLE}={given} replaces the address of profile {wanted!r}")
        profile = {
            key: at for key, at in profile.items() if key not in ("name-server", "endpoints")
        }
    args.credentials_file = args.profile_group = None
    for key, value in profile.items():
        name = "profile_group" if key == "group" else key.replace("-", "_")
        if not getattr(args, name):
            setattr(args, name, value)


def read_keys(path: str) -> Keys:
    """Read a file of credentials, in the form of RocketMQ's `tools.yml`. Raises UsageError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such credentials file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the credentials cannot be read: {error}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition("#")[0].partition(":")
        if not name.strip():
            continue
        if not colon or name.strip() not in _KEY_NAMES:
            raise UsageError(f"{path}: line {number} is none of {', '.join(_KEY_NAMES)}: VALUE")
        found[name.strip()] = value.strip().strip("\"'")
    for name in _KEY_NAMES[:2]:
        if not found.get(name):
            raise UsageError(f"{path}: {name} is missing")
    return Keys(*(found.get(name) or None for name in _KEY_NAMES))  # type: ignore[arg-type]


def profile_names() -> list[str]:
    """The profiles of the file; none if there is no file. Raises UsageError."""
    path = _path()
    return sorted(_tables(path)) if path.exists() else []


def _path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder) / "rmq.toml"


def _read(wanted: str) -> Mapping[str, str | bool]:
    """The values of a profile; empty if none is wanted and there is no default."""
    if wanted == NO_PROFILE:
        return {}
    path = _path()
    if not path.exists():
        if wanted:
            raise UsageError(f"there is no profile {wanted!r}: {path} does not exist")
        return {}
    tables = _tables(path)
    if wanted and wanted not in tables:
        from rocketmq_wire.suggest import did_you_mean  # Loads difflib.

        guess, known = did_you_mean(wanted, tables), ", ".join(sorted(tables)) or "none"
        raise UsageError(f"{path} has no profile {wanted!r}.{guess or f' It has {known}.'}")
    return _checked(path, wanted or _DEFAULT, tables.get(wanted or _DEFAULT, {}))


def _tables(path: Path) -> Mapping[str, object]:
    try:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
    except ImportError:
        needed = "pip install 'pyspark-rocketmq[broker]'"
        raise UsageError(f"{path} needs a reader of TOML: {needed}") from None

    try:
        tables: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return tables


def _checked(path: Path, name: str, table: object) -> Mapping[str, str | bool]:
    """A profile whose keys and values are known; names of files are absolute."""
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {name} must be a table: write [{name}]")
    found: dict[str, str | bool] = {}
    for key, value in table.items():
        where = f"{path}: [{name}] {key}"
        if key not in _KEYS:
            from rocketmq_wire.suggest import did_you_mean  # Loads difflib.

            guess = did_you_mean(key, _KEYS) or f" The keys are {', '.join(_KEYS)}."
            raise UsageError(f"{where} is no key of a profile.{guess}")
        is_switch = key in _SWITCHES
        if not isinstance(value, bool if is_switch else str) or value == "":
            kind = "true or false" if is_switch else "text"
            raise UsageError(f"{where} must be {kind}, not {value!r}")
        found[key] = value
        if key in _FILES:
            found[key] = str(path.parent / os.path.expanduser(str(value)))
        if key in _SECRETS:
            _warn_if_open(where, str(found[key]))
    if "name-server" in found and "endpoints" in found:
        raise UsageError(f"{path}: [{name}] has name-server and endpoints: leave out one")
    return found


def _warn_if_open(where: str, path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # Reading it fails with the reason.
    if mode & _READABLE_BY_OTHERS:
        report(f"{where}: other users of this machine can read {path}: chmod 600 {path}")
