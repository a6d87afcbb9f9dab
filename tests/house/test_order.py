"""The tests of the house can fail."""

from house.order import circle, heights


def test_a_circle_is_found_wherever_one_enters_it():
    assert circle({"a": ["b", "c"], "b": [], "c": ["d"], "d": ["e"], "e": ["c"]}) == list("cdec")
    assert circle({"a": ["a"]}) == ["a", "a"]


def test_two_ways_to_one_file_are_no_circle():
    assert circle({"a": ["b", "c"], "b": ["d"], "c": ["d"]}) == []


def test_names_of_one_floor_have_one_height():
    assert heights(("base", "data rules", "top")) == {"base": 0, "data": 1, "rules": 1, "top": 2}
