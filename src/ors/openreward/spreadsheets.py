"""The toolset of openreward for spreadsheets: openpyxl, by the Python of the sandbox."""

import json
from shlex import quote
from typing import Any, Literal

from ors.environment import tool
from ors.openreward.environments import Toolset
from ors.types import TextBlock, ToolOutput

BEGIN = """
import csv, json, sys
a = json.loads(sys.argv[1])
path, name = a["path"], a.get("sheet_name")
def opened():
    from openpyxl import load_workbook
    book = load_workbook(path)
    if name is not None and name not in book.sheetnames and not a.get("new"):
        raise KeyError(f"no sheet {name!r}; there are {book.sheetnames}")
    return book, book[name] if name in book.sheetnames else None
def cut(rows):
    return [[str(cell) if cell is not None else "" for cell in row][:a["cols"]] for row in rows][:a["rows"]]
"""
END = 'print(json.dumps({"sheets": book.sheetnames}))'
CHART = """
from openpyxl import chart
from openpyxl.chart import Reference
book, sheet = opened()
kind = a["chart_type"]
made = getattr(chart, {"column": "Bar"}.get(kind, kind.capitalize()) + "Chart")()
if kind in ("bar", "column"):
    made.type = {"bar": "bar", "column": "col"}[kind]
made.title = a["title"]
if kind != "pie":
    made.x_axis.title, made.y_axis.title = a["x_axis_title"], a["y_axis_title"]
made.add_data(Reference(sheet, range_string=f"'{name}'!{a['data_range']}"), titles_from_data=True)
sheet.add_chart(made, a["chart_position"])
book.save(path)
"""


class ExcelToolset(Toolset):
    """Creates, reads and changes spreadsheets in the sandbox, whose Python has openpyxl."""

    async def _do(self, lines: str, path: str, **arguments: Any) -> ToolOutput:
        given = quote(json.dumps({"path": path, **arguments}))
        command = f"python3 -c {quote(BEGIN + lines)} {given} 2>&1"
        output, code = await self.sandbox.run(command, max_bytes=1_000_000)
        if code:
            error = output.rpartition("\n")[2]
            return ToolOutput([TextBlock(f"Error: {error}")], metadata={"error": error}, reward=0.0)
        return ToolOutput([TextBlock(output)], metadata=json.loads(output), reward=0.0)

    @tool
    async def excel_create_spreadsheet(self, file_path: str, sheet_name: str = "Sheet1") -> ToolOutput:
        """Create a new Excel workbook with an initial worksheet."""
        make = "from openpyxl import Workbook\nbook = Workbook()\nbook.active.title = name\nbook.save(path)\n"
        return await self._do(make + END, file_path, sheet_name=sheet_name)

    @tool
    async def excel_delete_spreadsheet(self, file_path: str) -> ToolOutput:
        """Delete an Excel spreadsheet."""
        return await self._do('import os\nos.remove(path)\nprint(json.dumps({"deleted": path}))', file_path)

    @tool
    async def excel_list_tabs_in_spreadsheet(self, file_path: str) -> ToolOutput:
        """List the worksheets of a workbook."""
        return await self._do(f"book, _ = opened()\n{END}", file_path)

    @tool
    async def excel_add_tab(self, file_path: str, sheet_name: str, position: int | None = None) -> ToolOutput:
        """Add a worksheet, at the end or at a position from 0."""
        add = "book, _ = opened()\nbook.create_sheet(name, a['position'])\nbook.save(path)\n"
        return await self._do(add + END, file_path, sheet_name=sheet_name, position=position, new=True)

    @tool
    async def excel_delete_tab(self, file_path: str, sheet_name: str) -> ToolOutput:
        """Remove a worksheet."""
        remove = "book, sheet = opened()\nbook.remove(sheet)\nbook.save(path)\n"
        return await self._do(remove + END, file_path, sheet_name=sheet_name)

    @tool
    async def excel_read_tab(
        self, file_path: str, sheet_name: str, max_rows: int | None = None, max_cols: int | None = None
    ) -> ToolOutput:
        """Read the cells of a worksheet."""
        read = 'book, sheet = opened()\nprint(json.dumps({"data": cut(sheet.values)}))'
        return await self._do(read, file_path, sheet_name=sheet_name, rows=max_rows, cols=max_cols)

    @tool
    async def excel_read_csv(self, csv_path: str, max_rows: int | None = None) -> ToolOutput:
        """Read a CSV file."""
        read = 'print(json.dumps({"data": cut(csv.reader(open(path, newline="")))}))'
        return await self._do(read, csv_path, rows=max_rows, cols=None)

    @tool
    async def excel_edit_spreadsheet(
        self, file_path: str, sheet_name: str, cell_reference: str, value: str | int | float
    ) -> ToolOutput:
        """Write a value, or a formula, to a cell."""
        return await self.excel_add_content_text(file_path, sheet_name, cell_reference, [[value]])

    @tool
    async def excel_add_content_text(
        self, file_path: str, sheet_name: str, start_cell: str, data: list[list[Any]]
    ) -> ToolOutput:
        """Write rows of values, from a cell on."""
        write = (
            "book, sheet = opened()\nfirst = sheet[a['start_cell']]\n"
            "for y, row in enumerate(a['data']):\n    for x, value in enumerate(row):\n"
            "        sheet.cell(first.row + y, first.column + x).value = value\nbook.save(path)\n"
        )
        return await self._do(write + END, file_path, sheet_name=sheet_name, start_cell=start_cell, data=data)

    @tool
    async def excel_delete_content_cell(
        self, file_path: str, sheet_name: str, cell_reference: str
    ) -> ToolOutput:
        """Clear a cell."""
        return await self.excel_add_content_text(file_path, sheet_name, cell_reference, [[None]])

    @tool
    async def excel_create_chart(
        self,
        file_path: str,
        sheet_name: str,
        chart_type: Literal["bar", "column", "line", "pie", "scatter", "area"],
        data_range: str,
        chart_position: str,
        title: str | None = None,
        x_axis_title: str | None = None,
        y_axis_title: str | None = None,
    ) -> ToolOutput:
        """Draw a chart of a range of cells."""
        what = {"chart_type": chart_type, "data_range": data_range, "chart_position": chart_position}
        titles = {"title": title, "x_axis_title": x_axis_title, "y_axis_title": y_axis_title}
        return await self._do(CHART + END, file_path, sheet_name=sheet_name, **what, **titles)
