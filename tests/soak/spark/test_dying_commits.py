"""writeStream.format("headgate") writes each row once if the process that commits a batch dies."""

import sys

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from tests.kit.json_stream import ROWS, Writing, add, found, staged, start

# The Python processes of Spark cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Dying(Writing):
    """The process that commits batch 1 dies once, at the step that the path's name gives."""

    @classmethod
    def name(cls):
        return "headgate_dying"

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        import os
        from pathlib import Path

        writer = super().streamWriter(schema, overwrite)
        path = self.options["path"]
        commit = writer.commit

        def die(*args, **kwargs):
            os._exit(9)

        def dying(messages, batchId):  # noqa: N803 - Spark's name
            from headgate.sink import file_committer, journal
            from headgate.sink.local_storage import LocalStorage

            flag = f"{path}.died"
            if batchId == 1 and not Path(flag).exists():
                os.close(os.open(flag, os.O_CREAT))
                step = Path(path).name
                if step == "before-the-journal":
                    journal.write = die
                elif step == "after-the-journal":
                    LocalStorage.move_new = _after(LocalStorage.move_new, "_commit.json", die)
                elif step == "between-the-files":
                    LocalStorage.move = _after(LocalStorage.move, ".parquet", die)
                elif step == "before-the-cleaning":
                    file_committer.FileCommitter._clean = die
                else:
                    real, writer.commit = commit, die
                    real(messages, batchId)
                    die()
            commit(messages, batchId)

        if path != "fine":
            writer.commit = dying
        return writer


def _after(real, ending, die):
    def move(self, source, target):
        real(self, source, target)
        if target.endswith(ending):
            die()

    return move


@pytest.mark.parametrize(
    "step",
    [
        "before-the-journal",
        "after-the-journal",
        "between-the-files",
        "before-the-cleaning",
        "after-the-commit",
    ],
)
def test_a_commit_that_dies_is_completed_or_repeated(spark, tmp_path, step):
    folder = tmp_path
    (folder / "in").mkdir()
    spark.dataSource.register(Dying)
    out = folder / step
    for number in range(3):
        add(folder, number)
    query = start(spark, folder, "headgate_dying", out)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)
    assert (folder / f"{step}.died").exists()
    start(spark, folder, "headgate_dying", out).awaitTermination(60)
    assert found(spark, out) == list(range(3 * ROWS))
    assert staged(out) == []
