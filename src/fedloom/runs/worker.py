"""`python -m fedloom.runs.worker`: what the local engine starts. It alone joins the engine's worker to our methods."""

from fedloom.federation.engines.worker import main
from fedloom.methods import stages

if __name__ == "__main__":
    main(stages)
