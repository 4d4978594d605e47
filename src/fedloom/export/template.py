"""The template of `model.py`: the code around the network's classes, which loads and predicts.

No text that comes from a user goes into it: such names are in architecture.json, which model.py
reads. A backslash at the end of a line of the template joins it with the next line.
"""

from __future__ import annotations

from typing import Literal

from fedloom.config.models import Fit

# What `model.predict` returns: a class of a sample, or a class or a number for a row of a table.
Answer = Literal["class", "class of a row", "number of a row"]

BEGIN = '''"""A trained network as plain torch, written by fedloom {version}. \
See README.md beside it.

    import model
    network = model.load()
    scores = network(samples)              # raw samples, {samples}
    answers = model.predict(samples)       # {answers}

{usage}
"""

{imports}import json
import sys
from pathlib import Path

import numpy
import torch
from torch import nn
{functional}
HERE = Path(__file__).resolve().parent
DTYPES = {{"F64": torch.float64, "F32": torch.float32, \
"I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}}
AT_ONCE = 256  # samples that go through the network together


'''

RESIZE = '''


SIDE = {side}  # the network's images are so many pixels high and wide


def resized(samples: torch.Tensor) -> torch.Tensor:
    """Resize images of any size as in training: \
{fit}averaged by area, or bilinear where they grow."""
    if tuple(samples.shape[2:]) == (SIDE, SIDE):
        return samples
{square}    rows, columns = (weights_of_side(before) for before in samples.shape[2:])
    parts = rows[0].sum() * columns[0].sum()
    sums = rows @ samples.double() @ columns.T
    if samples.dtype == torch.uint8:
        return ((2 * sums + parts) / (2 * parts)).floor().to(torch.uint8)
    return (sums / parts).to(samples.dtype)


def weights_of_side(before: int) -> torch.Tensor:
    """How much of each old pixel goes into each new one, in whole numbers."""
    weights = torch.zeros(SIDE, before, dtype=torch.float64)
    for new in range(SIDE):
        if SIDE <= before:
            for old in range(before):
                begin, end = max(old * SIDE, new * before), \
min((old + 1) * SIDE, (new + 1) * before)
                weights[new, old] = max(0, end - begin)
        else:
            left, beyond = divmod((2 * new + 1) * before - SIDE, 2 * SIDE)
            weights[new, min(max(left, 0), before - 1)] += 2 * SIDE - beyond
            weights[new, min(max(left + 1, 0), before - 1)] += beyond
    return weights'''

# What is written about, and done with, images that are not square, for each way to fit them.
FITS: dict[Fit, str] = {
    "stretch": "",
    "crop": "the middle square of each, ",
    "pad": "each in the middle of a black square, ",
}
SQUARES: dict[Fit, str] = {
    "stretch": "",
    "crop": """    height, width = samples.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    samples = samples[:, :, top : top + side, left : left + side]
""",
    "pad": """    height, width = samples.shape[2:]
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    square = samples.new_zeros(*samples.shape[:2], side, side)
    if samples.dtype != torch.uint8:  # black of other values is the lowest of the image
        square += samples.amin((1, 2, 3), keepdim=True)
    square[:, :, top : top + height, left : left + width] = samples
    samples = square
""",
}

END = '''


def load(folder: Path = HERE) -> Network:
    """The network with its trained weights, ready to predict."""
    network = Network()
{format}    network.load_state_dict(read_weights(Path(folder) / "weights.safetensors"))
    return network.eval()


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of safetensors: the length of a header, the header in JSON, then the numbers. \
Nothing in it is code."""
    content = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    weights = {{}}
    for name, place in json.loads(content[8:begin]).items():
        if name != "__metadata__":
            first, last = place["data_offsets"]
            values = torch.frombuffer(content[begin + first : begin + last], \
dtype=DTYPES[place["dtype"]])
            weights[name] = values.reshape(place["shape"])
    return weights


def labels(folder: Path = HERE) -> list[str]:
    """The names of the classes, in the order of the scores."""
    return list(json.loads((Path(folder) / "architecture.json")\
.read_text(encoding="utf-8"))["labels"])


{predict}


{main}'''

# How classes and numbers are answered, and what `python model.py FILE` does.
PREDICT_CLASS = '''@torch.no_grad()
def predict(samples: torch.Tensor, network: Network | None = None) -> list[tuple[str, float]]:
    """The most likely label of every sample, and its probability."""
    network, names = network or load(), labels()
    chances = torch.cat([network({part}).double().softmax(1) for part in samples.split(AT_ONCE)])
    best = chances.max(1)
    return [(names[place], chance) for place, chance in \
zip(best.indices.tolist(), best.values.tolist())]'''

PREDICT_NUMBER = '''@torch.no_grad()
def predict(samples: torch.Tensor, network: Network | None = None) -> list[float]:
    """The predicted number for every sample, in the label's own units."""
    network = network or load()
    return torch.cat([network(part)[:, 0] for part in samples.split(AT_ONCE)]).tolist()'''

