"""`croupier lab own-image`: Croupier itself as an image, without Docker."""

from pathlib import Path
from typing import Annotated

import typer

from croupier.cli import terminal


def own_image(
    tag: Annotated[
        str, typer.Option("--tag", "-t", metavar="NAME[:TAG]", help="What pods call the image.")
    ] = "",
    name: Annotated[str, typer.Option(help="The lab whose real node gets the image.")] = "default",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the archive, load nothing."),
    ] = None,
) -> None:
    """Build the image of every process of Croupier and load it into a lab's real node (as root).

    \b
    croupier lab own-image
    croupier lab own-image -o croupier.tar
    """
    import asyncio
    import tempfile
    from importlib import metadata

    from croupier.cli.lab_image import loading
    from croupier.lab import own_image as building
    from croupier.lab import places

    called = tag or f"{building.TAG}:{metadata.version('croupier')}"
    show = terminal.progress()

    async def build(archive: Path) -> str:
        return (await building.build(archive, places.cache(), show, tag=called)).tag

    if output is not None:
        typer.echo(f"Wrote {asyncio.run(build(output))} to {output}.")
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "image.tar")
        told = asyncio.run(loading(name, archive, build))
    typer.echo(f"Loaded {told} into the real node of lab {name}.")
