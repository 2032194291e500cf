"""The configuration of a Spark session, and the location of the SQLite JDBC driver: an argument, the
environment, Debian's package, or Maven."""

from __future__ import annotations

import glob
import os

from .planning.errors import SparkOptionError
from .python import name_this_python

ENVIRONMENT = "EOSDB_SQLITE_JDBC_JAR"
DRIVER = "org.sqlite.JDBC"
_DEBIAN_JAR = "/usr/share/java/xerial-sqlite-jdbc.jar"
_DEBIAN_NATIVE = "/usr/lib/*/jni/libsqlitejdbc.so"
_MAVEN = "org.xerial:sqlite-jdbc:3.50.3.0"
INSTALL = "apt-get install libxerial-sqlite-jdbc-java libxerial-sqlite-jdbc-jni"


def find(jar: str | None = None) -> str | None:
    """Return the path of the driver's jar; None if this machine has none.

    Raises SparkOptionError if the jar named by the argument or by EOSDB_SQLITE_JDBC_JAR does not exist.
    """
    for named, where in ((jar, "jar"), (os.environ.get(ENVIRONMENT), ENVIRONMENT)):
        if named:
            if not os.path.isfile(named):
                raise SparkOptionError(
                    f"{where}: there is no file {named}; name the jar of the SQLite JDBC driver, or "
                    f"install Debian's: {INSTALL}"
                )
            return os.path.abspath(named)
    return _DEBIAN_JAR if os.path.isfile(_DEBIAN_JAR) else None


def spark_conf(jar: str | None = None) -> dict[str, str]:
    """Return the configuration of a session, for `SparkSession.builder.config(map=…)`: the jar of the
    SQLite JDBC driver with Debian's native library, or Maven coordinates, which Spark downloads.

    Also sets the environment variable PYSPARK_PYTHON to this Python, unless it is already set: it selects
    the Python of Spark's workers, and no session setting does. Call it before the session's JVM starts.
    Raises SparkOptionError for a jar that does not exist.
    """
    name_this_python()
    driver = find(jar)
    if driver is None:
        return {"spark.jars.packages": _MAVEN}
    conf = {"spark.jars": driver}
    native = glob.glob(_DEBIAN_NATIVE)
    if driver == _DEBIAN_JAR and native:
        folder = os.path.dirname(native[0])
        conf["spark.driver.extraLibraryPath"] = folder
        conf["spark.executor.extraLibraryPath"] = folder
    return conf
