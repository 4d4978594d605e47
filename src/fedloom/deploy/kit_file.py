"""kit.json in a site's start kit: the name of the site, and the address of its server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedloom.errors import FedloomError
from fedloom.files import write_whole
from fedloom.reading import Unreadable, read_json

NAME = "kit.json"
SITE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# The name in a certificate has at most 64 characters.
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")
SERVER = re.compile(rf"{HOST.pattern}:[0-9]{{1,5}}")


class KitFile(BaseModel):
    """The content of kit.json. Newer versions may add fields."""

    model_config = ConfigDict(strict=True, frozen=True)

    format: int = 1
    site: Annotated[str, Field(pattern=rf"^{SITE_NAME.pattern}$")]
    server: Annotated[str, Field(pattern=rf"^{SERVER.pattern}$")]

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
