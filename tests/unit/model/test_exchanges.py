"""Each type of exchange chooses among its bindings as RabbitMQ's does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey_fake.model import exchanges
from queuey_fake.model.bindings import Binding, Destination
from queuey_fake.model.errors import AmqpException, ChannelException
from queuey_fake.model.exchanges.direct import DirectMatcher
from queuey_fake.model.exchanges.fanout import FanoutMatcher
from queuey_fake.model.exchanges.headers import HeadersMatcher
from queuey_fake.model.exchanges.local_random import LocalRandomMatcher
from queuey_fake.model.exchanges.modulus_hash import ModulusHashMatcher
from queuey_fake.model.exchanges.topic import TopicMatcher, words_of
from queuey_fake.model.fields import Field, Table, longstr, table_from_python
from queuey_fake.model.versions import VERSIONS


def bound(key: str, queue: str = "q", table: Table | None = None) -> Binding:
    return Binding("x", key, Destination("queue", queue), table or {})


def names(matcher: exchanges.Matcher, key: str = "", headers: Table | None = None) -> set[str]:
    return {destination.name for destination in matcher.match((key,), headers)}


def test_a_direct_exchange_compares_the_whole_key() -> None:
    matcher = DirectMatcher()
    matcher.add(bound("k", "one"))
    matcher.add(bound("k", "two"))
    matcher.add(bound("other", "three"))
    assert names(matcher, "k") == {"one", "two"}
    matcher.remove(bound("k", "one"))
    assert names(matcher, "k") == {"two"}


def test_a_fanout_exchange_ignores_the_key() -> None:
    matcher = FanoutMatcher()
    matcher.add(bound("k", "one"))
    assert names(matcher, "other") == {"one"}
    matcher.remove(bound("k", "one"))
    assert names(matcher, "k") == set()


def test_the_default_exchange_takes_no_bindings_and_matches_none() -> None:
    default = exchanges.predeclared_exchanges(VERSIONS["4.3"])[0]
    assert default.name == ""
    assert list(default.matcher.match(("q",), None)) == []
    with pytest.raises(ChannelException, match="default exchange"):
        default.matcher.check(bound("q"), "classic")


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("*", "a", True),
        ("*", "", False),
        ("#", "", True),
        ("", "", True),
        ("", "a", False),
        ("a.*", "a.", True),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#.c", "a.b.c", True),
        ("#.b.#", "a.b.c", True),
        ("*.*", "a.b", True),
        ("*.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("#.#", "", True),
        ("#.*", "", False),
        ("*", "*", True),
        ("a", "*", False),
    ],
)
def test_a_topic_pattern_matches_by_words(pattern: str, key: str, matches: bool) -> None:  # noqa: FBT001  a case
    matcher = TopicMatcher()
    matcher.add(bound(pattern))
    assert (names(matcher, key) == {"q"}) is matches


def matches_by_definition(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return matches_by_definition(pattern[1:], key) or (bool(key) and matches_by_definition(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and matches_by_definition(pattern[1:], key[1:])


PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", ""]), max_size=5).map(".".join)


@given(st.sets(PATTERNS, max_size=6), st.sets(PATTERNS, max_size=3), KEYS)
def test_the_trie_matches_as_the_definition_says(patterns: set[str], removed: set[str], key: str) -> None:
    matcher = TopicMatcher()
    for pattern in sorted(patterns | removed):
        matcher.add(bound(pattern, pattern))
    for pattern in sorted(removed):
        matcher.remove(bound(pattern, pattern))
    expected = {pattern for pattern in patterns - removed if matches_by_definition(words_of(pattern), words_of(key))}
    assert names(matcher, key) == expected


def test_a_trie_without_bindings_is_empty() -> None:
    matcher = TopicMatcher()
    matcher.add(bound("a.b.#"))
    matcher.add(bound("a.c"))
    matcher.remove(bound("a.b.#"))
    matcher.remove(bound("a.c"))
    assert matcher._root.children == {}


def headers_match(binding: dict[str, object], headers: dict[str, object], *, exact: bool = True) -> bool:
    matcher = HeadersMatcher(exact=exact)
    matcher.add(bound("", "q", table_from_python(binding)))
    return names(matcher, "", table_from_python(headers)) == {"q"}


@pytest.mark.parametrize(
    ("binding", "headers", "matches"),
    [
        ({"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"}, True),
        ({"a": "1", "b": "2"}, {"a": "1"}, False),
        ({"x-match": "any", "a": "1", "b": "2"}, {"a": "1"}, True),
        ({"x-match": "any", "a": "1"}, {"a": "2"}, False),
        ({"x-match": "all"}, {}, True),
        ({}, {}, True),
        ({"x-match": "any"}, {"a": "1"}, False),
        ({"x-match": "all", "x-a": "1"}, {}, True),
        ({"x-match": "all-with-x", "x-a": "1"}, {}, False),
        ({"x-match": "all-with-x", "x-a": "1"}, {"x-a": "1"}, True),
        ({"x-match": "any", "x-a": "1"}, {"x-a": "1"}, False),
        ({"x-match": "any-with-x", "x-a": "1"}, {"x-a": "1"}, True),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {}, False),
        ({"a": "1"}, {"a": None}, False),
        ({"a": 1}, {"a": 2**40}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": "1"}, {"a": b"1"}, True),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_a_headers_binding_matches(
    binding: dict[str, object],
    headers: dict[str, object],
    matches: bool,  # noqa: FBT001  a case
    exact: bool,  # noqa: FBT001  a case
) -> None:
    assert headers_match(binding, headers, exact=exact) is matches


@pytest.mark.parametrize("exact", [True, False])
def test_integers_of_two_widths_match_and_1_0_only_in_3_10(exact: bool) -> None:  # noqa: FBT001  a case
    matcher = HeadersMatcher(exact=exact)
    matcher.add(bound("", "q", {"a": Field("byte", 1)}))
    assert names(matcher, "", {"a": Field("long", 1)}) == {"q"}
    assert (names(matcher, "", {"a": Field("double", 1.0)}) == {"q"}) is not exact


@pytest.mark.parametrize("x_match", [longstr("none"), Field("signedint", 1)])
def test_an_x_match_that_is_none_of_the_four_is_refused(x_match: Field) -> None:
    with pytest.raises(ChannelException, match="x-match"):
        HeadersMatcher(exact=True).check(bound("", table={"x-match": x_match}), "classic")


@pytest.mark.parametrize("matcher", [LocalRandomMatcher(), ModulusHashMatcher()])
def test_where_one_queue_is_chosen_and_none_is_bound_there_is_none(matcher: exchanges.Matcher) -> None:
    assert not matcher.match(("k",), None)


def test_the_queues_of_a_local_random_exchange_take_turns_whatever_the_keys() -> None:
    matcher = LocalRandomMatcher()
    for queue in "abc":
        matcher.add(bound("", queue))
    chosen = [matcher.match(keys, None) for keys in [("k",), ("k", "cc"), ("",), ("k",)]]
    assert chosen == [(Destination("queue", queue),) for queue in "abca"]
    matcher.remove(bound("", "b"))
    assert {queue for _ in range(2) for queue in names(matcher)} == {"a", "c"}


def test_a_queue_that_is_bound_twice_to_a_local_random_exchange_has_two_chances() -> None:
    matcher = LocalRandomMatcher()
    matcher.add(bound("", "a"))
    matcher.add(bound("", "a", table_from_python({"n": 1})))
    matcher.add(bound("", "b"))
    chosen = [destination.name for _ in range(30) for destination in matcher.match(("k",), None)]
    assert (chosen.count("a"), chosen.count("b")) == (20, 10)


@pytest.mark.parametrize(
    ("key", "queue_type", "text"),
    [
        ("key", "classic", "Non empty binding 'key' key not permitted"),
        ("é", None, "Non empty binding 'Ã©' key not permitted"),  # an octet is a character there
        ("", "quorum", "Queue type rabbit_quorum_queue not valid for this exchange type"),
        ("", None, "Destination not found"),
    ],
)
def test_a_local_random_exchange_takes_classic_queues_without_a_key(
    key: str, queue_type: str | None, text: str
) -> None:
    LocalRandomMatcher().check(bound("", table=table_from_python({"x-match": "nonsense"})), "classic")
    with pytest.raises(ChannelException) as caught:
        LocalRandomMatcher().check(bound(key), queue_type)
    assert (caught.value.code, caught.value.text) == (406, f"PRECONDITION_FAILED - {text}")


def hashed(matcher: ModulusHashMatcher, *keys: str) -> str:
    (destination,) = matcher.match(keys, None)
    return destination.name


def test_the_keys_of_a_message_choose_the_queue_of_a_modulus_hash_exchange() -> None:
    matcher = ModulusHashMatcher()
    for queue in ("2", "é", "10", "a", "1", "aa", "B"):  # RabbitMQ orders them by their octets
        matcher.add(bound("ignored", queue))
    # Scenario x_modulus_hash_seven
    told = {"": "B", "a": "10", "b": "10", "c": "2", "key": "a", "orders.created": "1", "日本": "é", "x" * 255: "é"}
    assert {key: hashed(matcher, key) for key in told} == told
    # Scenario x_modulus_hash_cc
    assert [hashed(matcher, "k", *others) for others in ("a", "b", "kk")] == ["1", "2", "1"]


def test_the_queues_of_a_modulus_hash_exchange_share_the_keys_anew_when_one_goes() -> None:
    matcher = ModulusHashMatcher()
    for queue in "abc":
        matcher.add(bound("", queue))
    assert [hashed(matcher, key) for key in ("", "a", "b", "c", "key")] == ["a", "a", "a", "b", "c"]
    matcher.remove(bound("", "b"))  # scenario x_modulus_hash_rebalance
    assert [hashed(matcher, key) for key in ("", "a", "b", "c", "key")] == ["c", "a", "a", "a", "a"]


def test_what_is_bound_twice_to_a_modulus_hash_exchange_is_there_twice_and_exchanges_come_first() -> None:
    matcher = ModulusHashMatcher()
    matcher.add(bound("", "a"))
    matcher.add(bound("other", "a"))
    matcher.add(bound("other", "a", table_from_python({"n": 1})))
    matcher.add(Binding("x", "", Destination("exchange", "z"), {}))
    chosen = [hashed(matcher, f"k{number}") for number in range(8)]
    assert chosen == ["a", "a", "a", "a", "z", "a", "z", "a"]


# Declaring


def made(**options: Any) -> exchanges.Exchange:
    defaults: dict[str, Any] = {
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "vhost": "/",
    }
    return exchanges.new_exchange("x", "direct", version=VERSIONS["4.3"], **(defaults | options))


def difference(current: exchanges.Exchange, **options: Any) -> str:
    given: dict[str, Any] = {
        "type_": "direct",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "vhost": "/",
    }
    with pytest.raises(ChannelException) as caught:
        exchanges.assert_equivalent(current, **(given | options))
    return caught.value.text.replace("PRECONDITION_FAILED - inequivalent arg ", "").replace(
        " for exchange 'x' in vhost '/'", ""
    )


def test_type_durable_auto_delete_and_internal_are_compared_in_this_order() -> None:
    options = {"type_": "fanout", "durable": False, "auto_delete": True, "internal": True}
    told = []
    for key in list(options):
        told.append(difference(made(), **options))
        del options[key]
    assert told == [
        "'type': received 'fanout' but current is 'direct'",
        "'durable': received 'false' but current is 'true'",
        "'auto_delete': received 'true' but current is 'false'",
        "'internal': received 'true' but current is 'false'",
    ]


def test_of_the_arguments_only_the_alternate_exchange_is_compared() -> None:
    table = {"alternate-exchange": longstr("ae"), "other": longstr("1")}
    current = made(arguments=table)
    assert current.alternate_exchange == "ae"
    assert difference(current) == (
        "'alternate-exchange': received none but current is the value 'ae' of type 'longstr'"
    )


def test_an_alternate_exchange_that_is_no_string_is_refused() -> None:
    with pytest.raises(ChannelException) as caught:
        made(arguments={"alternate-exchange": Field("signedint", 1)})
    assert caught.value.text.endswith(
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    )


@pytest.mark.parametrize(("version", "code"), [("3.10", 503), ("4.0", 406), ("4.3", 406)])
def test_an_unknown_type_closes_the_connection_in_3_10_only(version: str, code: int) -> None:
    with pytest.raises(AmqpException) as caught:
        exchanges.check_type("bogus", version=VERSIONS[version])
    assert (caught.value.code, caught.value.text.partition(" - ")[2]) == (code, "unknown exchange type 'bogus'")


@pytest.mark.parametrize(
    ("version", "type_"), [("4.0", "x-local-random"), ("4.3", "x-local-random"), ("4.3", "x-modulus-hash")]
)
def test_a_version_has_the_types_of_its_core(version: str, type_: str) -> None:
    exchanges.check_type(type_, version=VERSIONS[version])


@pytest.mark.parametrize(
    ("version", "type_"),
    [
        ("3.10", "x-local-random"),
        ("3.10", "x-modulus-hash"),
        ("4.0", "x-modulus-hash"),
        ("4.3", "x-consistent-hash"),
        ("4.3", "Direct"),
    ],
)
def test_a_version_has_no_type_of_a_plugin_or_of_a_later_one(version: str, type_: str) -> None:
    with pytest.raises(AmqpException, match=f"unknown exchange type '{type_}'"):
        exchanges.check_type(type_, version=VERSIONS[version])


@pytest.mark.parametrize(("version", "word"), [("4.0", "unknown"), ("4.3", "invalid")])
def test_a_version_knows_words_of_its_own(version: str, word: str) -> None:
    with pytest.raises(ChannelException, match=f"{word} exchange type 'x-random'"):
        exchanges.check_type("x-random", version=VERSIONS[version])


def test_a_type_with_a_hyphen_is_told_in_quotes_of_its_own() -> None:
    current = exchanges.new_exchange(
        "x",
        "x-local-random",
        durable=True,
        auto_delete=False,
        internal=False,
        arguments={},
        vhost="/",
        version=VERSIONS["4.3"],
    )
    assert difference(current) == "'type': received 'direct' but current is ''x-local-random''"


@pytest.mark.parametrize(
    ("type_", "word"), [("bogus", "unknown"), ("queue", "invalid"), ("retry", "invalid"), ("", "invalid")]
)
def test_a_type_that_rabbitmq_knows_as_a_word_is_invalid_and_another_unknown(type_: str, word: str) -> None:
    with pytest.raises(ChannelException, match=f"{word} exchange type '{type_}'"):
        exchanges.check_type(type_, version=VERSIONS["4.3"])
