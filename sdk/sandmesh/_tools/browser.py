"""Tools of a sandbox's browser. Their names and parameters are those that agents know from Playwright's MCP server.

An answer has the page's address, title and snapshot: its accessibility tree, in which `[ref=e12]` is what `ref` takes,
or of a page that was shown before only what is new.
"""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from sandmesh._tools.declaration import Param, Tool, tool

Element = Annotated[str, Param("What the element is, in words a person understands.")]
Ref = Annotated[str, Param("The element's reference in the last snapshot, such as e12.", pattern=r"^(f\d+)?e\d+$")]
NewFile = Annotated[str, Param("The file's name in the workspace.")]
TabNumber = Annotated[int, Param("The tab's number, as browser_tab_list shows it; the first is 1.")]
Point = Annotated[float, Param("Pixels from the left or the top edge of the screenshot.", ge=0, le=8192)]
Pixels = Annotated[int, Param("Pixels.", ge=1, le=8192)]


class FormField(TypedDict):
    """One field of a form: its label, kind, reference, and value ("true" or "false" where it is checked)."""

    name: str
    type: Literal["textbox", "checkbox", "radio", "combobox", "slider"]
    ref: str
    value: str


@tool("browser")
class BrowserNavigate(Tool):
    """Open a URL in the current tab."""

    url: Annotated[str, Param("An http or https URL, or a file: URL below the workspace.", min_length=1)]


@tool("browser")
class BrowserNavigateBack(Tool):
    """Go back to the previous page of the tab."""


@tool("browser")
class BrowserNavigateForward(Tool):
    """Go forward to the next page of the tab."""


@tool("browser")
class BrowserSnapshot(Tool):
    """Show the page as its accessibility tree, with a reference for each element. Better to act on than a picture.

    Of a long tree the first 20,000 characters are shown; other tools answer with what is new in it.
    """

    ref: Annotated[str, Param("Show only the element of this reference and what it has; empty for the page.")] = ""
    start_line: Annotated[int, Param("Show the tree from this line on.", ge=1)] = 1


@tool("browser")
class BrowserClick(Tool):
    """Click on an element."""

    element: Element
    ref: Ref
    double_click: Annotated[bool, Param("Click twice.")] = False
    button: Annotated[Literal["left", "right", "middle"], Param("The mouse's button.")] = "left"
    modifiers: Annotated[
        list[Literal["Alt", "Control", "ControlOrMeta", "Meta", "Shift"]] | None, Param("Keys that are held down.")
    ] = None


@tool("browser")
class BrowserType(Tool):
    """Type text into an editable element, replacing what it has."""

    element: Element
    ref: Ref
    text: Annotated[str, Param("The text.")]
    submit: Annotated[bool, Param("Press Enter afterwards.")] = False
    slowly: Annotated[bool, Param("Press key by key, for pages that react to each; what is there stays.")] = False


@tool("browser")
class BrowserFillForm(Tool):
    """Fill several fields of a form."""

    fields: Annotated[list[FormField], Param("The fields, filled in this order.", min_length=1)]


@tool("browser")
class BrowserSelectOption(Tool):
    """Select options of a drop-down."""

    element: Element
    ref: Ref
    values: Annotated[list[str], Param("Values or labels of the options.", min_length=1)]


@tool("browser")
class BrowserHover(Tool):
    """Move the mouse over an element."""

    element: Element
    ref: Ref


@tool("browser")
class BrowserDrag(Tool):
    """Drag one element onto another."""

    start_element: Element
    start_ref: Ref
    end_element: Element
    end_ref: Ref


@tool("browser")
class BrowserMouseClickXy(Tool):
    """Click at a point of the page as it is seen, for what has no reference: a canvas, a map, a game."""

    element: Element
    x: Point
    y: Point
    double_click: Annotated[bool, Param("Click twice.")] = False
    button: Annotated[Literal["left", "right", "middle"], Param("The mouse's button.")] = "left"


@tool("browser")
class BrowserMouseMoveXy(Tool):
    """Move the mouse to a point of the page as it is seen."""

    element: Element
    x: Point
    y: Point


