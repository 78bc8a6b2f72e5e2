"""Rights of files and folders that other users of the machine have."""

from pathlib import Path


def make_wide(*folders: Path) -> None:
    """Make folders as umask 022 does."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)


def list_wide(folder: Path) -> list[Path]:
    """List what others may use of a folder, itself and sockets included."""
    return [path for path in (folder, *folder.rglob("*")) if path.lstat().st_mode & 0o077 and not path.is_socket()]
