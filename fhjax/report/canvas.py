"""What all figures share: a look that survives black-and-white print, logarithmic axes, names that do not collide."""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

# Okabe and Ito's colour-blind safe palette; the two that are used most differ in lightness too.
BLUE = "#0072B2"
VERMILLION = "#D55E00"
BLACK = "#000000"
GREY = "#6B6B6B"
LIGHT = "#BDBDBD"
PALE = "#9ECAE1"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": BLACK,
    "axes.labelsize": 9.0,
    "axes.axisbelow": True,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "text.parse_math": False,  # an area label may hold a dollar sign
    "axes.formatter.use_mathtext": False,
    "pdf.fonttype": 42,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "fhjax",
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The look of the figures, without touching the caller's settings."""
    with matplotlib.rc_context(STYLE):
        yield


def new_figure(width: float = 6.7, height: float = 3.6, columns: int = 1, *, sharey: bool = False):
    """A figure that belongs to no window system, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a window, and measures text
    axes = figure.subplots(1, columns, sharey=sharey, squeeze=False)[0]
    return figure, list(axes)


def log_axis(axes: Axes, which: str) -> None:
    """Make the x or y axis logarithmic with plain numbers, and with ticks inside a decade when it spans few."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    decades = math.log10(high / low)
    inside = (
        (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0) if decades < 1.2
        else (1.0, 2.0, 5.0) if decades < 2.6 else (1.0, 3.0) if decades < 4.5 else (1.0,)
    )  # fmt: skip
    axis.set_major_locator(LogLocator(base=10.0, subs=inside, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda x, _: tick(x)))
    axis.set_minor_formatter(NullFormatter())


def tick(x: float) -> str:
    """A number on an axis: as few digits as it needs."""
    if x == 0 or 1e-3 <= abs(x) < 1e6:
        return f"{x:,.10g}"
    mantissa, exponent = f"{x:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def span(values: npt.NDArray[np.float64], room: float = 0.06) -> tuple[float, float]:
    """Limits of a logarithmic axis that hold all positive finite values, with some room."""
    logs = np.log10(values[np.isfinite(values) & (values > 0)])
    if logs.size == 0:
        return 0.1, 10.0
    low, high = float(logs.min()), float(logs.max())
    spread = max(high - low, 0.3)
    middle = (low + high) / 2
    low, high = min(low, middle - spread / 2), max(high, middle + spread / 2)
    return 10 ** (low - room * spread), 10 ** (high + room * spread)


def ident_line(axes: Axes, text: str, *, above: bool) -> None:
    """The line on which both axes are equal, named on the side where the points are not."""
    low = max(axes.get_xlim()[0], axes.get_ylim()[0])
    high = min(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color=BLACK, linewidth=0.9, zorder=1)
    where = 10 ** (math.log10(low) + (0.45 if above else 0.05) * math.log10(high / low))
    offset, side, end = ((-4, 4), "right", "bottom") if above else ((6, -2), "left", "top")
    axes.annotate(text, (where, where), xytext=offset, textcoords="offset points", fontsize=8, ha=side, va=end)


def name_points(
    figure: Figure, axes: Axes, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], order: Sequence[int],
    names: Sequence[str], limit: int = 3,
) -> None:  # fmt: skip
    """Write names beside the points at the indices ``order``, the first ``limit`` that find room.

    A name may cover neither another text, nor the edge, nor one of the points in ``order`` (nor any other, if few).
    """
    figure.draw_without_rendering()  # settles the layout: text is measured in pixels
    figure.set_layout_engine("none")  # once, because it takes longer than the drawing
    renderer = figure.canvas.get_renderer()  # pyright: ignore[reportAttributeAccessIssue]
    taken, written = [text.get_window_extent(renderer) for text in axes.texts], 0
    frame = axes.get_window_extent(renderer)
    obstacles = axes.transData.transform(np.column_stack([x, y] if len(x) <= 60 else [x[order], y[order]]))
    for i, name in zip(order, names, strict=True):
        for dx, dy, side in ((6, 3, "left"), (-6, 3, "right"), (6, -9, "left"), (-6, -9, "right")):
            if written == limit:
                return
            text = axes.annotate(
                shorten(name),
                (x[i], y[i]),
                xytext=(dx, dy),
                textcoords="offset points",
                fontsize=8,
                ha=side,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
                zorder=6,
            )
            box = text.get_window_extent(renderer)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            free = not any(box.overlaps(other) for other in taken) and not box.padded(4).count_contains(obstacles)
            if inside and free:
                taken.append(box)
                written += 1
                break
            text.remove()


def titled(axes: Axes, title: str, width: int = 84, **options: object) -> None:
    """The finding above the axes, wrapped before it runs off the page."""
    axes.set_title(textwrap.fill(title, width), **options)  # pyright: ignore[reportArgumentType]


def shorten(name: str, width: int = 26) -> str:
    """A label short enough for a figure."""
    return name if len(name) <= width else name[: width - 1] + "…"


def infinite_note(axes: Axes, rho: npt.NDArray[np.float64]) -> None:
    """Say how many areas a logarithmic axis cannot show."""
    infinite, zero = int(np.isinf(rho).sum()), int((rho == 0).sum())
    parts = [
        f"{count:,} {'area' if count == 1 else 'areas'} with {what} not drawn"
        for count, what in ((infinite, "infinite ρ"), (zero, "ρ = 0"))
        if count
    ]
    if parts:
        axes.annotate(
            "; ".join(parts),
            (1.0, 1.0),
            xycoords="axes fraction",
            xytext=(-2, -2),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
            style="italic",
            bbox={"boxstyle": "square,pad=0.2", "facecolor": "white", "edgecolor": GREY, "linewidth": 0.6},
        )


def point_style(count: int) -> dict[str, object]:
    """Markers that stay visible alone and do not clot by the thousand."""
    size = 26 if count <= 60 else 14 if count <= 400 else 6
    many = count > 5000  # as a picture inside the PDF: a million vector points open in no viewer
    return {
        "rasterized": many,
        "s": size,
        "facecolor": BLUE,
        "edgecolor": "white",
        "linewidth": 0.3,
        "alpha": 0.9 if count <= 400 else 0.6,
    }