@tool("browser")
class BrowserMouseDragXy(Tool):
    """Drag from one point of the page as it is seen to another."""

    element: Element
    start_x: Point
    start_y: Point
    end_x: Point
    end_y: Point


@tool("browser")
class BrowserMouseWheel(Tool):
    """Turn the mouse's wheel where the mouse is, which scrolls what is there."""

    delta_x: Annotated[float, Param("Pixels to the right.", ge=-10000, le=10000)] = 0.0
    delta_y: Annotated[float, Param("Pixels down.", ge=-10000, le=10000)] = 0.0


@tool("browser")
class BrowserPressKey(Tool):
    """Press a key or a combination, such as Enter, ArrowLeft, a or Control+a."""

    key: Annotated[str, Param("The key's name, or a character.", min_length=1)]


@tool("browser")
class BrowserFileUpload(Tool):
    """Choose files in the file chooser that a click has opened."""

    paths: Annotated[list[str], Param("Files of the workspace.")]


@tool("browser")
class BrowserHandleDialog(Tool):
    """Answer the open dialog (alert, confirm, prompt), which holds up the page."""

    accept: Annotated[bool, Param("Whether to accept it.")]
    prompt_text: Annotated[str | None, Param("The text for a prompt; none: the text that it offers.")] = None


@tool("browser")
class BrowserWaitFor(Tool):
    """Wait for a time, for a text to appear or to go; without any of these until the page has loaded."""

    time: Annotated[float | None, Param("Seconds.", ge=0, le=300)] = None
    text: Annotated[str | None, Param("The text to appear.")] = None
    text_gone: Annotated[str | None, Param("The text to go.")] = None
    timeout: Annotated[float, Param("The most seconds to wait for a text.", gt=0, le=300)] = 30.0


@tool("browser")
class BrowserTakeScreenshot(Tool):
    """Take a picture of the page as it is seen, or of one element."""

    raw: Annotated[bool, Param("PNG instead of JPEG.")] = False
    filename: Annotated[str, Param("Also save it in the workspace under this name.")] = ""
    element: Element = ""
    ref: Annotated[str, Param("The reference of the only element to show; empty for the page.")] = ""
    full_page: Annotated[bool, Param("The whole page, not just what is seen of it.")] = False


@tool("browser")
class BrowserPdfSave(Tool):
    """Save the page as a PDF in the workspace."""

    filename: Annotated[str, Param("The file's name; empty: page.pdf, or page-1.pdf and so on.")] = ""


@tool("browser")
class BrowserConsoleMessages(Tool):
    """List what the page wrote to its console since it was opened, and its uncaught errors."""


@tool("browser")
class BrowserNetworkRequests(Tool):
    """List what the page requested since it was opened, with each response's status."""


@tool("browser")
class BrowserEvaluate(Tool):
    """Run a JavaScript function in the page and return its result as JSON."""

    function: Annotated[str, Param("() => { ... }, or (element) => { ... } with a reference.", min_length=1)]
    element: Element = ""
    ref: Annotated[str, Param("The reference of the element that the function gets; empty for none.")] = ""


@tool("browser")
class BrowserResize(Tool):
    """Change the size of the page's view."""

    width: Pixels
    height: Pixels


@tool("browser")
class BrowserTabList(Tool):
    """List the open tabs."""


@tool("browser")
class BrowserTabNew(Tool):
    """Open a tab and make it the current one."""

    url: Annotated[str, Param("The URL to open in it; empty for a blank page.")] = ""


@tool("browser")
class BrowserTabSelect(Tool):
    """Make a tab the current one."""

    index: TabNumber


@tool("browser")
class BrowserTabClose(Tool):
    """Close a tab."""

    index: Annotated[int | None, Param("Its number; none: the current tab.")] = None


@tool("browser")
class BrowserClose(Tool):
    """Close the browser: its tabs are gone and its memory is free. Cookies and storage stay for the next start."""


@tool("browser")
class BrowserStorageState(Tool):
    """Save cookies and local storage, such as logins, to a file of the workspace."""

    filename: NewFile = "browser-state.json"


@tool("browser")
class BrowserSetStorageState(Tool):
    """Replace cookies and local storage by those that browser_storage_state has saved."""

    filename: NewFile = "browser-state.json"
