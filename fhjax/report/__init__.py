"""Shows an assessment: a page, tables, figures, one screen of text. It computes no more than quantiles and ratios."""

from fhjax.report.provenance import collect_provenance
from fhjax.report.statement import statement, text_summary
from fhjax.report.write import ReportFiles, write_report

__all__ = ["ReportFiles", "collect_provenance", "statement", "text_summary", "write_report"]
