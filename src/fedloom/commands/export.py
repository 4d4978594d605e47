"""`fedloom export`, `predict` and `adapt`: what becomes of a finished run's models."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedloom.commands.finishing import finish, interruptible, tell
from fedloom.commands.parsing import Commands, Parser, add_command, number, output_flags
from fedloom.errors import FedloomError
from fedloom.loading import load_torch


def add(commands: Commands) -> None:
    about = "write a client's model, or the shared one, into a folder that needs no fedloom"
    export = add_command(commands, "export", export_command, about)
    export.add_argument("path", metavar="RUN")
    whose(export)
    help_format = "torch (model.py and safetensors, always written), onnx, or executorch (default torch)"
    export.add_argument("--format", default="torch", metavar="NAME", help=help_format)
    export.add_argument("--out", metavar="DIR", help="default RUN/exports/client-K or RUN/exports/shared")
    output_flags(export)
    predict = add_command(commands, "predict", predict_command, "labels and probabilities of new samples")
    predict.add_argument("path", metavar="RUN")
    help_data = "new samples, with or without labels: an .npz, a folder, … as for `fedloom run`"
    predict.add_argument("--data", required=True, metavar="NAME|PATH", help=help_data)
    whose(predict)
    predict.add_argument("--out", metavar="FILE.csv", help="write all of them there")
    output_flags(predict)
    about = "fine-tune a finished run's model for a newcomer, which was not in the federation"
    adapt = add_command(commands, "adapt", adapt_command, about)
    adapt.add_argument("path", metavar="RUN")
    adapt.add_argument("--data", required=True, metavar="NAME|PATH", help="the newcomer's samples, with labels")
    adapt.add_argument("--data-dir", metavar="DIR", help="folder in which relative data paths are looked for")
    adapt.add_argument(
        "--from", dest="source", default="shared", metavar="shared|K", help="begin with (default shared)"
    )
    adapt.add_argument("--epochs", default="10", metavar="N", help="of fine-tuning (default 10)")
    adapt.add_argument("--lr", metavar="RATE", help="first learning rate (default a tenth of the run's)")
    adapt.add_argument("--test", default="0.2", metavar="SHARE", help="of the samples, kept for testing (default 0.2)")
    adapt.add_argument("--seed", default="0", metavar="N", help="of the test part and of every draw (default 0)")
    adapt.add_argument("--out", metavar="DIR", help="the newcomer's run folder (default runs/<number>-adapt-<data>)")
    output_flags(adapt)


def whose(parser: Parser) -> None:
    """Which of a run's models."""
    parser.add_argument("--client", metavar="K", help="the model of this client")
    parser.add_argument("--shared", action="store_true", help="the model of everybody")
    parser.add_argument("--kit", metavar="KIT", help="at a site of a federation: its start kit, for its own model")
    parser.add_argument("--kit-data", metavar="NAME|PATH", help="with --kit: the data that the site took part with")
    parser.add_argument("--data-dir", metavar="DIR", help="folder in which relative data paths are looked for")


def opened(options: argparse.Namespace) -> tuple[Any, int | None]:
    """The run, and the client that is meant; None: everybody's."""
    from fedloom.runs.finished import open_finished

    given = [name for name in ("client", "shared") if getattr(options, name) not in (None, False)]
    if len(given) > 1 or not (given or options.kit):
        found = "got both" if given else "got none"
        raise FedloomError("one of --client K and --shared must be given", found, "say whose model it is to be")
    if (options.kit is None) != (options.kit_data is None):
        raise FedloomError("--kit and --kit-data must be given together", "got one", "give the site's kit and its data")
    directory = Path(options.data_dir) if options.data_dir else None
    client = None if options.client is None else number("client", options.client, int, 0)
    if options.kit is None:
        run = open_finished(options.path)
    else:
        from fedloom.deploy.settled import open_at_site

        run = open_at_site(options.path, Path(options.kit), options.kit_data, directory)
    return run, run.here if client is None and not options.shared else client


def export_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.export.bundle import export

        run, client = opened(options)
        return export(run, client=client, format=options.format, out=options.out)

    return finish(options, work)


def predict_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.export.predicting import predict

        run, client = opened(options)
        directory = Path(options.data_dir) if options.data_dir else None
        return predict(run, options.data, client=client, directory=directory, out=options.out)

    return finish(options, work)


def adapt_command(options: argparse.Namespace) -> int:
    def work() -> Any:
        load_torch()
        from fedloom.report.progress import screen
        from fedloom.runs.adapt import adapt

        source = None if options.source == "shared" else number("from", options.source, int, 0)
        rate = None if options.lr is None else number("lr", options.lr, float, 0)
        with ExitStack() as stack:

            def told(folder: Any) -> None:
                tell(options, f"run folder: {folder.path}")
                stack.enter_context(interruptible(folder.path))

            shown = stack.enter_context(screen(quiet=options.quiet or options.json))
            return adapt(
                options.path, options.data, source=source, shown=shown, tell=told, directory=options.data_dir,
                epochs=number("epochs", options.epochs, int, 1), lr=rate, test=number("test", options.test, float, 0),
                seed=number("seed", options.seed, int, 0), out=options.out,
            )  # fmt: skip

    return finish(options, work)
