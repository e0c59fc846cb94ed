"""Versions are data; a denied feature can be permitted."""

import dataclasses
import re
from pathlib import Path

import pytest

import queuey_fake
from queuey_fake.model.versions import VERSIONS, Version, version_named


def test_three_generations_are_imitated() -> None:
    assert {version.name: version.release for version in VERSIONS.values()} == {
        "3.10": "3.10.8",
        "4.0": "4.0.5",
        "4.3": "4.3.6",
    }


def test_only_4_3_denies_transient_queues_and_they_can_be_permitted() -> None:
    denying = [name for name, version in VERSIONS.items() if "transient_nonexcl_queues" in version.denied_features]
    assert denying == ["4.3"]
    assert not version_named("4.3", permit={"transient_nonexcl_queues"}).denied_features


def test_an_unknown_version_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"3\.10, 4\.0, 4\.3"):
        version_named("3.9")


def test_a_name_in_place_of_several_is_refused_as_that() -> None:
    with pytest.raises(TypeError, match=r"permit: expected several names, such as {'transient_nonexcl_queues'}"):
        version_named("4.3", permit="transient_nonexcl_queues")


def test_each_difference_between_versions_is_asked_for_by_the_model() -> None:
    sources = Path(queuey_fake.__file__).parent.rglob("*.py")
    asked = set(re.findall(r"\.(\w+)", "".join(path.read_text() for path in sources)))
    assert [field.name for field in dataclasses.fields(Version) if field.name not in asked] == []


def test_an_unknown_feature_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="transient_nonexcl_queues"):
        version_named("4.3", permit={"transient"})
