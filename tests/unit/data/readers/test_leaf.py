import json

import numpy as np
import pytest

from fedloom.data.sources import open_source
from fedloom.errors import FedloomError


def leaf(**users):
    """LEAF's form of {user: [(window, next), …]}."""
    data = {}
    for user, pairs in users.items():
        windows = [window for window, _ in pairs]
        following = [symbol for _, symbol in pairs]
        data[user] = {"x": windows, "y": following}
    return {
        "users": list(users),
        "num_samples": [len(pairs) for pairs in users.values()],
        "user_data": data,
    }


TWO = leaf(ANNE=[("abc", "d"), ("bcd", "a")], BOB=[("d a", "b")])


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def test_a_file_by_hand(tmp_path):
    source = open_source(str(write(tmp_path / "all.json", TWO)))
    assert source.labels == ("space", "a", "b", "c", "d")
    assert source.x.tolist() == [[1, 2, 3], [2, 3, 4], [4, 0, 1]]
    assert source.y.tolist() == [4, 1, 2]
    assert (source.groups.tolist(), source.group_names, source.grouping) == (
        [0, 0, 1],
        ("ANNE", "BOB"),
        "user",
    )
    assert (source.kind, source.x.dtype, source.official) == ("text", np.uint8, None)


def test_a_folder_joins_a_user_of_several_files(tmp_path):
    write(tmp_path / "set/a.json", TWO)
    write(tmp_path / "set/b.json", leaf(CARL=[("xyz", "z")], ANNE=[("ccc", "c")]))
    source = open_source(str(tmp_path / "set"))
    assert source.name == "set"
    assert (source.groups.tolist(), source.group_names) == (
        [0, 0, 1, 2, 0],
        ("ANNE", "BOB", "CARL"),
    )


def test_leafs_own_parts_are_official(tmp_path):
    write(tmp_path / "set/train/a.json", TWO)
    write(tmp_path / "set/test/a.json", leaf(ANNE=[("ccc", "c")]))
    source = open_source("set", tmp_path)
    assert source.official.tolist() == [0, 0, 0, 2]
    assert source.groups.tolist() == [0, 0, 1, 0]


def test_a_folder_of_something_else_may_hold_a_json_file(tmp_path):
    np.savez(tmp_path / "site.npz", x=np.zeros((2, 4, 4), np.uint8), y=[0, 1])
    write(tmp_path / "about.json", {"licence": "none"})
    assert open_source(str(tmp_path)).kind == "image"


def test_a_user_without_samples_is_nobody(tmp_path):
    assert open_source(
        str(write(tmp_path / "a.json", leaf(NO=[], A=[("ab", "c")])))
    ).group_names == ("A",)


def changed(**changes):
    return {**TWO, **changes}


def of_anne(**changes):
    return changed(user_data={**TWO["user_data"], "ANNE": {**TWO["user_data"]["ANNE"], **changes}})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "it holds a list"),
        ({}, "its keys are none"),
        ({"users": [], "num_samples": []}, "its keys are users, num_samples"),
        (changed(user_data=[]), "its keys are"),
        (changed(num_samples=[2]), "it lists 2 users and 1 sizes, and has data of 2"),
        (changed(users=["ANNE", "EVE"]), "it lists 2 users"),
        (changed(users=["ANNE", "ANNE"]), "it lists 2 users"),
        *(
            (changed(users=["ANNE", user]), "it lists a user that is not text")
            for user in (1, None, ["BOB"])
        ),
        (changed(num_samples=[3, 1]), "'ANNE' has 2 x and 2 y where 3 are promised"),
        (of_anne(y=["d"]), "'ANNE' has 2 x and 1 y where 2 are promised"),
        (of_anne(x=["abc", "bcde"]), "'ANNE' has an x of 4 characters where the first has 3"),
        (of_anne(y=["d", "ab"]), "'ANNE' has a y of more than one character"),
        (of_anne(y=["d", ""]), "'ANNE' has something other than text in y"),
        (of_anne(x=[[0.1, 0.2], [0.3, 0.4]]), "'ANNE' has something other than text in x"),
        (of_anne(x=None), "'ANNE' has no list x"),
        (changed(user_data={"ANNE": 1, "BOB": 2}), "'ANNE' has no list x"),
        (leaf(A=[]), "must have at least one sample"),
        (leaf(A=[("aa", "a")]), "at least 2 different symbols, but it has 1"),
    ],
)
def test_what_is_not_leafs(tmp_path, content, said):
    with pytest.raises(FedloomError) as caught:
        open_source(str(write(tmp_path / "bad.json", content)))
    assert said in str(caught.value) and "bad.json" in str(caught.value)


@pytest.mark.parametrize("raw", [b"{", b"[" * 100_000, b"\x80\x04.", b""])
def test_what_is_no_json(tmp_path, raw):
    (tmp_path / "bad.json").write_bytes(raw)
    with pytest.raises(FedloomError, match=r"bad\.json must be"):
        open_source(str(tmp_path / "bad.json"))


def test_windows_of_another_file(tmp_path):
    write(tmp_path / "set/a.json", TWO)
    write(tmp_path / "set/b.json", leaf(CARL=[("xy", "z")]))
    with pytest.raises(
        FedloomError, match=r"b\.json must be LEAF's .* 'CARL' has an x of 2 characters"
    ):
        open_source(str(tmp_path / "set"))
