// A table of any length: at most 40 rows are in the document, sorting and the filter are in the address.

import type { ComponentChildren } from 'preact'
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks'
import { number } from './format.ts'
import { t } from './i18n.ts'
import { setQuery, useRoute } from './router.ts'

export interface Column<Row> {
  id: string
  title: string
  cell: (row: Row) => ComponentChildren
  value?: (row: Row) => string | number | null | undefined // for sorting and the filter
  align?: 'right'
  wide?: boolean // takes the room that is left
}

export interface TableProps<Row> {
  columns: Column<Row>[]
  rows: Row[]
  keyOf: (row: Row) => string
  onOpen?: (row: Row) => void
  label: string
  name?: string // prefix of the parameters in the address, for several tables on a page
  sort?: string // column to sort by at first; with a minus: descending
  filter?: boolean // shows the field; default true for more than 10 rows
  selected?: ReadonlySet<string>
  onSelect?: (selected: Set<string>) => void
  empty?: ComponentChildren
}

const IN_DOM = 40
const ROW_HEIGHT = 32

const collator = new Intl.Collator(undefined, { numeric: true })

function compare(a: string | number | null | undefined, b: string | number | null | undefined): number {
  if (a === b) return 0
  if (a === null || a === undefined) return 1
  if (b === null || b === undefined) return -1
  if (typeof a === 'number' && typeof b === 'number') return a - b
  return collator.compare(String(a), String(b))
}

function arrange<Row>(props: TableProps<Row>, sort: string, filter: string): Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean)
  const valued = props.columns.filter((column) => column.value)
  let rows = props.rows
  if (words.length) {
    rows = rows.filter((row) => {
      const text = valued.map((column) => column.value!(row) ?? '').join(' ').toLowerCase()
      return words.every((word) => text.includes(word))
    })
  }
  const descending = sort.startsWith('-')
  const column = valued.find((one) => one.id === sort.replace(/^-/, ''))
  if (!column) return rows
  const sign = descending ? -1 : 1
  return [...rows].sort((a, b) => sign * compare(column.value!(a), column.value!(b)))
}

