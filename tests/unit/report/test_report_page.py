"""The whole page, from folders made by hand: what is in it, and what it does with bad input."""

import re
from html.parser import HTMLParser

import pytest
from fabricated import OTHER, USUAL, client, counted, make_run, row, searched

from fedloom.report.page import NAME, run_page, try_report, write_report
from fedloom.report.story import Reader

NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>&\''
VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Parses a page as a browser would: tags, headings, ids, everything that could load."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.headings = []
        self.ids = []
        self.loads = []
        self.tags = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, name, pairs):
        self.handle_startendtag(name, pairs)
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, pairs):
        self.tags.append(name)
        if re.fullmatch("h[1-6]", name):
            self.headings.append(int(name[1]))
        for key, value in pairs:
            assert not key.startswith("on") and key != "style"
            if key == "id":
                self.ids.append(value)
            if key in ("src", "href") and not value.startswith("#"):
                self.loads.append(value)

    def handle_endtag(self, name):
        assert self.open.pop() == name


def read(folder):
    text = run_page(Reader(folder).read())
    outline = Outline(text)
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == 1 and outline.headings.count(1) == 1
    assert all(
        after - before <= 1
        for before, after in zip(outline.headings, outline.headings[1:], strict=False)
    )
    assert outline.loads == [] and outline.tags.count("script") == 1
    assert "NaN" not in text and ">None<" not in text and ">nan<" not in text
    return text


def personal(**more):
    """A run with all sections: three clients, phases, decisions, gain and confusion matrix."""
    clients = [
        client(0, 0.9, searched(USUAL), shared_accuracy=0.8),
        client(1, 0.6, searched(USUAL), params=8000, macs=99_000),
        client(2, 0.7, searched(OTHER), params=9000, macs=80_000),
    ]
    decision = {"round": 2, "slot": "normal.0-2", "kept": ["sep_conv_3x3"], "without": {}}
    rows = [
        row(1, 0.3, 0.2, phase="warm-up"),
        row(2, 0.5, 0.4, phase="search", observed={"1": {"decisions": [decision]}}),
        row(3, 0.7, 0.6, phase="final"),
    ]
    confusion = {"labels": ["cat", "dog"], "clients": 3, "counts": [[3, 1], [0, 2]]}
    return {
        "rows": rows,
        "clients": clients,
        "classes": counted(3),
        "method": "spider",
        "confusion": confusion,
        **more,
    }


@pytest.fixture
def folder(tmp_path):
    folder = make_run(tmp_path / "run", **personal())
    gain = {
        "run": "r",
        "metric": "accuracy",
        "epochs": 1,
        "start": "inherit",
        "lr": 0.1,
        "clients": [0, 1, 2],
    }
    gain |= {
        "matrix": [[0.9, 0.8, None], [0.7, 0.6, 0.5], [0.4, 0.5, 0.7]],
        "gains": [0.1, 0.0, None],
        "gain": 0.05,
    }
    gain["balanced_accuracy"] = [[0.5, 0.51, None], [0.95, 0.6, 0.5], [0.4, 0.5, 0.7]]
    gain["auc"] = [[0.5, 0.52, None], [0.96, 0.6, 0.5], [0.4, 0.5, 0.7]]
    folder.write_json("gain.json", gain)
    return folder


def test_everything_is_in_it(folder):
    text = read(folder)
    assert (
        "spider found 2 different networks for 3 clients. "
        "Accuracy on their own test data is 73.3 % on average." in text
    )
    assert "baseline: the shared model alone" in text
    assert "baseline: each client's most common class: 25.0" in text
    assert all(f">{name}</text>" in text for name in ("warm-up", "search", "final"))
    assert "The diamond is the worst client, client 1." in text
    assert "Most frequent mistakes: cat as dog (1×)." in text
    assert "2 edges differ" in text and text.count("as most clients") == 2
    assert 'class="marked"' in text
    assert "When slots were decided" in text and ">normal.0-2</text>" in text
    assert "Does an architecture fit its own client best?" in text and "+5.0 %" in text
    assert "The same networks by balanced accuracy" in text and ">95.0<" in text
    assert "The same networks by AUC" in text and ">96.0<" in text
    assert "Accuracy against parameters" in text and "Accuracy against MACs per sample" in text
    assert "all tensors of the order" in text and "its observer saw more" in text
    assert (
        f"fedloom run --config {folder.path}/config.toml --set data.split={folder.path}/split.json"
        in text
    )
    assert "[budget]" in text and "SHA-256" in text


def test_every_figure_has_a_name_a_description_and_a_table(folder):
    text = read(folder)
    figures = re.findall(r"<figure.*?</figure>", text, re.S)
    assert len(figures) >= 9
    for figure in figures:
        assert "<title " in figure and "<desc " in figure
        assert (
            "<table>" in figure or "intervals-figure" in figure
        )  # whose table of all clients stands below it


