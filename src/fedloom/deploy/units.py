"""systemd units for a federation's server and its sites: `fedloom federation init --systemd`.

They are templates of an administrator's decisions: the user, the data, and whether the site's
GPU is passed on. `systemd-analyze verify` accepts them as they are written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedloom.files import write_whole

# A service that sees nothing but what it needs. `ReadWritePaths` names its one folder.
HARDENED = """\
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
UMask=0077
"""


def server_unit(federation: Path, program: Path) -> str:
    """The unit of a server. It starts again after a failure; runs are resumed by hand."""
    return f"""\
# Install: copy to /etc/systemd/system, set User=, then
#   systemctl daemon-reload && systemctl enable --now {server_name(federation)}
# Runs are written by this service: add their folders to ReadWritePaths=.
[Unit]
Description=FedLoom server of {escaped(str(federation.name))}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
# User=fedloom
WorkingDirectory={escaped(str(federation))}
ExecStart={quoted(program)} federation server {quoted(federation)}
Restart=on-failure
RestartSec=10
TimeoutStopSec=30
KillMode=mixed
{HARDENED}ReadWritePaths={quoted(federation)}

[Install]
WantedBy=multi-user.target
"""


def site_unit(kit: Path, program: Path) -> str:
    """The unit of a site. Exit code 2 is a decision, such as a revoked key: it is not retried."""
    return f"""\
# Install at the site: copy to /etc/systemd/system, set User=, the paths, and --data, then
#   systemctl daemon-reload && systemctl enable --now {site_name(kit.name)}
[Unit]
Description=FedLoom site {escaped(kit.name)}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
# User=fedloom
WorkingDirectory={escaped(str(kit))}
Environment=FEDLOOM_DATA=/srv/fedloom/data
ExecStart={quoted(program)} federation site {quoted(kit)} --data ${{FEDLOOM_DATA}}
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2
TimeoutStopSec=30
KillMode=mixed
{HARDENED}ReadWritePaths={quoted(kit)}

[Install]
WantedBy=multi-user.target
"""


def write_units(
    federation: Path, sites: tuple[str, ...], program: Path | None = None
) -> list[Path]:
    """Write the units into DIR/systemd. A site's own is for the machine that it is on."""
    program = program or Path(sys.executable).with_name("fedloom")
    unit = server_unit(federation, program)
    paths = [write_unit(federation, server_name(federation), unit)]
    for site in sites:
        unit = site_unit(federation / "kits" / site, program)
        paths.append(write_unit(federation, site_name(site), unit))
    return paths


def write_unit(federation: Path, name: str, content: str) -> Path:
    folder = federation / "systemd"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / name, [content.encode()], durable=True)
    return folder / name


def server_name(federation: Path) -> str:
    return f"fedloom-server-{plain(federation.name)}.service"


def site_name(site: str) -> str:
    return f"fedloom-site-{plain(site)}.service"


def plain(name: str) -> str:
    """A name that systemd takes as part of a unit's."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)


def escaped(text: str) -> str:
    """Text without systemd's specifiers."""
    return text.replace("%", "%%")


def quoted(path: Path) -> str:
    text = escaped(str(path)).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    if " " in text or '"' in text:
        return f'"{text}"'
    return text
