// Addresses of the page: the history API of the browser, without reloads.

import { h } from 'preact'
import type { AnchorHTMLAttributes, ComponentChildren, VNode } from 'preact'
import { useLayoutEffect, useState } from 'preact/hooks'

export interface Route {
  path: string
  query: URLSearchParams
}

const listeners = new Set<() => void>()

export function currentRoute(): Route {
  return { path: location.pathname, query: new URLSearchParams(location.search) }
}

function changed(): void {
  for (const listener of listeners) listener()
}

if (typeof window !== 'undefined') window.addEventListener('popstate', changed)

export function navigate(path: string, { replace = false } = {}): void {
  if (path === location.pathname + location.search) return
  const leaves = new URL(path, location.href).pathname !== location.pathname
  if (replace) history.replaceState(null, '', path)
  else history.pushState(null, '', path)
  if (leaves) document.querySelector('main')?.scrollTo(0, 0)
  changed()
}

// Changes parameters of the present address; an empty value removes one. Filters are not steps of the history.
export function setQuery(values: Record<string, string | null>, { replace = true } = {}): void {
  const query = new URLSearchParams(location.search)
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === '') query.delete(name)
    else query.set(name, value)
  }
  const text = query.toString()
  navigate(location.pathname + (text ? `?${text}` : ''), { replace })
}

export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute)
  useLayoutEffect(() => { // an effect would miss a change before the first paint
    const listener = () => setRoute(currentRoute())
    listeners.add(listener)
    return () => void listeners.delete(listener)
  }, [])
  return route
}

type LinkProps = AnchorHTMLAttributes<HTMLAnchorElement> & { to: string; children?: ComponentChildren }

export function Link({ to, onClick, ...rest }: LinkProps): VNode {
  const follow = (event: MouseEvent & { currentTarget: HTMLAnchorElement }) => {
    ;(onClick as ((event: MouseEvent) => void) | undefined)?.(event)
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey
    if (!plain || event.defaultPrevented) return
    event.preventDefault()
    navigate(to)
  }
  return h('a', { ...rest, href: to, onClick: follow as never }) as VNode
}
