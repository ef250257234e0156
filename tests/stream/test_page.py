"""The examples of docs/stream-state.md print what the page says."""

from tests.stream.pages import check_examples


def test_the_examples_print_what_the_page_says():
    check_examples("stream-state.md", 3)
