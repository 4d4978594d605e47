"""Draws the pictures of docs/data/partitions.md: `python docs/pictures/partitions.py [DATA]`.

DATA is a folder with Tiny Shakespeare and the Free Spoken Digit Dataset. Without it, only digits
are drawn.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedloom.data.readers.digits import digits

HERE = Path(__file__).parent
DIGITS = {
    "iid": ("iid", 8),
    "dirichlet": ("dirichlet:0.2", 8),
    "dirichlet-equal": ("dirichlet-equal:0.2", 8),
    "label-skew": ("label-skew:2", 10),
    "dominant": ("dominant:0.6", 10),
    "missing": ("missing:0.4", 10),
    "rotation": ("dirichlet:0.5+rotation:30", 5),
}
SITES = {
    "airport": (range(5), 300),
    "harbour": (range(3, 10), 500),
    "village": (range(10), 120),
}  # classes, samples
GROUPED = {
    "natural": ("fsdd", "natural", None),
    "natural-cut": ("fsdd", "natural", 20),
    "natural-joined": ("shakespeare", "natural", 12),
}


def draw(name: str, data: str, partition: str, clients: int | None, *more: str) -> None:
    many = [] if clients is None else ["--clients", str(clients)]
    out = ["--partition", partition, *many, "--out", str(HERE / f"{name}.svg")]
    subprocess.run([sys.executable, "-m", "fedloom", "data", "show", data, *out, *more], check=True)


def make_sites(folder: Path) -> None:
    """Digits of three places that see different ones."""
    source = digits()
    folder.mkdir()
    for name, (labels, samples) in SITES.items():
        chosen = np.flatnonzero(np.isin(source.y, labels))[:samples]
        np.savez(folder / f"{name}.npz", x=source.x[chosen, 0], y=source.y[chosen])


def main() -> None:
    for name, (partition, clients) in DIGITS.items():
        draw(name, "digits", partition, clients)
    with TemporaryDirectory() as folder:
        sites = Path(folder) / "sites"
        make_sites(sites)
        draw("sites", str(sites), "sites", None)
    for name, (data, partition, clients) in GROUPED.items() if len(sys.argv) > 1 else ():
        draw(name, data, partition, clients, "--data-dir", sys.argv[1])


if __name__ == "__main__":
    main()
