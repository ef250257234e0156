"""Functions for ``map`` and ``reduce`` that call a function of yours, group by group.

They use nothing of Spark, so that they also serve ``mapInArrow`` and tests.
"""
