"""Charts as PNG, for papers: on white, with a font that is named, or not at all."""

import re
from functools import cache
from importlib.util import find_spec

from choral.report.charts import ON_WHITE, STYLE
from choral.report.markup import Markup

WIDE = 1260  # pixels: three for each unit of a chart
# By name: resvg knows no system's own choice. Of these at least one is on every usual desktop.
_FONTS = "DejaVu Sans, Liberation Sans, Noto Sans, Arial, Helvetica, Segoe UI, sans-serif"
TEXT = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20"><text y="15" font-family="{_FONTS}">ε</text></svg>'


def png_of(chart: Markup) -> bytes | None:
    r"""The chart on white paper; None without resvg, or where no font is installed: a chart without words is none.

    >>> from choral.report.charts import bar
    >>> (png_of(bar(0.5, title="half")) or b"\x89PNG")[:4]
    b'\x89PNG'
    """
    if why_not():
        return None
    import resvg_py

    # resvg knows neither variables nor themes: plain colours, for white paper.
    style = re.sub(r"@media[^{]*\{ \.chart \{[^}]*\} \}\n", "", STYLE)
    for name, colour in re.findall(r"(--s\d): (#\w+);", ON_WHITE):
        style = style.replace(f"var({name})", colour)
    style = style.replace(ON_WHITE, "").replace(
        "font: 12px system-ui, sans-serif", f"font-size: 12px; font-family: {_FONTS}"
    )
    head, _, body = chart.partition(">")
    drawn = f"{head}><style>{style}</style>{body}"
    return bytes(resvg_py.svg_to_bytes(svg_string=drawn, background="white", width=WIDE))


@cache
def why_not() -> str:
    """Why no picture can be drawn here, or nothing."""
    if find_spec("resvg_py") is None:
        return "the extra png is not installed"
    import resvg_py

    empty = TEXT.replace("ε", "")
    words, nothing = (bytes(resvg_py.svg_to_bytes(svg_string=one)) for one in (TEXT, empty))
    return f"none of the fonts {_FONTS} is installed" if words == nothing else ""
