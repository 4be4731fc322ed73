"""Pages of HTML, read strictly."""

from html.parser import HTMLParser

VOID = {"br", "img", "input", "link", "meta"}


class Page(HTMLParser):
    """Checks that tags are closed in order and have no handlers of events, and collects what a page holds."""

    def __init__(self):
        super().__init__()
        self.stack, self.references, self.identifiers, self.scripts, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.references += [found[name] for name in ("src", "href", "srcset", "action") if name in found]
        self.identifiers += [found["id"]] if "id" in found else []
        assert not any(name.startswith("on") for name in found)
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)


def read_page(text):
    page = Page()
    page.feed(text)
    page.close()
    assert page.stack == []
    return page
