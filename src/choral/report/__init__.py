"""Pages that a privacy officer can read, sign and re-check."""

from choral.report.live import LivePage, serve
from choral.report.report_page import page, write_report

__all__ = ["LivePage", "page", "serve", "write_report"]
