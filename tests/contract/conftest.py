"""Of the searches, promises that take long run with the slow tests: each of them is kept by a shorter one as well."""

import pytest

SEARCHES = ("fednas", "spider")
LONG = {f"test_stopped_and_resumed[{name}-{moment}]" for name in SEARCHES for moment in ("evaluated", "round")}
LONG |= {
    f"test_{promise}[{name}]"
    for name in SEARCHES
    for promise in (
        "stopped_and_resumed_with_the_best_round",
        "evaluation_only_reads",
        "identical_clients_are_one",
        "an_absurd_update_is_no_reply",
    )
}


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked slow
def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in LONG:
            item.add_marker(pytest.mark.slow)
