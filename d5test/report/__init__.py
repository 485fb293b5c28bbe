"""The page of a comparison, or of one version's runs: one file that needs no network.

`Report` is what the page is made of, `page` makes it, `verify` makes it again from the data that
it carries and says where it is not what they give.
"""

from d5test.report.content import Paired, Report
from d5test.report.page import markdown, page, verify

__all__ = ["Paired", "Report", "markdown", "page", "verify"]
