"""Files as a source."""

from headgate.source.files.csv_options import CsvOptions
from headgate.source.files.source import FileSource
from headgate.source.files.split import FileCheckpoint, FileSplit

__all__ = ["CsvOptions", "FileCheckpoint", "FileSource", "FileSplit"]
