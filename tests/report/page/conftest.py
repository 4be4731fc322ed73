"""The browser that pages are opened in."""

from helpers.browser import browser

__all__ = ["browser"]
