"""One HTML file that shows forecasts, how far to trust them, and where they come from.

from smc_transformer.report.page import collect_page, write_page

page = collect_page(forecaster, df, backtest=3)     # plain numbers: all that the page draws
write_page(page, "report.html")                     # one file, without network

`data.py` says what is on the page, `collect.py` asks the forecaster for it, `write.py` puts it into templates/, where
each chart is a small file of plain JavaScript that draws SVG.
"""

from smc_transformer.report.page.attention import PastAttention, attention_ahead, attention_of_stream
from smc_transformer.report.page.collect import collect_page
from smc_transformer.report.page.data import ReportPage
from smc_transformer.report.page.write import write_page

__all__ = ["PastAttention", "ReportPage", "attention_ahead", "attention_of_stream", "collect_page", "write_page"]
