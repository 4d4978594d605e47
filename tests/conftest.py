"""One torch thread in every test, as in every engine: the last bits of a sum depend on their number."""

import torch

pytest_plugins = ["pytester"]
torch.set_num_threads(1)
