"""Questions to Spark's scheduler about running tasks."""

from types import SimpleNamespace

from headgate.spark.driver.scheduler.task_sets import stage_counts


def test_an_application_that_is_stopping_runs_no_tasks():
    """Its context is still there while it has no scheduler any more."""
    scala = SimpleNamespace(taskScheduler=lambda: None)
    tracker = SimpleNamespace(getStageInfo=lambda stage: None)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala), statusTracker=lambda: tracker)
    assert stage_counts(context, [1, 2]) == {}
