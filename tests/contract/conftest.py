"""Long promises of searches and of widths run with the slow tests.

For each of them a shorter method keeps the same promise in the fast tests.
"""

import pytest

SEARCHES = ("fednas", "spider")
LONG = {
    f"test_stopped_and_resumed[{name}-{moment}]"
    for name in SEARCHES
    for moment in ("evaluated", "round")
}
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
LONG |= {
    f"test_{promise}[fjord]"
    for promise in (
        "stopped_and_resumed_with_the_best_round",
        "evaluation_only_reads",
        "an_absurd_update_is_no_reply",
        "a_refused_reply_is_no_reply",
        "a_network_that_served_before_is_as_good_as_a_new_one",
        "never_sees_the_test_part",
        "a_client_leaves_its_samples_alone",
    )
}
LONG |= {f"test_stopped_and_resumed[fjord-{moment}]" for moment in ("evaluated", "reply", "work")}
LONG |= {"test_reply_order_is_irrelevant[fjord-Reversed]", "test_deterministic[fjord]"}


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked slow
def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in LONG:
            item.add_marker(pytest.mark.slow)
