"""What objects without a text of their own are, large forms, and displays that replace others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandmesh.api.call.v1 import call_pb2

from .client import Client, Ended
from .test_cells import run, texts

pytestmark = pytest.mark.needs("user namespaces")

TEXTS = "HTML_TEXT = '<div><p>12 words</p></div>' * 10_000\nPARTS = 'Table(<_Body object at 0x7f>' + 'x' * 5_000\n"
IMPORTS = (
    TEXTS
    + "from IPython.display import HTML, JSON, Latex, Markdown, Math, SVG, clear_output, display, update_display\n"
)


def blocks(ended: Ended) -> list[dict[str, Any]]:
    """Return a cell's content blocks."""
    return [json.loads(block) for block in ended.blocks]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("HTML('<b>a</b> &amp; <i>b</i>')", "a & b"),
        ("display({'text/html': '<p>one</p><p>two</p>'}, raw=True)", "one\ntwo"),
        ("HTML('<table><tr><th>x</th><th>y</th></tr><tr><td>1</td><td>2</td></tr></table>')", "x y\n1 2"),
        ("HTML('<style>p {}</style><script>x < 1</script><p>seen</p><!-- not -->')", "seen"),
        ("HTML('<script>' + 'x' * 3_000_000 + '</script>')", "<IPython.core.display.HTML object>"),
        ("display({'text/html': '<script>' + 'x' * 3_000_000 + '</script>'}, raw=True)", "text/html of 3,000,017"),
        ("HTML('<p>' + 'word ' * 100_000)", "characters left out"),
        ("HTML('<p>seen</p><img src=\"data:' + 'x' * 3_000_000 + '\">')", "seen"),
        ("type('S', (), {'_repr_html_': lambda self: HTML_TEXT, '__repr__': lambda self: HTML_TEXT})()", "12 words"),
        ("type('S', (), {'_repr_html_': lambda self: '<b>own</b>', '__repr__': lambda self: PARTS})()", "own"),
        ("display({'application/pdf': b'%PDF', 'text/plain': 'a page'}, raw=True)", "a page"),
        ("Markdown('# title')", "# title"),
        ("Latex(r'$x$')", "$x$"),
        ("display({'text/latex': '$y$'}, raw=True)", "$y$"),
        ("JSON({'a': [1]})", '{"a": [1]}'),
        ("type('Shown', (), {'_repr_html_': lambda self: '<b>own</b>'})()", "own"),
        ("type('S', (), {'_repr_html_': lambda self: '<b>own</b>', '__repr__': lambda self: 'mine'})()", "mine"),
    ],
)
async def test_the_text_of_what_has_none_is_what_a_reader_sees_and_bounded(
    client: Client, code: str, text: str
) -> None:
    shown = texts(await run(client, IMPORTS + code))
    first = shown if "3_000_000" not in code else shown[:200]
    assert text in first
    assert len(blocks(await run(client, IMPORTS + code))[0]["text"]) < 5_000


async def test_a_form_larger_than_a_block_comes_in_parts_and_one_too_large_is_said_so(client: Client) -> None:
    ended = await run(client, IMPORTS + "HTML('<p>' + 'x' * 5_000_000)")
    more = {"continues": True, "form": "text/html"}
    parts = [block for block in blocks(ended) if block["annotations"] == more]
    assert "".join(part["text"] for part in parts) == "<p>" + "x" * 5_000_000
    ended = await run(client, IMPORTS + "display({'application/json': list(range(100_000))}, raw=True)")
    pieces = [block["text"] for block in blocks(ended) if block["annotations"] == {**more, "form": "application/json"}]
    assert json.loads("".join(pieces)) == list(range(100_000))
    ended = await run(client, IMPORTS + "display({'text/html': '<p>', 'text/plain': 'x' * 300_000}, raw=True)")
    (shown, *others) = blocks(ended)
    assert shown["text"].startswith("x" * 65_536 + "\n[234,464 characters left out")
    assert "".join(block["text"] for block in others) == "x" * 300_000
    ended = await run(client, IMPORTS + "HTML('x' * 20_000_000)")
    assert "text/html form of 20,000,000 bytes was left out" in texts(ended, "stderr")


async def test_clear_output_and_updates_say_what_they_replace(client: Client) -> None:
    loop = "for i in range(3):\n    clear_output(wait=True); print('step', i)\n"
    code = loop + "shown = display(1, display_id='d')\nshown.update(2)"
    ended = await run(client, IMPORTS + code)
    metas = [block["_meta"] for block in blocks(ended)]
    assert metas[:3] == [{"sandmesh/replaces": "*"}] * 3
    assert metas[3:] == [{"sandmesh/display": "d"}, {"sandmesh/display": "d", "sandmesh/replaces": "d"}]
    # With nothing after it, nothing is cleared.
    assert blocks(await run(client, IMPORTS + "print('kept'); clear_output(wait=True)")) == []


async def test_threads_of_a_cell_clear_and_show_in_the_order_in_which_they_write(client: Client) -> None:
    code = (
        IMPORTS + "import sys, threading\n"
        "def work():\n"
        "    for i in range(3):\n        clear_output(wait=True); print('step', i)\n"
        "    print('problem', file=sys.stderr); shown = display('a', display_id='d'); print('after')\n"
        "    shown.update('b'); clear_output(); print('last')\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()"
    )
    events = [
        (event.output.stream, event.output.data)
        if event.HasField("output")
        else json.loads(event.content.json)["_meta"]
        for event in (await run(client, code)).events
        if event.HasField("output") or event.HasField("content")
    ]
    cleared, out, err = {"sandmesh/replaces": "*"}, call_pb2.STREAM_STDOUT, call_pb2.STREAM_STDERR
    steps = [event for number in range(3) for event in (cleared, (out, f"step {number}\n".encode()))]
    shown, updated = {"sandmesh/display": "d"}, {"sandmesh/display": "d", "sandmesh/replaces": "d"}
    after = [(err, b"problem\n"), shown, (out, b"after\n"), updated, cleared, (out, b"last\n")]
    assert events == steps + after


async def test_threads_that_show_while_cells_end_and_begin_neither_stop_them_nor_take_their_frames(
    client: Client,
) -> None:
    code = (
        IMPORTS + "import sys, threading\nstop = threading.Event()\n"
        "def work(stream):\n"
        "    while not stop.is_set():\n        print('x', file=stream); display(1); clear_output(wait=True)\n"
        "threads = [threading.Thread(target=work, args=(stream,)) for stream in (sys.stdout, sys.stderr)]\n"
        "for thread in threads: thread.start()"
    )
    ended = [await run(client, code), *[await run(client, f"display({number})\n{number}") for number in range(30)]]
    ended.append(await run(client, "stop.set()\nfor thread in threads: thread.join()\n'joined'"))
    assert [cell.result.is_error for cell in ended] == [False] * 32
    assert blocks(ended[-1])[-1]["text"] == "'joined'"
    assert texts(await run(client, "2 + 2")) == "4"


async def test_a_form_is_given_only_to_objects_that_have_it(client: Client) -> None:
    (block,) = blocks(await run(client, IMPORTS + "JSON({'a': 1})"))
    assert set(block["annotations"]) == {"application/json", "text/plain"}
