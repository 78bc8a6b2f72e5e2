"""Built-in tools, available in every installation."""

from services.tools.builtin.cities import CITY_DATETIME, MOCK_CITY_WEATHER
from services.tools.builtin.commands import BASH, PYTHON
from services.tools.builtin.deep_search import DEEP_SEARCH
from services.tools.builtin.edit_file import EDIT_FILE
from services.tools.builtin.files import LIST_FILES, READ_FILE, WRITE_FILE
from services.tools.builtin.grep import GREP
from services.tools.builtin.report import REPORT
from services.tools.builtin.web import FETCH_WEB, WEB_SEARCH
from services.tools.toolkit.tool import Tool

BUILTIN: tuple[Tool, ...] = (
    *(BASH, CITY_DATETIME, DEEP_SEARCH, EDIT_FILE, FETCH_WEB, GREP, LIST_FILES, MOCK_CITY_WEATHER, PYTHON),
    *(READ_FILE, REPORT, WEB_SEARCH, WRITE_FILE),
)
