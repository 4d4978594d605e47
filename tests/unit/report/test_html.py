from fedloom.report.html import Safe, joined, tag


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "1 < 2 & 3", tag("b", "x")) == "<p>1 &lt; 2 &amp; 3<b>x</b></p>"
    assert joined("<", Safe("<br/>"), None, ["a", ("b", 1.5)]) == "&lt;<br/>ab1.5"


def test_attributes():
    element = tag(
        "a", "x", href='"><script>', class_="b", data_key="c", hidden=True, open=False, id=None
    )
    assert element == '<a href="&quot;&gt;&lt;script&gt;" class="b" data-key="c" hidden>x</a>'
    assert tag("path", stroke_width=0.1 + 0.2) == '<path stroke-width="0.3"/>'
    assert tag("text", x=0) == '<text x="0"></text>'


def test_characters_that_xml_cannot_hold_are_replaced():
    assert tag("p", "a\x00b\x1b[2J") == "<p>a\ufffdb\ufffd[2J</p>"
    assert tag("p", id="\x08") == '<p id="\ufffd"></p>'


def test_only_what_is_marked_is_markup():
    assert tag("p", Safe("<i>") + "</i>") == "<p>&lt;i&gt;&lt;/i&gt;</p>"  # a sum is text again
