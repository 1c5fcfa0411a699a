"""`croupier lab own-image`: build the Croupier image without Docker."""

from pathlib import Path
from typing import Annotated

import typer

from croupier_lab.cli import arguments


def own_image(
    tag: Annotated[
        str, typer.Option("--tag", "-t", metavar="NAME[:TAG]", help="Name of the image in pods.")
    ] = "",
    name: arguments.Name = "default",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Only write the archive."),
    ] = None,
) -> None:
    """Build the Croupier image and load it into a lab's real node (requires root).

    \b
    croupier lab own-image
    croupier lab own-image -o croupier.tar
    """
    import asyncio
    import tempfile
    from importlib import metadata

    from croupier_lab import own_image as building
    from croupier_lab import progress, user_dirs
    from croupier_lab.cli.image import create_and_load

    image_tag = tag or f"{building.TAG}:{metadata.version('croupier')}"
    show = progress.to_stderr()

    async def build(archive: Path) -> str:
        return (await building.build(archive, user_dirs.cache(), show, tag=image_tag)).tag

    if output is not None:
        typer.echo(f"Wrote {asyncio.run(build(output))} to {output}.")
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "image.tar")
        loaded_tag = asyncio.run(create_and_load(name, archive, build))
    typer.echo(f"Loaded {loaded_tag} into the real node of lab {name}.")
