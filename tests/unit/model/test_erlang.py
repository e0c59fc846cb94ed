"""Terms are printed as RabbitMQ's reply texts show them (scenario ttl_msg_invalid)."""

import pytest

from queuey_fake.model.erlang import Atom, OctetString, Printed, Term, leading_integer, printed, written


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


def test_elements_that_can_be_broken_begin_a_line_each() -> None:
    value = [(Atom("array"), [(Atom("signedint"), 1)]), (Atom("array"), [(Atom("void"), None), b"x" * 60])]
    assert written(["Invalid x-match field type array (value ", Printed(value), ")"]).split("\n") == [
        "Invalid x-match field type array (value [{array,[{signedint,1}]},",
        "                                         {array,",
        "                                          [{void,undefined},",
        f'                                           <<"{"x" * 60}">>]}}])',
    ]


def test_what_follows_a_long_tag_is_indented_by_four_where_that_leaves_half_a_line() -> None:
    value = (Atom("not_found"), (Atom("resource"), b"/", Atom("queue"), b"q" * 12))
    text = written(["failed to deliver message: ", Printed(value)])
    assert text.split("\n")[1] == " " * 31 + '{resource,<<"/">>,queue,<<"' + "q" * 12 + '">>}}'


def test_a_long_binary_that_is_no_text_is_broken_between_its_octets() -> None:
    assert printed([bytes(40)], column=10) == "[<<" + "0," * 32 + "\n" + " " * 13 + "0," * 7 + "0>>]"


@pytest.mark.parametrize(
    ("term", "octets", "is_unicode", "text"),
    [
        ("é".encode(), False, True, '<<"é"/utf8>>'),
        ("€".encode(), False, True, '<<"€"/utf8>>'),
        (b"\xe9", False, True, '<<"é">>'),
        ("é".encode(), True, True, '<<"é">>'),
        ("€".encode(), True, True, "<<226,130,172>>"),
        ("€", False, False, "[8364]"),
        ("€", True, False, "[226,130,172]"),
        (OctetString("é".encode()), False, True, '"Ã©"'),
        (OctetString("é".encode()), True, True, '"é"'),
    ],
)
def test_characters_are_octets_in_3_10_and_beyond_latin_1_a_matter_of_the_format(
    term: Term, *, octets: bool, is_unicode: bool, text: str
) -> None:
    assert written(["é", Printed(term, is_unicode=is_unicode)], octets=octets) == f"é{text}"


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
