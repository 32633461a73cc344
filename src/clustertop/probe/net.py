"""Group ``net``: what interfaces belong to, their addresses, and what their drivers count of pauses and discards."""

from . import interfaces
from .ethtool import Ethtool
from .files import Reading, reason
from .frames import Table
from .links import Links

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from .files import Call, Tree
    from .frames import Cell, Row

RELIST_SECONDS = 60.0


class Net(object):
    """Reads table ``link``.

    *statistics* are the names that the console knows of what drivers count, ``#`` for any number.
    """

    def __init__(self, tree: "Tree", call: "Call", statistics: "List[str]") -> None:
        self._tree = tree
        self._links = Links(tree, call)
        # What this machine's kernel says is not about another root.
        self._ethtool = Ethtool(statistics if tree.root == "" else [], call)
        self._listed = -RELIST_SECONDS
        self._found: "List[str]" = []
        self._names: "List[str]" = []
        self._rows: "List[Row]" = []
        self._columns: "List[str]" = []
        self._error = ""

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        try:
            found = interfaces.names(self._tree)
            if self._links.changed() or found != self._found or now - self._listed >= RELIST_SECONDS - 0.5:
                self._listed = now
                self._relist(found)
            self._error = ""
        except OSError as error:
            self._error = "{}: {}".format(reason(error), error.filename or self._tree.path(interfaces.CLASS))
        counted = [self._ethtool.read(name) for name in self._names]
        columns = sorted({stat for mine in counted for stat in mine})
        if columns != self._columns:
            self._columns = columns
        cells: "List[Cell]" = [mine.get(column) for column in columns for mine in counted]
        table = Table(self._rows, ["e:" + column for column in columns], cells, self._error)
        return Reading({"link": table}, facts={"net": self._links.source})

    def obey(self, request: "Dict[str, Any]", now: float) -> None:
        """Take the second bundle."""
        self._links.load(str(request.get("data") or ""))
        self._listed = -RELIST_SECONDS

    def close(self) -> None:
        """Close the sockets."""
        self._links.close()
        self._ethtool.close()

    def _relist(self, found: "List[str]") -> None:
        rows = interfaces.listed(self._tree, found)
        names = [name for name, _ in rows]
        links = self._links.read(names)
        listed: "List[Row]" = [(key, dict(attrs, **links.get(name, {}))) for name, (key, attrs) in rows]
        self._found = found
        self._ethtool.forget()
        if listed != self._rows:
            self._rows, self._names = listed, names