export function Table<Row>(props: TableProps<Row>) {
  const { query } = useRoute()
  const id = useId()
  const prefix = props.name ? `${props.name}.` : ''
  const sort = query.get(`${prefix}sort`) ?? props.sort ?? ''
  const filter = query.get(`${prefix}filter`) ?? ''
  const rows = useMemo(() => arrange(props, sort, filter), [props.rows, props.columns, sort, filter])
  const scroller = useRef<HTMLDivElement>(null)
  const [first, setFirst] = useState(0)
  const [focus, setFocus] = useState(0)
  const virtual = rows.length > IN_DOM
  const start = virtual ? Math.max(0, Math.min(first, rows.length - IN_DOM)) : 0
  const shown = rows.slice(start, start + IN_DOM)
  const focused = Math.min(focus, Math.max(0, rows.length - 1))
  const openable = props.onOpen !== undefined

  const scrolled = () => {
    const top = scroller.current?.scrollTop ?? 0
    setFirst(Math.max(0, Math.floor(top / ROW_HEIGHT) - 8))
  }
  const wanted = useRef(-1)
  useEffect(() => {
    if (wanted.current < 0) return
    const row = scroller.current?.querySelector<HTMLElement>(`tr[aria-rowindex="${wanted.current + 2}"]`)
    if (row) {
      row.focus()
      wanted.current = -1
    }
  })

  const moveTo = (place: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, place))
    setFocus(next)
    wanted.current = next
    const box = scroller.current
    if (box && virtual) {
      const top = next * ROW_HEIGHT
      if (top < box.scrollTop) box.scrollTop = top
      else if (top + 2 * ROW_HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + 3 * ROW_HEIGHT - box.clientHeight
      setFirst(Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - 8))
    }
  }
  const toggle = (key: string) => {
    const next = new Set(props.selected)
    if (!next.delete(key)) next.add(key)
    props.onSelect?.(next)
  }
  const keyDown = (event: KeyboardEvent) => {
    if ((event.target as HTMLElement).tagName !== 'TR') return
    const row = rows[focused]
    const steps: Record<string, number> = {
      ArrowDown: focused + 1, ArrowUp: focused - 1, PageDown: focused + 15, PageUp: focused - 15, Home: 0, End: rows.length - 1,
    }
    if (event.key in steps) moveTo(steps[event.key]!)
    else if (event.key === 'Enter' && row !== undefined) props.onOpen?.(row)
    else if (event.key === ' ' && row !== undefined && props.onSelect) toggle(props.keyOf(row))
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const sortBy = (column: Column<Row>) => {
    const next = sort === column.id ? `-${column.id}` : column.id
    setQuery({ [`${prefix}sort`]: next })
  }
  const everything = props.selected !== undefined && rows.length > 0 && rows.every((row) => props.selected!.has(props.keyOf(row)))
  const columns = props.columns.length + (props.onSelect ? 1 : 0)

  return (
    <div class="table">
      {(props.filter ?? props.rows.length > 10) && (
        <div class="table-tools">
          <label class="hidden" for={`${id}-filter`}>{t('Filter: {label}', { label: props.label })}</label>
          <input
            id={`${id}-filter`}
            type="search"
            value={filter}
            placeholder={t('Filter')}
            onInput={(event) => setQuery({ [`${prefix}filter`]: event.currentTarget.value })}
          />
          <span class="muted" aria-live="off">
            {rows.length === props.rows.length
              ? t('{n} row|{n} rows', { n: rows.length })
              : t('{shown} of {all} rows', { shown: number(rows.length), all: number(props.rows.length) })}
          </span>
        </div>
      )}
      {props.rows.length > 0 && <div
        class={virtual ? 'table-scroll virtual' : 'table-scroll'}
        ref={scroller}
        onScroll={virtual ? scrolled : undefined}
        tabIndex={openable || props.onSelect ? undefined : 0}
        role={openable || props.onSelect ? undefined : 'group'}
        aria-label={openable || props.onSelect ? undefined : props.label}
      >
        <table
          role={openable ? 'grid' : undefined}
          aria-label={props.label}
          aria-rowcount={rows.length + 1}
          onKeyDown={openable || props.onSelect ? keyDown : undefined}
        >
          <thead>
            <tr aria-rowindex={1}>
              {props.onSelect && (
                <th scope="col" class="check">
                  <input
                    type="checkbox"
                    checked={everything}
                    aria-label={t('Select all rows')}
                    onChange={() => props.onSelect!(everything ? new Set() : new Set(rows.map(props.keyOf)))}
                  />
                </th>
              )}
              {props.columns.map((column) => {
                const active = sort.replace(/^-/, '') === column.id
                const down = active && sort.startsWith('-')
                return (
                  <th
                    key={column.id}
                    scope="col"
                    class={`${column.align ?? ''} ${column.wide ? 'wide' : ''}`}
                    aria-sort={active ? (down ? 'descending' : 'ascending') : undefined}
                  >
                    {column.value ? (
                      <button type="button" class="sort" onClick={() => sortBy(column)}>
                        {column.title}
                        <span aria-hidden="true">{active ? (down ? ' ↓' : ' ↑') : ''}</span>
                      </button>
                    ) : (
                      column.title
                    )}
                  </th>
                )
              })}
            </tr>
          </thead>
          <tbody>
            {start > 0 && <Spacer rows={start} columns={columns} />}
            {shown.map((row, offset) => {
              const place = start + offset
              const key = props.keyOf(row)
              return (
                <tr
                  key={key}
                  aria-rowindex={place + 2}
                  aria-selected={props.onSelect && openable ? props.selected?.has(key) : undefined}
                  class={openable ? 'openable' : ''}
                  tabIndex={openable || props.onSelect ? (place === focused ? 0 : -1) : undefined}
                  onFocus={() => setFocus(place)}
                  onClick={
                    openable
                      ? (event) => {
                          if (!(event.target as HTMLElement).closest('a,button,input')) props.onOpen!(row)
                        }
                      : undefined
                  }
                >
                  {props.onSelect && (
                    <td class="check">
                      <input
                        type="checkbox"
                        checked={props.selected?.has(key) ?? false}
                        aria-label={t('Select {name}', { name: key })}
                        onChange={() => toggle(key)}
                      />
                    </td>
                  )}
                  {props.columns.map((column) => (
                    <td key={column.id} class={`${column.align ?? ''} ${column.wide ? 'wide' : ''}`}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              )
            })}
            {start + shown.length < rows.length && <Spacer rows={rows.length - start - shown.length} columns={columns} />}
          </tbody>
        </table>
      </div>}
      {rows.length === 0 && (
        <p class="empty">{props.rows.length ? t('No row matches the filter.') : (props.empty ?? t('Nothing to show.'))}</p>
      )}
    </div>
  )
}

function Spacer({ rows, columns }: { rows: number; columns: number }) {
  return (
    <tr aria-hidden="true" class="spacer">
      <td colSpan={columns} style={{ height: `${rows * ROW_HEIGHT}px` }} />
    </tr>
  )
}
