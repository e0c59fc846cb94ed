"""Terms are printed as RabbitMQ's reply texts show them (scenario ttl_msg_invalid)."""

import pytest

from queuey_fake.model.erlang import Atom, Term, leading_integer, printed


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (Atom("no_integer"), "no_integer"),
        (Atom("Odd one"), "'Odd one'"),
        ((Atom("value_negative"), -1), "{value_negative,-1}"),
        ((Atom("leftover_string"), " "), '{leftover_string," "}'),
        ((Atom("leftover_string"), "\x01"), "{leftover_string,[1]}"),
        ("", "[]"),
        ('a"b\n', '"a\\"b\\n"'),
        (b"none", '<<"none">>'),
        (b"\x00\x01", "<<0,1>>"),
        (b"", "<<>>"),
        (True, "true"),
        (None, "undefined"),
        (1.5, "1.5"),
        (1e22, "1.0e22"),
        ([(Atom("signedint"), 1), (Atom("longstr"), b"a")], '[{signedint,1},{longstr,<<"a">>}]'),
    ],
)
def test_a_term_is_printed(term: Term, text: str) -> None:
    assert printed(term) == text


@pytest.mark.parametrize(("digits", "breaks"), [(18, False), (19, True)])
def test_a_tuple_is_broken_where_it_reaches_the_79th_column(digits: int, breaks: bool) -> None:  # noqa: FBT001  a case
    number = int("9" * digits)
    column = len(f"invalid expiration '{number}': ")
    text = printed((Atom("value_too_large"), number), column=column)
    assert ("\n" + " " * (column + 1) in text) is breaks


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("100", (100, "")),
        ("+100", (100, "")),
        ("-1", (-1, "")),
        ("007", (7, "")),
        ("1.5", (1, ".5")),
        ("100 ", (100, " ")),
        (" 100", None),
        ("", None),
        ("+", None),
        ("abc", None),
    ],
)
def test_an_integer_is_read_as_erlang_reads_it(text: str, read: tuple[int, str] | None) -> None:
    assert leading_integer(text) == read
