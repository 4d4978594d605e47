"""Methods by name. Each is a `Recipe` in a separate file, which holds one paper.

`adapt` is not among these files: it continues from the result of any method, so it is in runs/.
"""

from fedloom.errors import FedloomError
from fedloom.federation.protocol.method import Method, Recipe, Stage
from fedloom.options import Options
from fedloom.registry import Registry
from fedloom.spaces.searched import SearchedSpace
from fedloom.types import Task

SEE = "see docs/add-a-method.md"
ADAPT = "adapt"  # the only method that may begin with a client's own model


def is_recipe(value: object) -> bool:
    return isinstance(value, Recipe)


METHODS = Registry(
    "method",
    "fedloom.methods",
    {
        ADAPT: "fedloom.runs.newcomers:adapt",
        "auto": "fedloom.methods.auto:auto",
        "auto-tiers": "fedloom.methods.auto_tiers:auto_tiers",
        "ca-feddsnas": "fedloom.methods.fedpnas:ca_feddsnas",
        "ca-fedpnas": "fedloom.methods.fedpnas:ca_fedpnas",
        "decnas": "fedloom.methods.decnas:decnas",
        "ditto": "fedloom.methods.ditto:ditto",
        "fedavg": "fedloom.methods.fedavg:fedavg",
        "feddsnas": "fedloom.methods.fedpnas:feddsnas",
        "fedpnas": "fedloom.methods.fedpnas:fedpnas",
        "fedoras": "fedloom.methods.fedoras:fedoras",
        "fedprox": "fedloom.methods.fedprox:fedprox",
        "fedadam": "fedloom.methods.fedopt:fedadam",
        "fedyogi": "fedloom.methods.fedopt:fedyogi",
        "fedadagrad": "fedloom.methods.fedopt:fedadagrad",
        "fedmn": "fedloom.methods.fedmn:fedmn",
        "finch": "fedloom.methods.finch:finch",
        "fjord": "fedloom.methods.fjord:fjord",
        "heterofl": "fedloom.methods.heterofl:heterofl",
        "zerofl": "fedloom.methods.zerofl:zerofl",
        "fednas": "fedloom.methods.fednas:fednas",
        "fedrep": "fedloom.methods.fedrep:fedrep",
        "hfl": "fedloom.methods.hfl:hfl",
        "knn-per": "fedloom.methods.knn_per:knn_per",
        "local": "fedloom.methods.local:local",
        "onenas": "fedloom.methods.onenas:onenas",
        "spider": "fedloom.methods.spider:spider",
        "local-adaptation": "fedloom.methods.local_adaptation:local_adaptation",
        "perfedavg": "fedloom.methods.perfedavg:perfedavg",
    },
    fits=is_recipe,
)


def recipe(name: str) -> Recipe:
    """Returns the recipe that is registered under `name`."""
    registered = METHODS.get(name)
    if not isinstance(registered, Recipe):
        rule = f"method {name} must be a Recipe"
        kind = "class" if isinstance(registered, type) else type(registered).__name__
        raise FedloomError(rule, f"it is a {kind}", SEE)
    if not (isinstance(registered.options, type) and issubclass(registered.options, Options)):
        rule = f"the options of method {name} must be a subclass of Options"
        raise FedloomError(rule, f"got {registered.options!r}", SEE)
    return registered


def stages(task: Task) -> tuple[Stage, ...]:
    """Returns a task's stages. The loop runs them, and a site looks up an order's stage in them."""
    method_stages = recipe(task.method).stages(task)
    check_kinds(task.method, method_stages)
    return method_stages


def check_kinds(name: str, method_stages: object) -> None:
    """Raise an error unless these are stages, each with a method."""
    rule = f"the stages of method {name} must be a tuple of Stage(name, method), at least one"
    if isinstance(method_stages, Stage) or not isinstance(method_stages, tuple | list):
        raise FedloomError(rule, f"got a {type(method_stages).__name__}", SEE)
    if not method_stages:
        raise FedloomError(rule, "there is none", SEE)
    for stage in method_stages:
        if not isinstance(stage, Stage):
            raise FedloomError(rule, f"one is a {type(stage).__name__}", SEE)
        if not isinstance(stage.method, Method):
            kind = type(stage.method).__name__
            raise FedloomError(rule, f"the method of stage {stage.name} is a {kind}", SEE)


def searched(task: Task) -> SearchedSpace | None:
    """Returns the space that a task searches, or None if its method does not search."""
    return recipe(task.method).searched(task)
