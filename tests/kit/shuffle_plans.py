"""Plans that no call of exchange() on this master makes."""

from dataclasses import replace

from headgate.spark.plan.request import Input, check
from headgate.spark.plan.shuffle import shuffle
from headgate.spark.plan.source_tables import planned


def through_sparks_shuffle(spark, data, **options):
    """Plan an exchange as for a client of Spark Connect: Spark's shuffle moves what ``map`` returns."""
    by, map_, reduce, schema = (
        options.pop(name, None) for name in ("by", "map", "reduce", "schema")
    )
    given = Input(data, by, map_, options.pop("map_schema", None), options.pop("sort_within", None))
    request = check(given, spark, reduce, schema, options)
    if request.source is not None:
        request = replace(request, planned=planned(request, 4))
    return shuffle(request, options["num_partitions"], "0" * 30)
