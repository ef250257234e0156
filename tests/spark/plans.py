"""Plans that no call of exchange() on this master makes."""

from headgate.spark.plan.request import check
from headgate.spark.plan.shuffle import shuffle
from headgate.spark.plan.sources import is_table, source_input


def through_sparks_shuffle(spark, data, **options):
    """Plan an exchange as for a client of Spark Connect: Spark's shuffle moves what ``map`` returns."""
    data = data if is_table(data) else source_input(data, None)
    given = [options.pop(name, None) for name in ("by", "map", "reduce", "schema")]
    sort_within = options.pop("sort_within", None)
    request = check(data, spark, *given, options, sort_within=sort_within)
    return shuffle(request, options["num_partitions"], 4)
