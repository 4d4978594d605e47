"""`python -m fedloom.runs.worker`: the worker process that the local engine starts.

It is the only place where the engine's worker meets our methods.
"""

from fedloom.loading import load_torch


def main() -> None:
    load_torch()  # before anything else imports torch
    from fedloom.federation.engines import worker
    from fedloom.methods import stages

    worker.main(stages)


if __name__ == "__main__":
    main()
