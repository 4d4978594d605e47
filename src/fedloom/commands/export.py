"""`fedloom export`, `predict` and `adapt`: commands that use a finished run's models."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedloom.commands.finishing import finish, interruptible, tell
from fedloom.commands.parsing import (
    Commands,
    Parser,
    add_command,
    number,
    optional_number,
    optional_path,
    other_model_flags,
    output_flags,
)
from fedloom.errors import FedloomError
from fedloom.loading import load_torch

if TYPE_CHECKING:
    from fedloom.export.finished import Finished
    from fedloom.records.folder import RunFolder
    from fedloom.runs.adapt import Tuning

HELP_DIRECTORY = "folder in which relative data paths are looked for"
HELP_SKIP_BAD = "leave out image and .wav files that cannot be read, and say which"


def add(commands: Commands) -> None:
    add_export(commands)
    add_predict(commands)
    add_adapt(commands)


def add_export(commands: Commands) -> None:
    summary = "write a client's model, or the shared one, into a folder that needs no fedloom"
    export = add_command(commands, "export", export_command, summary)
    export.add_argument("path", metavar="RUN")
    model_flags(export)
    torch = "torch (model.py and safetensors, always written)"
    help_format = f"{torch}, onnx, or executorch (default torch)"
    export.add_argument("--format", default="torch", metavar="NAME", help=help_format)
    help_path = (
        "for a model whose samples take different paths: each writes all paths (default), "
        "likely only the one that most test samples take"
    )
    export.add_argument("--path", dest="taken", metavar="each|likely", help=help_path)
    help_prune = "for such a model: leave out operations that no training sample uses"
    export.add_argument("--prune", action="store_true", help=help_prune)
    export.add_argument(
        "--out",
        metavar="DIR",
        help="default RUN/exports/client-K or RUN/exports/shared",
    )
    output_flags(export)


def add_predict(commands: Commands) -> None:
    summary = "predict labels and probabilities of new samples"
    predict = add_command(commands, "predict", predict_command, summary)
    predict.add_argument("path", metavar="RUN")
    help_data = "new samples, with or without labels: .npz, images, a table, … as for `fedloom run`"
    predict.add_argument("--data", required=True, metavar="NAME|PATH", help=help_data)
    model_flags(predict)
    help_out = "write all predictions to this file"
    predict.add_argument("--out", metavar="FILE.csv", help=help_out)
    output_flags(predict)


def add_adapt(commands: Commands) -> None:
    summary = "fine-tune a finished run's model for a new client, which was not in the federation"
    adapt = add_command(commands, "adapt", adapt_command, summary)
    adapt.add_argument("path", metavar="RUN")
    help_data = "the new client's labelled samples (default: the run's own, changed by --transform)"
    adapt.add_argument("--data", metavar="NAME|PATH", help=help_data)
    adapt.add_argument("--data-dir", metavar="DIR", help=HELP_DIRECTORY)
    adapt.add_argument("--skip-bad", action="store_true", help=HELP_SKIP_BAD)
    adapt.add_argument(
        "--from",
        dest="source",
        metavar="shared|K|each",
        help="the model to begin with (default shared); each: every client's own model and samples",
    )
    other_model_flags(adapt)
    help_transform = "change all samples: rotation:DEGREES, hue:TURNS or none, exact and signed"
    adapt.add_argument("--transform", metavar="CHANGE", help=help_transform)
    help_samples = "training samples per client (default: all outside the test part)"
    adapt.add_argument("--samples", metavar="N", help=help_samples)
    adapt.add_argument("--epochs", metavar="N", help="epochs of fine-tuning (default 10)")
    help_iterations = "batches of fine-tuning, instead of epochs"
    adapt.add_argument("--iterations", metavar="N", help=help_iterations)
    help_train = "train all weights, or only the model's personal part (default weights)"
    adapt.add_argument("--train", default="weights", metavar="weights|personal", help=help_train)
    help_lr = "initial learning rate (default: a tenth of the run's)"
    adapt.add_argument("--lr", metavar="RATE", help=help_lr)
    help_test = "share of the samples of --data kept for testing (default 0.2)"
    adapt.add_argument("--test", metavar="SHARE", help=help_test)
    help_seed = "seed of the test part and of every random draw (default 0)"
    adapt.add_argument("--seed", default="0", metavar="N", help=help_seed)
    help_out = "folder of the new run (default runs/<number>-adapt-<data>)"
    adapt.add_argument("--out", metavar="DIR", help=help_out)
    output_flags(adapt)


def model_flags(parser: Parser) -> None:
    """Flags that choose one of a run's models."""
    parser.add_argument("--client", metavar="K", help="the model of this client")
    parser.add_argument("--shared", action="store_true", help="the model that all clients share")
    other_model_flags(parser)
    help_kit = "at a site of a federation: its start kit, for its own model"
    parser.add_argument("--kit", metavar="KIT", help=help_kit)
    help_kit_data = "with --kit: the data that the site took part with"
    parser.add_argument("--kit-data", metavar="NAME|PATH", help=help_kit_data)
    help_resize = "with --kit: the --resize that the site was started with, if any"
    parser.add_argument("--kit-resize", metavar="N", help=help_resize)
    help_fit = "with --kit: the --fit that the site was started with, if any"
    parser.add_argument("--kit-fit", metavar="HOW", help=help_fit)
    parser.add_argument("--data-dir", metavar="DIR", help=HELP_DIRECTORY)
    parser.add_argument("--skip-bad", action="store_true", help=HELP_SKIP_BAD)


