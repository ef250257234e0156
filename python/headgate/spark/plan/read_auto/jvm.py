"""Methods of the JVM as functions of Scala: one call of py4j then maps a whole collection, instead of some calls for each of its items."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GETTERS: Final = "org.apache.spark.sql.catalyst.expressions.SpecializedGetters"
_TYPE: Final = "org.apache.spark.sql.types.DataType"


class Methods:
    """Makes functions of one argument from methods of the JVM.

    Args:
        gateway: py4j's way to the JVM.
    """

    def __init__(self, gateway: Any) -> None:
        self._jvm, self._gateway = gateway.jvm, gateway
        handles = gateway.jvm.java.lang.invoke
        self._lookup, self._handles = handles.MethodHandles.publicLookup(), handles.MethodHandles
        self._proxies = handles.MethodHandleProxies
        self._converters = gateway.jvm.scala.jdk.javaapi.FunctionConverters
        self._function = self._class("java.util.function.Function")
        text = "java.lang.String"
        encode = self._handle("java.net.URLEncoder", "encode", text, text)
        self._encode = self._made(self._bound(encode, 1, "UTF-8"))
        self._text = self._made(self._handle(text, "valueOf", "java.lang.Object"))
        self._get = self._handle(_GETTERS, "get", "int", _TYPE)
        self._is_null = self._handle(_GETTERS, "isNullAt", "int")
        self._functions: dict[tuple[str, str], Any] = {}

    def of(self, class_: str, name: str) -> Any:
        """Return a method without arguments as a function of its object."""
        key = class_, name
        if key not in self._functions:
            self._functions[key] = self._made(self._handle(class_, name))
        return self._functions[key]

    def column(self, number: int, type_: Any) -> tuple[Any, Any]:
        """Return two functions of Spark's internal rows: if a column is null, and its value."""
        return (
            self._made(self._bound(self._is_null, 1, number)),
            self._made(self._bound(self._get, 1, number, type_)),
        )

    def texts(self, items: Any) -> list[str]:
        """Return the texts of all items of a collection of Scala."""
        encoded = str(items.map(self._text).map(self._encode).mkString("\n"))
        return [unquote_plus(text) for text in encoded.split("\n")] if int(items.size()) else []

    def _class(self, name: str) -> Any:
        if name == "int":
            return self._jvm.java.lang.Integer.TYPE
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self._jvm.java.lang.Class.forName(name, True, loader)

    def _handle(self, class_: str, name: str, *arguments: str) -> Any:
        types = self._gateway.new_array(self._jvm.java.lang.Class, len(arguments))
        for place, argument in enumerate(arguments):
            types[place] = self._class(argument)
        return self._lookup.unreflect(self._class(class_).getMethod(name, types))

    def _bound(self, handle: Any, place: int, *values: Any) -> Any:
        """Return a handle whose arguments from a place on have values."""
        objects = self._gateway.new_array(self._jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            objects[index] = value
        return self._handles.insertArguments(handle, place, objects)

    def _made(self, handle: Any) -> Any:
        function = self._proxies.asInterfaceInstance(self._function, handle)
        return self._converters.asScalaFromFunction(function)


@cache
def _methods(gateway: Any) -> Methods:
    return Methods(gateway)


def methods_of(session: SparkSession) -> Methods:
    """Return the functions of a session's JVM, which are made once."""
    return _methods(session.sparkContext._gateway)  # noqa: SLF001 - no public way
