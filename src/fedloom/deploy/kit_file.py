"""kit.json in a site's start kit: the name of the site, and the address of its server.

A kit is used by its owner alone: files that another user, such as root, makes in it would lock the
site out.
"""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_json

NAME = "kit.json"
SITE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# The name in a certificate has at most 64 characters.
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")
SERVER = re.compile(rf"{HOST.pattern}:[0-9]{{1,5}}")


def is_server(text: str) -> bool:
    """Whether this is a name or an IPv4 address, and a port that exists."""
    return SERVER.fullmatch(text) is not None and is_port(text.rpartition(":")[2])


def is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536


def checked_server(text: str) -> str:
    if not is_server(text):
        raise ValueError("an address and a port")
    return text


ServerAddress = Annotated[str, AfterValidator(checked_server)]


class KitFile(BaseModel):
    """The content of kit.json. Newer versions may add fields."""

    model_config = ConfigDict(strict=True, frozen=True)

    format: int = 1
    site: Annotated[str, Field(pattern=rf"^{SITE_NAME.pattern}$")]
    server: ServerAddress

    def write(self, kit: Path) -> None:
        content = self.model_dump_json(indent=1)
        write_whole(kit / NAME, [content.encode()], durable=True)

    @classmethod
    def read(cls, kit: Path) -> KitFile:
        path = kit / NAME
        try:
            return cls.model_validate(read_json(path))
        except Unreadable as error:
            rule = f"{path} must be the file of a site's start kit"
            advice = "ask whoever runs the federation for yours"
            raise FedloomError(rule, f"{error}", advice) from None
        except ValidationError:
            rule = f"{path} must be as fedloom wrote it"
            advice = "restore it, or make a new federation"
            raise FedloomError(rule, "it is damaged", advice) from None


def check_owner(kit: Path) -> None:
    """Raise an error if the kit belongs to another user than the one who runs this process."""
    try:
        owner = kit.stat().st_uid
    except OSError:
        return  # there is no kit, which reading its file reports
    here = os.geteuid()
    if owner != here:
        rule = f"{kit} must belong to the user who opens it"
        problem = f"it belongs to {name_of(owner)}, and you are {name_of(here)}"
        raise FedloomError(rule, problem, "run this as its owner, or give it to you with chown")


def name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
