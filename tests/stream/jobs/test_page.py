"""The examples of docs/streams.md print what the page says."""

from tests.stream.pages import check_examples


def test_the_examples_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_examples("streams.md", 4)
