"""Reply texts start with the code's name and fit into a short string."""

from queuey_fake.model import errors
from queuey_fake.model.fields import Field, longstr, signedint


def test_a_text_starts_with_the_name_of_its_code() -> None:
    refusal = errors.not_found("queue", "q", "/")
    assert (refusal.code, refusal.text) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")


def test_a_long_text_is_cut_to_255_octets() -> None:
    refusal = errors.not_found("queue", "q" * 255, "/")
    assert len(refusal.text) == 255
    assert refusal.text.endswith("qqq...")


def test_a_crash_gives_no_explanation() -> None:
    assert errors.internal_error().text == "INTERNAL_ERROR"


def test_a_value_of_both_sides_is_printed_bare() -> None:
    refusal = errors.inequivalent("x-expires", kind="queue", name="q", vhost="/", received=6, current=5)
    assert refusal.text.endswith("for queue 'q' in vhost '/': received '6' but current is '5'")


def test_a_value_of_one_side_is_printed_with_its_type() -> None:
    refusal = errors.inequivalent(
        "x-max-length", kind="queue", name="q", vhost="/", received=None, current=signedint(5)
    )
    assert refusal.text.endswith("received none but current is the value '5' of type 'signedint'")


def test_an_array_is_printed_as_an_erlang_term() -> None:
    array = Field("array", (signedint(1), longstr("a")))
    refusal = errors.inequivalent("x-message-ttl", kind="queue", name="q", vhost="/", received=array, current=None)
    text = """received the value '[{signedint,1},{longstr,<<"a">>}]' of type 'array' but current is none"""
    assert refusal.text.endswith(text)


def test_a_decimal_is_printed_as_the_pair_that_it_is() -> None:
    decimal = Field("decimal", (1, 15))
    refusal = errors.inequivalent("x-message-ttl", kind="queue", name="q", vhost="/", received=decimal, current=None)
    assert refusal.text.endswith("received the value '{1,15}' of type 'decimal' but current is none")


def test_a_binary_x_match_is_printed_as_an_erlang_binary() -> None:
    assert errors.invalid_x_match(longstr("none")).text == (
        'PRECONDITION_FAILED - Invalid x-match field value <<"none">>; expected all, any, all-with-x, or any-with-x'
    )


def test_an_x_match_of_another_type_is_printed_with_it() -> None:
    assert errors.invalid_x_match(signedint(1)).text == (
        "PRECONDITION_FAILED - Invalid x-match field type signedint (value 1); expected longstr"
    )


def test_3_10_cuts_a_text_by_octets() -> None:
    refusal = errors.as_sent(errors.not_found("queue", "é" * 127, "/"), octets=True)
    assert len(refusal.text.encode()) == 255
    assert refusal.text.endswith("é...")


def test_rabbitmq_4_crashes_of_a_text_that_is_short_in_characters_and_not_in_octets() -> None:
    refusal = errors.as_sent(errors.not_found("queue", "é" * 127, "/"), octets=False)
    assert (refusal.code, refusal.text) == (541, "INTERNAL_ERROR")
