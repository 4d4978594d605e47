import pytest

from fedloom.federation.protocol.deaths import Death, in_words, what_helps


@pytest.mark.parametrize(
    ("code", "words", "plain"),
    [
        (-11, "was killed by signal 11 (SIGSEGV)", {"signal": "SIGSEGV"}),
        (-9, "was killed by signal 9 (SIGKILL)", {"signal": "SIGKILL"}),
        (-40, "was killed by signal 40 (signal 40)", {"signal": "signal 40"}),
        (0, "ended with exit code 0", {"exit": 0}),
        (7, "ended with exit code 7", {"exit": 7}),
        (None, "went silent", {"exit": None}),
    ],
)
def test_in_words_and_in_a_row(code, words, plain):
    assert str(Death(code)) == words
    assert Death(code).at_work_for(3).to_json() == {"client": 3, **plain}


def test_why_an_order_was_given_up():
    assert in_words(Death(-6), Death(-6)).endswith("by signal 6 (SIGABRT), and so was a second one")
    assert (
        in_words(Death(3), Death(3))
        == "its process ended with exit code 3, and so did a second one"
    )
    assert in_words(Death(-11), Death(3)) == (
        "its process was killed by signal 11 (SIGSEGV), and a second one ended with exit code 3"
    )


def test_advice_names_every_cause_once():
    crash = (
        "native code of torch or another library crashed: run `fedloom doctor`, then resume the run"
    )
    assert {what_helps([Death(-n)], others_refused=False) for n in (4, 6, 7, 8, 11)} == {crash}
    assert (
        what_helps([Death(-11), Death(-6)], others_refused=True)
        == f"{crash}; fix the clients and resume the run"
    )
    assert "fewer --workers" in what_helps([Death(-9)], others_refused=False)
    assert "SIGTERM" in what_helps([Death(-15)], others_refused=False)
    assert "method's code" in what_helps([Death(7)], others_refused=False)
    assert what_helps([Death(None)], others_refused=False) == (
        "it went silent: run `fedloom doctor`, then resume the run"
    )
    assert what_helps([], others_refused=False) == "fix the clients and resume the run"
