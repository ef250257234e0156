"""A DataFrame that is only a scan of files, as a source that the workers read themselves, unless ``read="spark"``.

:mod:`scan` takes Spark's plan apart, :mod:`files` looks at the files, :mod:`decide` asks both and Spark's
configuration. Whatever is not known to give Spark's own rows stays with Spark, with the reason.
"""
