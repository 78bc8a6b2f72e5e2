"""The tools that every installation has, one file each."""

from services.tools.builtin import (
    bash,
    city_datetime,
    list_files,
    mock_city_weather,
    read_file,
    write_file,
)
from services.tools.tool import Tool

BUILTIN: tuple[Tool, ...] = (
    bash.TOOL,
    city_datetime.TOOL,
    list_files.TOOL,
    mock_city_weather.TOOL,
    read_file.TOOL,
    write_file.TOOL,
)
