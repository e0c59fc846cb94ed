"""Versions are data; a denied feature can be permitted."""

import pytest

from queuey_fake.model.versions import VERSIONS, version_named


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


def test_an_unknown_feature_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="transient_nonexcl_queues"):
        version_named("4.3", permit={"transient"})
