"""`python -m fedloom.runs.worker`: what the local engine starts.

It alone joins the engine's worker to our methods.
"""

from fedloom.loading import load_torch


def main() -> None:
    load_torch()  # before anything else does it
    from fedloom.federation.engines import worker
    from fedloom.methods import stages

    worker.main(stages)


if __name__ == "__main__":
    main()
