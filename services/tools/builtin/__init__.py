"""Every installation has these tools."""

from services.tools.builtin import (
    bash,
    city_datetime,
    deep_search,
    edit_file,
    fetch_web,
    grep,
    list_files,
    mock_city_weather,
    python,
    read_file,
    report,
    web_search,
    write_file,
)
from services.tools.toolkit.tool import Tool

BUILTIN: tuple[Tool, ...] = (
    bash.TOOL,
    city_datetime.TOOL,
    deep_search.TOOL,
    edit_file.TOOL,
    fetch_web.TOOL,
    grep.TOOL,
    list_files.TOOL,
    mock_city_weather.TOOL,
    python.TOOL,
    read_file.TOOL,
    report.TOOL,
    web_search.TOOL,
    write_file.TOOL,
)