MAIN = """if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python model.py samples.npz")
    given = torch.from_numpy(numpy.load(sys.argv[1], allow_pickle=False)["x"])
    for name, chance in predict(given{channel}):
        print(f"{{name}}\\t{{chance:.6f}}")
"""

ROWS = '''


MISSING = ("", "na", "n/a", "nan", "null", "?")  # empty cells, in upper or lower case


def rows_in(file: str) -> list[dict[str, str]]:
    """The rows of a CSV file, by the names of its columns."""
    with open(file, newline="", encoding="utf-8-sig") as stream:
        first_line = stream.readline()
        stream.seek(0)
        return list(csv.DictReader(stream, delimiter=max(",;\\t", key=first_line.count)))


def samples_of(rows: list[dict[str, str]], folder: Path = HERE) -> torch.Tensor:
    """Encode rows for the network: architecture.json says how each column is encoded."""
    about = json.loads((Path(folder) / "architecture.json").read_text(encoding="utf-8"))
    samples = []
    for row in rows:
        cells = {{name.strip(): cell for name, cell in row.items() if name is not None}}
        numbers = []
        for column in about["input"]["table"]["columns"]:
            numbers += numbers_of(cells, column)
        samples.append(numbers)
    return torch.tensor(samples)


def numbers_of(cells: dict[str, str], column: dict) -> list[float]:
    """A missing number becomes the mean; a missing or unknown category is none of the known ones. \
For a column with missing values in training, one more number says whether it is missing."""
    if column["name"] not in cells:
        raise KeyError(f"column {{column['name']}} is missing")
    text = (cells[column["name"]] or "").strip()
    if column["kind"] == "number":
        is_missing = text.lower() in MISSING
        numbers = [column["mean"] if is_missing else float(text)]
    else:
        numbers = [float(category in (text, without_point(text))) \
for category in column["categories"]]
        is_missing = not any(numbers)
    if column["tells_missing"]:
        numbers.append(float(is_missing))
    return numbers


def without_point(text: str) -> str:
    """Write 2.0 as 2."""
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else text'''

MAIN_OF_ROWS = """if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python model.py rows.csv")
    for answer in predict(samples_of(rows_in(sys.argv[1]))):
        print({answer})
"""

ANSWERS: dict[Answer, str] = {
    "class": "[(label, probability), …]",
    "class of a row": "[(label, probability), …]",
    "number of a row": "[number, …], in the label's own units",
}
USAGE = "or, for an .npz with an array x:  python model.py samples.npz"
USAGE_OF_ROWS = """samples = model.samples_of(model.rows_in("rows.csv")) reads them from a CSV \
file with the columns of training;
or directly:  python model.py rows.csv"""
# How an answer is printed.
PRINTED: dict[Answer, str] = {
    "class of a row": 'f"{answer[0]}\\t{answer[1]:.6f}"',
    "number of a row": 'f"{answer:.6g}"',
}

CHANNELS_LAST = """    network.to(memory_format=torch.channels_last)  \
# as it was trained: the last bits depend on it
"""
# Images of one channel are often saved without it.
ONE_CHANNEL = ".unsqueeze(1) if given.dim() == 3 else given"


def model_file(
    classes: str,
    *,
    version: str,
    shape: tuple[int, ...],
    channels_last: bool,
    resize: int | None = None,
    fit: Fit = "stretch",
    answers: Answer = "class",
) -> str:
    """The text of model.py. `resize` is the side to which images of other sizes are resized."""
    functional = ""
    if "functional." in classes:
        functional = "from torch.nn import functional\n"
    memory_format = ""
    if channels_last:
        memory_format = CHANNELS_LAST
    before = ""
    part = "part"
    if resize is not None:
        before = RESIZE.format(side=resize, fit=FITS[fit], square=SQUARES[fit])
        part = "resized(part)"
    imports = ""
    usage = USAGE
    if answers == "class":
        main = MAIN.format(channel=channel_added(shape))
    else:
        before = ROWS.format()
        imports = "import csv\n"
        usage = USAGE_OF_ROWS
        main = MAIN_OF_ROWS.format(answer=PRINTED[answers])
    predict = PREDICT_CLASS.format(part=part)
    if answers == "number of a row":
        predict = PREDICT_NUMBER
    begin = BEGIN.format(
        version=version,
        samples=f"[n, {', '.join(map(str, shape))}]",
        functional=functional,
        answers=ANSWERS[answers],
        usage=usage,
        imports=imports,
    )
    end = END.format(format=memory_format, predict=predict, main=main)
    return begin + classes + before + end


def channel_added(shape: tuple[int, ...]) -> str:
    if len(shape) == 3 and shape[0] == 1:
        return ONE_CHANNEL
    return ""
