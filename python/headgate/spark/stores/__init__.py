"""Object stores as a session of Spark reaches them: Hadoop's settings as arguments of pyarrow's file systems.

:mod:`settings` reads Hadoop's settings, :mod:`s3a`, :mod:`gs` and :mod:`abfs` turn them into arguments, and
:mod:`located` makes the file systems. ADR 0047.
"""
