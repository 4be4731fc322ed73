"""The report: tables beside the paper's numbers, verdicts on the targets, and figures, as Markdown and HTML.

`results` reads what the runner wrote, `tables` and `figures` show it, `targets` judges it, `page` puts it together.
"""

from smct_paper.experiments.report.page import write_report

__all__ = ["write_report"]
