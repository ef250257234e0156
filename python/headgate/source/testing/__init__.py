"""For authors of sources: the contract of a source as tests.

Subclass :class:`SourceTestBase` in a file that pytest collects::

    class TestStations(SourceTestBase):
        def create_source(self):
            return StationSource()

        def expected_records(self):
            return [page("Jena", 0), page("Jena", 1)]
"""

from headgate.source.testing.contract import SourceTestBase

__all__ = ["SourceTestBase"]