class ChosenModel(NamedTuple):
    """A finished run, and the client whose model is meant; None means the shared model."""

    run: Finished
    client: int | None


def chosen_model(options: argparse.Namespace) -> ChosenModel:
    check_model_flags(options)
    client = optional_number("client", options.client, int, 0)
    if options.kit is None:
        from fedloom.runs.finished import open_finished

        tier = optional_number("tier", options.tier, int, 1)
        run = open_finished(options.path, tier=tier, search=options.search)
    else:
        from fedloom.deploy.settled import open_at_site
        from fedloom.deploy.site_data import site_data

        flags = {
            "data": options.kit_data,
            "data-dir": options.data_dir,
            "resize": options.kit_resize,
            "fit": options.kit_fit,
            "skip-bad": options.skip_bad,
        }
        run = open_at_site(options.path, Path(options.kit), site_data(flags))
    if options.kit is not None and client is None and not options.shared:
        return ChosenModel(run, run.here)
    return ChosenModel(run, client)


def check_model_flags(options: argparse.Namespace) -> None:
    """Exactly one model must be chosen; a site's kit chooses the site's own by itself."""
    rule = "one of --client K, --shared, --tier N and --search NAME must be given"
    advice = "choose one of them"
    given = []
    for name in ("client", "shared", "tier", "search"):
        if getattr(options, name) not in (None, False):
            given.append(f"--{name}")
    if len(given) > 1:
        raise FedloomError(rule, f"got {' and '.join(given)}", advice)
    if not given and not options.kit:
        raise FedloomError(rule, "got none", advice)
    if options.kit and (options.tier is not None or options.search is not None):
        raise FedloomError(
            "--kit must be for a site's own model",
            f"got {given[0]} too",
            "leave --kit out: the server has that network",
        )
    if (options.kit is None) != (options.kit_data is None):
        raise FedloomError(
            "--kit and --kit-data must be given together",
            "got only one",
            "give the site's kit and its data",
        )
    for flag in ("kit_resize", "kit_fit"):
        if options.kit is None and getattr(options, flag) is not None:
            rule = f"--{flag.replace('_', '-')} must come with --kit"
            raise FedloomError(rule, "there is none", "leave it out, or give the site's kit")


def export_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.export.bundle import export

        chosen = chosen_model(options)
        return export(
            chosen.run,
            client=chosen.client,
            format=options.format,
            out=options.out,
            path=options.taken,
            prune=options.prune,
        )

    return finish(options, work)


