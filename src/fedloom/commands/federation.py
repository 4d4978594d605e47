"""`fedloom federation init|server|site|status`."""

from __future__ import annotations

import argparse

from fedloom.commands.parsing import Commands, Parser, add_command, add_flag, add_group
from fedloom.config.flags import FLAGS


def add(commands: Commands) -> None:
    summary = "set up and run a real federation: its keys, its server, its sites"
    actions = add_group(commands, "federation", summary)

    def action(name: str, summary: str, place: str) -> Parser:
        added = add_command(actions, name, federation_command, summary)
        added.add_argument("path", metavar=place)
        return added

    init = action("init", "create certificates, and a start kit for every site", "DIR")
    help_site = "a site's name; repeat it for every site"
    init.add_argument("--site", action="append", default=[], metavar="NAME", help=help_site)
    help_host = "the server's name or address, as the sites see it"
    init.add_argument("--host", default="127.0.0.1", help=help_host)
    init.add_argument("--port", default="9092", help="the server's port (default 9092)")
    server = action("server", "start the server", "DIR")
    site = action("site", "start a site, with its own data", "KIT")
    help_data = "this site's samples, which never leave it"
    site.add_argument("--data", required=True, metavar="NAME|PATH", help=help_data)
    help_dir = "folder in which relative data paths are looked for"
    site.add_argument("--data-dir", metavar="DIR", help=help_dir)
    for flag in FLAGS:
        if flag.name in ("resize", "fit", "skip-bad"):
            add_flag(site, flag)
    site.add_argument("--device", default="cpu", help="torch device (default cpu)")
    help_port = "a free port on this machine for Flower's own use (default 9094)"
    site.add_argument("--port", default="9094", help=help_port)
    help_insecure = "no TLS, no authentication: only to try it on one machine"
    for added in (server, site):
        added.add_argument("--insecure", action="store_true", help=help_insecure)
    token = action("token", "give somebody else access to the server's control interface", "DIR")
    help_role = "submitter (may run) or viewer (may look); default submitter"
    roles = ("submitter", "viewer")
    token.add_argument("--role", choices=roles, default="submitter", help=help_role)
    help_days = "days for which it is valid (default 30)"
    token.add_argument("--days", default="30", metavar="N", help=help_days)
    token.add_argument("--name", metavar="NAME", help="whose it is (default its role)")
    token.add_argument("--out", metavar="FILE", help="where to write it (default NAME.token)")
    token.add_argument("--withdraw", metavar="NAME", help="make this token unusable instead")
    summary_status = "health, sites, disk: of a federation, or of a site by its kit"
    status = action("status", summary_status, "DIR|TOKEN|KIT")
    status.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object and nothing else",
    )


def federation_command(options: argparse.Namespace) -> int:
    from fedloom.federation.engines import flower

    flower.require()
    from fedloom.deploy import commands

    code: int = getattr(commands, options.action)(options)
    return code
