"""Accounts of a bundled broker in both kinds of files: an administrator, a member, and nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from rocketmq_broker.config import BrokerConfig, config_from
from rocketmq_wire.signing import Credentials

ADMIN: Final = Credentials("AdminAdmin", "admin-secret")
MEMBER: Final = Credentials("MemberMember", "member-secret")
"""May publish to `TOPIC` and read it as a member of `GROUP`, and nothing else."""
NOBODY: Final = Credentials("NobodyNobody", "nobody-secret")
"""Has no right."""
TOPIC: Final = "mine"
GROUP: Final = "mygroup"
SCHEMES: Final = ("acl_file", "auth_file")

_PLAIN: Final = f"""
accounts:
  - accessKey: {ADMIN.access_key}
    secretKey: {ADMIN.secret_key}
    admin: true
  - accessKey: {MEMBER.access_key}
    secretKey: {MEMBER.secret_key}
    topicPerms: [{TOPIC}=PUB|SUB]
    groupPerms: [{GROUP}=SUB]
  - accessKey: {NOBODY.access_key}
    secretKey: {NOBODY.secret_key}
"""
_USERS: Final = {
    "users": [
        {"username": one.access_key, "password": one.secret_key, "userType": kind}
        for one, kind in ((ADMIN, "Super"), (MEMBER, "Normal"), (NOBODY, "Normal"))
    ],
    "acls": [
        {
            "subject": f"User:{MEMBER.access_key}",
            "policies": [
                {
                    "entries": [
                        {
                            "resource": [f"Topic:{TOPIC}"],
                            "actions": ["Pub", "Sub", "Get"],
                            "decision": "Allow",
                        },
                        {
                            "resource": [f"Group:{GROUP}"],
                            "actions": ["Sub", "Get"],
                            "decision": "Allow",
                        },
                    ]
                }
            ],
        }
    ],
}


def guarded_config(scheme: str, folder: Path, **settings: object) -> BrokerConfig:
    """A broker in memory that knows the three accounts."""
    path = folder / scheme
    path.write_text(_PLAIN if scheme == "acl_file" else json.dumps(_USERS))
    return config_from({"flush": "memory", scheme: str(path), **settings})
