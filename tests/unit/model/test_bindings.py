"""Bindings are a set, found by source and by destination."""

from queuey_fake.model.bindings import Binding, Bindings, Destination
from queuey_fake.model.fields import Field, Table, longstr

QUEUE = Destination("queue", "q")


def binding(source: str = "x", key: str = "k", destination: Destination = QUEUE, table: Table | None = None) -> Binding:
    return Binding(source, key, destination, table or {})


def test_the_same_binding_is_added_once() -> None:
    bindings = Bindings()
    assert bindings.add(binding())
    assert not bindings.add(binding())
    assert bindings.of_source("x") == [binding()]


def test_other_arguments_make_another_binding() -> None:
    bindings = Bindings()
    bindings.add(binding(table={"a": longstr("1")}))
    assert bindings.add(binding(table={"a": longstr("2")}))
    assert bindings.add(binding(table={"a": Field("binary", b"1")}))
    assert len(bindings.of_destination(QUEUE)) == 3


def test_the_order_of_arguments_makes_no_other_binding() -> None:
    bindings = Bindings()
    bindings.add(binding(table={"a": longstr("1"), "b": longstr("2")}))
    assert not bindings.add(binding(table={"b": longstr("2"), "a": longstr("1")}))


def test_a_removed_binding_is_found_from_neither_side() -> None:
    bindings = Bindings()
    bindings.add(binding())
    assert bindings.remove(binding())
    assert not bindings.remove(binding())
    assert not bindings.has_source("x")
    assert bindings.of_destination(QUEUE) == []


def test_a_queue_and_an_exchange_of_one_name_are_two_destinations() -> None:
    bindings = Bindings()
    bindings.add(binding(destination=Destination("exchange", "q")))
    assert bindings.of_destination(QUEUE) == []
