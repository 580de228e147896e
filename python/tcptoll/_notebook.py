"""The program's HTML report inside a notebook."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence

from . import _binary
from ._errors import TcptollError

#: More records than this make a page that no notebook shows quickly.
RECORDS_MAX = 20


def frame_of(paths: Sequence[str | os.PathLike[str]]) -> str:
    """An iframe with the report; a sentence if there is none.

    The frame is sandboxed: the page may run its own scripts, and cannot reach the notebook, whatever
    names a record holds.
    """
    if not paths:
        return "<p>No record could be read.</p>"
    if len(paths) > RECORDS_MAX:
        return f"<p>{len(paths)} records; a report shows at most {RECORDS_MAX}.</p>"
    try:
        page = _binary.page(paths)
    except (TcptollError, OSError) as error:
        return f"<p>No report: {html.escape(str(error))}</p>"
    style = "width:100%;height:42em;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(page)}"></iframe>'
