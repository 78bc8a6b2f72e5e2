from pathlib import Path

from services.tools.catalogue.catalogue import Catalogue


def read_catalogue(folder: Path) -> Catalogue:
    catalogue = Catalogue(folder)
    catalogue.reload()
    return catalogue
