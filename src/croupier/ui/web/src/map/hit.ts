// Which card is at a point, which are in a rectangle, and which is next in a direction. Arithmetic, no DOM.

import { cellBox } from './layout.ts'
import type { Box, Layout, Shelf, Tile } from './layout.ts'

export interface Place {
  tile: number
  index: number
}

function shelfAt(layout: Layout, y: number): Shelf | undefined {
  let low = 0
  let high = layout.shelves.length - 1
  while (low <= high) {
    const middle = (low + high) >> 1
    const shelf = layout.shelves[middle]!
    if (y < shelf.y) high = middle - 1
    else if (y >= shelf.y + shelf.height) low = middle + 1
    else return shelf
  }
  return undefined
}

// The last tile of the shelf that starts at or before x.
function tileBefore(layout: Layout, shelf: Shelf, x: number): number {
  let low = shelf.first
  let high = shelf.end - 1
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if (layout.tiles[middle]!.x <= x) low = middle
    else high = middle - 1
  }
  return low
}

export function tileAt(layout: Layout, x: number, y: number): number | null {
  const shelf = shelfAt(layout, y)
  if (!shelf) return null
  const index = tileBefore(layout, shelf, x)
  const tile = layout.tiles[index]!
  const inside = x >= tile.x && x < tile.x + tile.width && y >= tile.y && y < tile.y + tile.height
  return inside ? index : null
}

export function hit(layout: Layout, x: number, y: number): Place | null {
  const found = tileAt(layout, x, y)
  if (found === null) return null
  const tile = layout.tiles[found]!
  if (layout.perNode) return { tile: found, index: 0 }
  if (y < tile.y + tile.header) return null
  const column = Math.floor((x - tile.x) / layout.cellWidth)
  const row = Math.floor((y - tile.y - tile.header) / layout.cellHeight)
  const index = row * tile.columns + column
  return index < tile.cards.length ? { tile: found, index } : null
}

// A cell without its border touches the rectangle.
function touches(cell: Box, box: Box): boolean {
  return cell.x < box.x + box.width && cell.x + cell.width > box.x && cell.y < box.y + box.height && cell.y + cell.height > box.y
}

export function within(layout: Layout, box: Box): string[] {
  const cards: string[] = []
  for (const shelf of layout.shelves) {
    if (shelf.y > box.y + box.height || shelf.y + shelf.height < box.y) continue
    for (let number = shelf.first; number < shelf.end; number++) {
      const tile = layout.tiles[number]!
      if (!touches(tile, box)) continue
      if (layout.perNode) cards.push(...tile.cards)
      else cards.push(...tile.cards.filter((_, index) => touches(cellBox(layout, tile, index), box)))
    }
  }
  return cards
}

export type Direction = 'left' | 'right' | 'up' | 'down'

function nearestTile(layout: Layout, shelf: Shelf, x: number): number {
  const before = tileBefore(layout, shelf, x)
  const after = Math.min(before + 1, shelf.end - 1)
  const distance = (number: number) => {
    const tile = layout.tiles[number]!
    return Math.max(tile.x - x, x - (tile.x + tile.width), 0)
  }
  return distance(after) < distance(before) ? after : before
}

function cellIn(tile: Tile, layout: Layout, x: number, last: boolean): number {
  if (layout.perNode) return 0
  const column = Math.max(0, Math.min(tile.columns - 1, Math.floor((x - tile.x) / layout.cellWidth)))
  const row = last ? tile.rows - 1 : 0
  return Math.min(row * tile.columns + column, tile.cards.length - 1)
}

function sideways(layout: Layout, from: Place, step: number): Place {
  const tile = layout.tiles[from.tile]!
  const index = from.index + step
  const cells = layout.perNode ? 1 : tile.cards.length
  if (index >= 0 && index < cells) return { tile: from.tile, index }
  const next = layout.tiles[from.tile + step]
  if (!next) return from
  return { tile: from.tile + step, index: step > 0 || layout.perNode ? 0 : next.cards.length - 1 }
}

export function neighbour(layout: Layout, from: Place, direction: Direction): Place {
  if (direction === 'left' || direction === 'right') return sideways(layout, from, direction === 'right' ? 1 : -1)
  const tile = layout.tiles[from.tile]!
  const down = direction === 'down'
  if (!layout.perNode) {
    const index = from.index + (down ? tile.columns : -tile.columns)
    if (index >= 0 && index < tile.cards.length) return { tile: from.tile, index }
  }
  const current = layout.shelves.findIndex((shelf) => from.tile >= shelf.first && from.tile < shelf.end)
  const shelf = layout.shelves[current + (down ? 1 : -1)]
  if (!shelf) return from
  const cell = cellBox(layout, tile, from.index)
  const x = cell.x + cell.width / 2
  const number = nearestTile(layout, shelf, x)
  return { tile: number, index: cellIn(layout.tiles[number]!, layout, x, !down) }
}

export function find(layout: Layout, card: string): Place | null {
  for (const [number, tile] of layout.tiles.entries()) {
    const index = tile.cards.indexOf(card)
    if (index !== -1) return { tile: number, index: layout.perNode ? 0 : index }
  }
  return null
}
