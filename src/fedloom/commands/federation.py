"""`fedloom federation ACTION`: a real federation's keys, server, sites and tokens."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from fedloom.commands.parsing import Commands, Parser, add_command, add_flag, add_group
from fedloom.config.flags import FLAGS
from fedloom.errors import FedloomError
from fedloom.reading import has_surrogates

# Declares `fedloom federation NAME`, given its name, its summary and what its first argument is.
Action = Callable[[str, str, str], Parser]


def add(commands: Commands) -> None:
    summary = "set up and run a real federation: its keys, its server, its sites"
    actions = add_group(commands, "federation", summary)

    def action(name: str, summary: str, place: str) -> Parser:
        added = add_command(actions, name, federation_command, summary)
        added.add_argument("path", metavar=place)
        return added

    init_command(action)
    member_commands(action)
    backup_commands(action)
    process_commands(action)
    token_command(action)
    reading_commands(action)


def init_command(action: Action) -> None:
    """`init` at the server."""
    init = action("init", "create certificates, and a start kit for every site", "DIR")
    help_site = "a site's name; repeat it for every site"
    init.add_argument("--site", action="append", default=[], metavar="NAME", help=help_site)
    help_host = "the server's name or address, as the sites see it"
    init.add_argument("--host", default="127.0.0.1", help=help_host)
    init.add_argument("--port", default="9092", help="the server's port (default 9092)")
    help_join = "start without any --site: sites make their own keys and join"
    init.add_argument("--sites-join", action="store_true", help=help_join)
    help_offline = "write the authority's key to this file instead of into DIR"
    init.add_argument("--offline-ca", metavar="FILE", help=help_offline)
    help_ca = "certificate (PEM) of an existing PKI by which sites verify the server"
    init.add_argument("--ca", metavar="FILE", help=help_ca)
    help_certificate = "the server's certificate from that PKI (not needed if a proxy has it)"
    init.add_argument("--certificate", metavar="FILE", help=help_certificate)
    init.add_argument("--key", metavar="FILE", help="the key of --certificate")
    help_listen = "where the server listens behind a reverse proxy, e.g. 127.0.0.1:9092"
    init.add_argument("--listen", metavar="ADDRESS:PORT", help=help_listen)
    help_units = "write systemd units for the server and the sites into DIR/systemd"
    init.add_argument("--systemd", action="store_true", help=help_units)


def member_commands(action: Action) -> None:
    """`join` at a site; `admit`, `add`, `rotate` and `revoke` at the server."""
    help_days = "days for which the key is admitted (default 730)"
    help_ca_key = "the authority's key, if it is not in DIR"
    join = action("join", "at a site: create its key, and a request for admission", "KIT")
    join.add_argument("--site", metavar="NAME", help="the site's name, for a new request")
    help_admission = "the server's answer, which completes the kit"
    join.add_argument("--admission", metavar="FILE", help=help_admission)
    help_fingerprint = "fingerprint of the admission, as given by the federation's operator"
    join.add_argument("--fingerprint", metavar="SHA256", help=help_fingerprint)
    admit = action("admit", "admit the key that a site has created", "DIR")
    admit.add_argument("request", metavar="REQUEST", help="the file that the site has sent")
    admit.add_argument("--replace", action="store_true", help="replace the key of a known site")
    help_out = "where to write the answer (default SITE.admission)"
    admit.add_argument("--out", metavar="FILE", help=help_out)
    add_site = action("add", "add a site, with a kit and key created here", "DIR")
    rotate = action("rotate", "give a site a new key, created here", "DIR")
    revoke = action("revoke", "remove a site; its key can never be admitted again", "DIR")
    for added in (add_site, rotate, revoke):
        added.add_argument("--site", required=True, metavar="NAME", help="the site's name")
    for added in (admit, add_site, rotate):
        added.add_argument("--days", default="730", metavar="N", help=help_days)
        added.add_argument("--ca-key", metavar="FILE", help=help_ca_key)


def backup_commands(action: Action) -> None:
    """`backup` and `restore`, of the server or a site."""
    backup = action("backup", "back up a federation's server, or a site", "DIR|KIT")
    help_backup = "the file to write; it holds private keys"
    backup.add_argument("--out", required=True, metavar="FILE", help=help_backup)
    restore = action("restore", "restore a backup into a new folder", "FILE")
    restore.add_argument("folder", metavar="DIR|KIT", help="the new folder")
    help_counters = "for a site: its old kit, whose counters and audit log are used if higher"
    restore.add_argument("--counters", metavar="KIT", help=help_counters)


def process_commands(action: Action) -> None:
    """`server` and `site`, which run until they are stopped."""
    server = action("server", "start the server", "DIR")
    help_metrics = "serve metrics for Prometheus at this port of 127.0.0.1 (default: off)"
    server.add_argument("--metrics", metavar="PORT", help=help_metrics)
    site = action("site", "start a site, with its own data", "KIT")
    help_data = "this site's samples, which never leave it"
    site.add_argument("--data", required=True, metavar="NAME|PATH", help=help_data)
    help_dir = "folder in which relative data paths are looked for"
    site.add_argument("--data-dir", metavar="DIR", help=help_dir)
    for flag in FLAGS:
        if flag.name in ("resize", "fit", "skip-bad"):
            add_flag(site, flag)
    site.add_argument("--device", default="cpu", help="torch device (default cpu)")
    help_port = "a port on this machine for Flower's own use (default: any free one)"
    site.add_argument("--port", help=help_port)
    help_insecure = "no TLS, no authentication: only to try it on one machine"
    for added in (server, site):
        added.add_argument("--insecure", action="store_true", help=help_insecure)


def token_command(action: Action) -> None:
    """`token` at the server."""
    token = action("token", "give another person access to the server's control interface", "DIR")
    help_role = "submitter (may run) or viewer (may look); default submitter"
    roles = ("submitter", "viewer")
    token.add_argument("--role", choices=roles, default="submitter", help=help_role)
    help_days = "days for which it is valid (default 30)"
    token.add_argument("--days", default="30", metavar="N", help=help_days)
    token.add_argument("--name", metavar="NAME", help="the owner's name (default: its role)")
    token.add_argument("--out", metavar="FILE", help="where to write it (default NAME.token)")
    token.add_argument("--withdraw", metavar="NAME", help="revoke this token instead")


def reading_commands(action: Action) -> None:
    """`status`, `audit` and `approve`, which can print JSON."""
    summary_status = "health, sites and disk of a federation, or of one site (by its kit)"
    status = action("status", summary_status, "DIR|TOKEN|KIT")
    audit = action(
        "audit", "check a site's audit log, and print what was requested and sent", "KIT"
    )
    help_head = "a head from an earlier check, which the log must still contain"
    audit.add_argument("--head", metavar="NUMBER:SHA256", help=help_head)
    approve = action(
        "approve", "list the experiments that wait for approval; approve or reject one", "KIT"
    )
    help_id = "the experiment to approve; without it, those that wait are listed"
    approve.add_argument("id", nargs="?", metavar="ID", help=help_id)
    help_reject = "the experiment to reject; `all`: every one that waits"
    approve.add_argument("--reject", metavar="ID|all", help=help_reject)
    for added in (status, audit, approve):
        added.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object and nothing else",
        )


def federation_command(options: argparse.Namespace) -> int:
    from fedloom.federation.engines import flower

    check_texts(options)
    flower.require()
    from fedloom.deploy import commands

    try:
        code: int = getattr(commands, options.action)(options)
    except BrokenPipeError:  # the reader of our output has gone
        raise
    except OSError as error:
        name = error.filename or options.path
        rule = f"every file and folder that this needs must be usable, such as {name}"
        problem = f"it is not ({error.strerror or type(error).__name__})"
        raise FedloomError(rule, problem, "check the path, its permissions and the disk") from error
    return code


def check_texts(options: argparse.Namespace) -> None:
    """Raise an error for an argument that is not text: its bytes could not be printed."""
    for value in vars(options).values():
        if isinstance(value, str) and (has_surrogates(value) or "\0" in value):
            rule = "every argument must be text in UTF-8"
            raise FedloomError(rule, f"got {value!r}", "rename the file, or name another")