def test_it_forbids_everything_from_elsewhere(folder):
    text = read(folder)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert policy.startswith("default-src &#x27;none&#x27;; style-src &#x27;sha256-")
    assert (
        "connect-src &#x27;none&#x27;" in policy and "unsafe" not in policy and "fetch(" not in text
    )


def test_writing_it_twice_gives_the_same_file(folder):
    path = write_report(folder)
    first = path.read_bytes()
    assert path == folder.path / NAME and write_report(folder).read_bytes() == first


# Bad input


@pytest.mark.parametrize(
    "rows", [[], [row(1)], [row(1, None)]], ids=["no round", "one round", "no figure"]
)
def test_a_run_without_results_yet(tmp_path, rows):
    folder = make_run(tmp_path / "run", rows)
    text = read(folder)
    assert (
        "has no result yet, and no process is working on it. "
        f"Continue it with `fedloom resume {folder.path}`" in text
    )
    assert f"{len(rows)} of 20" in text and '<section id="privacy" hidden>' in text
    with folder.lock():
        assert "This run is in progress" in read(folder)


def test_a_folder_with_nothing_in_it(tmp_path):
    folder = make_run(tmp_path / "run")
    for name in ("config.toml", "split.json", "metrics.jsonl"):
        (folder.path / name).unlink()
    text = read(folder)
    assert "? on unknown data" in text and "the split file is missing or damaged" in text


def test_one_client(tmp_path):
    text = read(
        make_run(tmp_path / "run", [row(1)], [client(0, 1.0, searched(USUAL))], classes=counted(1))
    )
    assert (
        "fedavg found one network for one client" in text and "One architecture: client 0" in text
    )
    assert "All networks have 7 k parameters and 90 kMACs per sample." in text


def test_clients_without_figures(tmp_path):
    silent = client(1, None, None, params=None, macs=None, reason=f"died: {NASTY}")
    text = read(make_run(tmp_path / "run", [row(1, None)], [client(0, 0.5), silent]))
    assert "1 of 2 clients gave no final figures." in text and "died: &lt;script&gt;" in text
    nobody = read(
        make_run(tmp_path / "nobody", [row(1, None)], [{**silent, "client": k} for k in range(2)])
    )
    assert "is – on average" in nobody


def test_figures_that_are_no_numbers(tmp_path):
    folder = make_run(tmp_path / "run", [row(1), row(2)], [client(0)])
    lines = (
        (folder.path / "metrics.jsonl").read_text().replace('"accuracy": 0.5', '"accuracy": NaN')
    )
    (folder.path / "metrics.jsonl").write_text(lines.replace('"loss": 1.0', '"loss": Infinity'))
    read(folder)


def test_a_thousand_clients(tmp_path):
    clients = [
        client(k, k / 1000, searched(OTHER if k % 3 else USUAL), params=1000 + k)
        for k in range(1000)
    ]
    labels = [f"class {k}" for k in range(100)]
    confusion = {"labels": labels, "clients": 1000, "counts": [[1] * 100] * 100}
    classes = {
        "labels": labels,
        "counts": [[k] * 100 for k in range(60)],
        "names": [],
        "usual": None,
    }
    rows = [row(k, 0.5, 0.4) for k in range(1, 501)]
    folder = make_run(
        tmp_path / "run", rows, clients, classes=classes, confusion=confusion, registered=5000
    )
    text = read(folder)
    assert len(text) < 5_000_000
    assert "a sample of 1,000 of 5,000 clients" in text and "The first 60 of 1,000 clients." in text
    assert "The first 40 are shown; the table above describes 960 more" in text
    assert 'data-rows="50"' in text and text.count("cells of client") >= 40


def test_processes_that_died(tmp_path):
    killed = [
        {"client": 1, "signal": "SIGSEGV"},
        {"client": 2, "exit": 7},
        {"client": 2, "exit": None},
    ]
    text = read(
        make_run(tmp_path / "run", [row(1), row(2, deaths=killed)], [client(k) for k in range(3)])
    )
    sentence = (
        "3 worker processes died while working. "
        "The work of a process that dies is given to another one, once."
    )
    assert sentence in text and "SIGSEGV" in text and "exit code 7" in text
    assert "it went silent" in text and "exit code None" not in text
    one = read(
        make_run(tmp_path / "one", [row(1, deaths=killed[:1])], [client(k) for k in range(3)])
    )
    assert "1 worker process died while working." in one
    assert "died while working" not in read(make_run(tmp_path / "calm", [row(1)], [client(0)]))


