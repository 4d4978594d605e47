"""result.json files of a run and a comparison, made by hand with all required fields."""


def client(number=0, accuracy=0.5, architecture="cnn:1", **more):
    interval = None
    if accuracy is not None:
        interval = [max(0.0, accuracy - 0.1), min(1.0, accuracy + 0.1)]
    return {
        "client": number,
        "samples": 10,
        "test_samples": 2,
        "accuracy": accuracy,
        "interval": interval,
        "f1": accuracy,
        "balanced_accuracy": accuracy,
        "auc": None,
        "shared_accuracy": None,
        "params": 7000,
        "macs": 90_000,
        "architecture": architecture,
        **more,
    }


def result(clients=(), **more):
    clients = list(clients)
    accuracies = [row["accuracy"] for row in clients if row["accuracy"] is not None]
    mean = None
    std = None
    if accuracies:
        mean = sum(accuracies) / len(accuracies)
        std = 0.1
    figures = {
        "mean": mean,
        "std": std,
        "worst": min(accuracies, default=None),
        "worst10": None,
        "pooled": mean,
    }
    fields = {"tensors": ["*"], "extra": [], "values": ["loss", "weight"]}
    return {
        "method": "fedavg",
        "options": {"lr": 0.1},
        "seed": 0,
        "metric": "accuracy",
        "lower_is_better": False,
        "accuracy": figures,
        "global": 0.4,
        "shared": None,
        "clients": clients,
        "confusion": None,
        "registered": len(clients),
        "rounds": 3,
        "selected": 3,
        "validation": None,
        "macs": 15_000,
        "seconds": 4.5,
        "measured_clock": 1.5,
        "bytes": {
            "down": 3000,
            "up": 2700,
            "lan_down": 0,
            "lan_up": 0,
            "evaluate_down": 10,
            "evaluate_up": 20,
        },
        "data": {"name": "made", "partition": "iid", "split": "5" * 64},
        "versions": {"fedloom": "0", "torch": "2", "python": "3"},
        "privacy": {
            "left_the_clients": [
                {"stage": "train", "order": "train", "fields": fields, "seen_by": "server"}
            ],
            "observer": "of an embedded run only: sizes",
        },
        **more,
    }


def over_seeds(mean, std=None):
    return {"mean": mean, "std": std}


def method(name="fedavg", mean=0.5, **more):
    """A row of a comparison."""
    figures = {figure: over_seeds(mean) for figure in ("pooled", "worst", "global")}
    return {
        "method": name,
        "name": name,
        "runs": 1,
        "tuned": None,
        "metric": "accuracy",
        "lower_is_better": False,
        "accuracy": over_seeds(mean),
        "difference": None,
        **figures,
        "params": 1000.0,
        "rounds": 20.0,
        "macs": 2e6,
        "bytes": 3e9,
        "seconds": 7.0,
        **more,
    }
