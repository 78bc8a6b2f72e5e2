"""Permissions of other users of the machine on files and folders."""

from pathlib import Path


def make_wide(*folders: Path) -> None:
    """Make folders with the permissions of umask 022."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)


def list_wide(folder: Path) -> list[Path]:
    """List the paths in a folder, and the folder itself, that other users may access; sockets do not count."""
    return [path for path in (folder, *folder.rglob("*")) if path.lstat().st_mode & 0o077 and not path.is_socket()]