def test_names_with_html_in_them(tmp_path):
    classes = {
        "labels": [NASTY, "dog"],
        "counts": [[1, 2]] * 3,
        "names": [NASTY, "\x1b[2J", "c"],
        "usual": 0.5,
    }
    data = {"name": NASTY, "partition": NASTY, "split": NASTY}
    more = {
        "confusion": {"labels": [NASTY, "dog"], "clients": 3, "counts": [[1, 1], [1, 1]]},
        "method": NASTY,
        "data": data,
    }
    more["versions"] = {NASTY: NASTY}
    rows = [
        row(1, phase=NASTY, meta={NASTY: 1.0}, refused=[{"client": 0, "reason": NASTY}]),
        row(2, phase="b"),
    ]
    folder = make_run(
        tmp_path / "run",
        rows,
        [client(k, architecture=NASTY) for k in range(3)],
        classes=classes,
        **more,
    )
    text = read(folder)
    assert "<script>alert" not in text and "<img" not in text and "&lt;script&gt;alert" in text
    assert "\x1b" not in text


def test_missing_split_or_data(folder):
    (folder.path / "classes.json").unlink()
    assert "the data is no longer where it was" in read(folder)
    (folder.path / "split.json").unlink()
    assert "the split file is missing or damaged" in read(folder)


def test_a_federations_run(tmp_path):
    """A site tells neither sizes nor architecture, the server no MACs; null fields are dashes."""
    clients = [client(k, 0.5, None, params=None, macs=None) for k in range(2)]
    folder = make_run(
        tmp_path / "run", [row(1)], clients, config={"engine": {"federation": "fed"}}, macs=None
    )
    folder.write_json("sites.json", {"hospital-a": {}, "hospital-b": {}})
    text = read(folder)
    assert "which do not report their architectures" in text and "hospital-b" in text
    assert (
        "not their classes" in text
        and "Clients of a federation do not report their architectures" in text
    )
    assert "Sizes are not known" in text and "nobody observed more than these fields" in text
    assert f"fedloom run --config {folder.path}/config.toml<" in text


def test_a_run_of_text(tmp_path):
    """Lower is better: the worst has the highest perplexity."""

    def text_client(number, figure):
        return {**client(number, 0.2), "perplexity": figure, "interval": [figure - 1, figure + 1]}

    figures = {"mean": 5.0, "std": 3.0, "worst": 8.0, "worst10": 8.0, "pooled": 4.0}
    evaluation = {
        "part": "test",
        "clients": 2,
        "metric": "perplexity",
        "perplexity": 9.5,
        "shared": None,
    }
    rows = [row(k, evaluation={**evaluation, "perplexity": 10.0 - k}) for k in (1, 2)]
    more = {"metric": "perplexity", "lower_is_better": True, "perplexity": figures, "global": 4.5}
    text = read(
        make_run(tmp_path / "run", rows, [text_client(0, 2.0), text_client(1, 8.0)], **more)
    )
    assert (
        "Perplexity on their own test data is 5.00 on average." in text
        and "(lower is better)" in text
    )
    assert "The diamond is the worst client, client 1." in text and "acc. %" in text
    assert "From 9.00 in round 1 to 8.00 in round 2." in text


@pytest.mark.parametrize(
    "gain",
    [
        [],
        {"clients": [0]},
        {"clients": [0, 1], "matrix": [[1]], "gains": [], "gain": 0, "start": "fresh", "epochs": 1},
    ],
    ids=str,
)
def test_a_damaged_gain_matrix(folder, gain):
    folder.write_json("gain.json", gain)
    assert "Does an architecture fit" not in read(folder)


def test_architectures_that_this_version_does_not_know(tmp_path):
    """They stand in the table as they are; the others are drawn."""
    strange = [
        {"space": "other:1", "choice": [[0]]},
        {"space": "darts:s2:2", "choice": [[7]]},
        {"space": 3},
    ]
    clients = [client(0, architecture=searched(USUAL)), client(1, architecture=searched(OTHER))]
    clients += [client(2 + k, architecture=architecture) for k, architecture in enumerate(strange)]
    text = read(make_run(tmp_path / "run", [row(1)], clients))
    assert text.count('<title id="cells-') == 2 and "unknown" in text


def test_claims_and_caps_are_told(tmp_path):
    rows = [row(1, capped={"0": 0.52}), row(2, capped={"0": 0.62, "2": 0.5}), row(3)]
    more = {"claims": ["site <east> claims 201 samples, 100 in its last experiment"]}
    text = read(make_run(tmp_path / "run", rows, [client(k) for k in range(3)], **more))
    sentence = (
        "capped by --max-weight-share: client 0 in 2 rounds (it claimed 62%), "
        "client 2 in 1 round (it claimed 50%)."
    )
    assert sentence in text
    assert "Ask before you trust their weight: site &lt;east&gt; claims 201 samples" in text
    assert "capped" not in read(make_run(tmp_path / "plain", [row(1)], [client(0)]))


def test_a_report_that_fails_does_not_fail_the_run(folder, caplog):
    def broken(folder):
        raise ZeroDivisionError

    try_report(folder, broken)
    assert "could not be written" in caplog.text
    (folder.path / NAME).mkdir()
    try_report(folder)