def predict_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.export.predicting import predict

        chosen = chosen_model(options)
        return predict(
            chosen.run,
            options.data,
            client=chosen.client,
            directory=optional_path(options.data_dir),
            skip_bad=options.skip_bad,
            out=options.out,
        )

    return finish(options, work)


def adapt_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.report.progress import open_screen
        from fedloom.runs.adapt import adapt
        from fedloom.runs.unseen import adapt_unseen

        check_adapt(options)
        source = parse_source(options.source)
        samples = optional_number("samples", options.samples, int, 2)
        seed = number("seed", options.seed, int, 0)
        tuning = tuning_by_flags(options)
        with ExitStack() as stack:

            def on_created(folder: RunFolder) -> None:
                tell(options, f"run folder: {folder.path}")
                stack.enter_context(interruptible(folder.path))

            screen = stack.enter_context(open_screen(quiet=options.quiet or options.json))
            if options.data is None:
                return adapt_unseen(
                    options.path,
                    options.transform,
                    source=source,
                    screen=screen,
                    announce=on_created,
                    samples=samples,
                    tuning=tuning,
                    seed=seed,
                    out=options.out,
                )
            return adapt(
                options.path,
                options.data,
                source=client_of(source),
                tier=optional_number("tier", options.tier, int, 1),
                search=options.search,
                screen=screen,
                announce=on_created,
                directory=options.data_dir,
                skip_bad=options.skip_bad,
                tuning=tuning,
                transform=options.transform,
                samples=samples,
                test=number("test", options.test or "0.2", float, 0),
                seed=seed,
                out=options.out,
            )

    return finish(options, work)


def check_adapt(options: argparse.Namespace) -> None:
    """Refuse flags that contradict each other, or that would have no effect."""
    beginnings = [options.source, options.tier, options.search]
    if sum(value is not None for value in beginnings) > 1:
        rule = "one of --from, --tier and --search must say what to begin with"
        raise FedloomError(rule, "got more than one", "leave the others out")
    if options.iterations is not None and options.epochs is not None:
        rule = "one of --iterations and --epochs must say how long to train"
        raise FedloomError(rule, "got both", "leave one out")
    if options.train not in ("weights", "personal"):
        rule = "--train must be weights or personal"
        raise FedloomError(rule, f"got {options.train!r}", "choose one of them")
    if options.data is None:
        check_without_data(options)
    elif options.source == "each":
        rule = "--from each must be used with the clients' own samples"
        raise FedloomError(rule, f"got --data {options.data}", "leave --data out, or name a client")


def check_without_data(options: argparse.Namespace) -> None:
    """The run's own samples need a transformation, and they already have a test part."""
    if options.transform is None:
        rule = "--data or --transform must say what to adapt to"
        raise FedloomError(rule, "got neither", "give a new client's samples with --data")
    for flag in ("tier", "search", "test", "data_dir"):
        if getattr(options, flag) is not None:
            rule = f"--{flag.replace('_', '-')} must come with a new client's samples"
            raise FedloomError(rule, "there is no --data", "add --data, or leave it out")


def parse_source(text: str | None) -> Any:
    """Parse --from: `shared`, `each`, or a client's number."""
    if text in (None, "shared"):
        return "shared"
    if text == "each":
        return text
    try:
        return number("from", text, int, 0)
    except FedloomError:
        rule = "--from must be shared, each or the number of a client"
        raise FedloomError(rule, f"got {text!r}", "see the command's --help") from None


def client_of(source: Any) -> int | None:
    """The client whose model is meant; None means the shared model."""
    if source == "shared":
        return None
    return int(source)


def tuning_by_flags(options: argparse.Namespace) -> Tuning:
    from fedloom.runs.adapt import Tuning

    return Tuning(
        epochs=number("epochs", options.epochs or "10", int, 1),
        iterations=optional_number("iterations", options.iterations, int, 1),
        lr=optional_number("lr", options.lr, float, 0),
        train=options.train,
    )
