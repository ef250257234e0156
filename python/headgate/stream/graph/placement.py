"""The worker of each task: stages with workers of their own, and all others. Decision: ADR 0062."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stream.graph.stages import JobGraph, Stage, TaskId


def sentences(graph: JobGraph, no_resources: str, workers: int) -> Iterator[str]:
    """Yield a sentence about each stage with workers of its own, and one about workers without a task, for the user of the job.

    Args:
        graph: the job.
        no_resources: where nothing enforces resources, as a clause; empty if something does.
        workers: number that the job was given for all other stages; 0 for none.
    """
    for stage in graph.stages:
        if stage.own_workers:
            noun = "worker" if stage.own_workers == 1 else "workers"
            sentence = f"{stage.name} has {stage.own_workers} {noun} of its own"
            resources = str(stage.head.workers)
            if resources and no_resources:
                sentence += (
                    f"; {resources} of each is a label, which nothing enforces {no_resources}"
                )
            elif resources:
                sentence += f", each with {resources}"
            yield sentence
    tasks = sum(stage.parallelism for stage in graph.stages if not stage.own_workers)
    if tasks < workers:
        noun = "task" if tasks == 1 else "tasks"
        yield (
            f"{workers - tasks} of the {workers} workers have nothing to do, since all stages that they run have {tasks} {noun} "
            f"together. What helps: no parallelism=, for a task of each operator in each worker · workers={max(1, tasks)}"
        )


def own_workers(graph: JobGraph, others: int) -> dict[int, Stage]:
    """Return the stage of each worker that runs no other one, by its number.

    Args:
        graph: the job.
        others: number of workers of all other stages, which are the first ones.
    """
    stages = (stage for stage in graph.stages for _ in range(stage.own_workers))
    return dict(enumerate(stages, others))


def placed(graph: JobGraph, size: int) -> dict[TaskId, int]:
    """Return the worker of each task.

    Args:
        graph: the job.
        size: number of all workers.
    """
    others = size - graph.own_workers
    workers: dict[int, list[int]] = {}
    for number, stage in own_workers(graph, others).items():
        workers.setdefault(stage.number, []).append(number)
    shared = [task for task in graph.tasks if task[0] not in workers]
    of_shared = {task: at % others for at, task in enumerate(shared)}
    return {
        (stage, at): workers[stage][at % len(workers[stage])]
        if stage in workers
        else of_shared[stage, at]
        for stage, at in graph.tasks
    }
