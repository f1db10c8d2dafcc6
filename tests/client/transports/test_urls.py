"""URLs and headers of HTTP transports."""

from urllib.parse import urlsplit

import pytest

from ors.client.transports.base import HeaderFields, authorization, port_of


@pytest.mark.parametrize(
    ("url", "port"), [("http://a", 80), ("https://a", 443), ("http://a:8080", 8080), ("https://[::1]:1", 1)]
)
def test_a_url_without_a_port_has_that_of_its_scheme(url: str, port: int) -> None:
    assert port_of(urlsplit(url)) == port


def test_a_login_is_decoded_from_its_url_and_encoded_in_a_header() -> None:
    assert authorization("Authorization", urlsplit("http://a:p%40ss@b")) == ["Authorization: Basic YTpwQHNz"]
    assert authorization("Authorization", urlsplit("http://b")) == []


def test_header_names_are_found_in_any_case_and_the_last_value_wins() -> None:
    fields = HeaderFields()
    fields["Content-Type"] = "a"
    fields["content-TYPE"] = "b"
    assert fields["CONTENT-type"] == fields.get("content-type") == "b"
    assert "Content-Type" in fields
    assert "Accept" not in fields
    assert fields.get("Accept") == ""
