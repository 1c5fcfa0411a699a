// Keeps the live store current: two parts of a snapshot, then deltas.
//
// A browser allows six connections to a server of HTTP/1.1, so the tabs share one stream: the tab that holds the Web
// Lock reads it, and passes every event on through a BroadcastChannel. A follower asks the reader for the deltas since
// its own snapshot. A tab that hears nothing opens a stream of its own.

import { ApiError, get } from './api.ts'
import { apply, load } from './fold.ts'
import { beat, folded, liveStatus, liveStore, setStatus } from './model.ts'
import type { Status } from './model.ts'
import type { Delta, Snapshot } from './wire.ts'

interface Beat {
  at: number
  contact: number
}

type Message =
  | { kind: 'delta'; process: string; delta: Delta }
  | { kind: 'beat'; process: string; beat: Beat }
  | { kind: 'status'; status: Status }
  | { kind: 'since'; process: string; seq: number; tab: string }
  | { kind: 'deltas'; tab: string; deltas: Delta[] | null }

const SILENCE = 12_000 // beats come every 5 s
const STALE = 15 // seconds without contact between server and API server
const DELAYS = [200, 500, 1000, 2000, 3000]
const CATCH_UP = 500 // the server sends the missed deltas at once
const KEPT = 300 // half a minute of deltas: a follower asks right after its snapshot

const tab = crypto.getRandomValues(new Uint32Array(2)).join('-')
const channel = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('croupier.stream')
const recent: Delta[] = [] // what this reader passed on, to answer followers
let recentFrom = Infinity // deltas above this seq are all in `recent`
let reading = false
let source: EventSource | null = null
let failures = 0
let lastEvent = 0
let asked = 0
let generation = 0
let complete = false // no delta since the snapshot is missing

const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds))

function tell(message: Message): void {
  channel?.postMessage(message)
}

function show(status: Status): void {
  setStatus(status)
  if (reading) tell({ kind: 'status', status })
}

function received(delta: Delta): void {
  folded(apply(liveStore(), delta))
}

function beaten(event: Beat): void {
  lastEvent = Date.now()
  beat(event.at, event.contact)
  show(event.at - event.contact > STALE ? 'cut off' : 'live')
}

// Fetches both parts; the first time the cards are shown before the names are there. Parts of two processes do not fit
// together: then both are fetched again.
async function snapshot(): Promise<void> {
  const store = liveStore()
  const mine = ++generation
  const first = store.process === ''
  const cards = await get<Snapshot>('/api/v1/snapshot?part=cards')
  if (mine !== generation) return
  if (first) folded(load(store, cards))
  const names = await get<Snapshot>('/api/v1/snapshot?part=names')
  if (mine !== generation) return
  if (names.process !== cards.process) return snapshot()
  if (!first) {
    store.floors = {}
    folded(load(store, cards))
  }
  folded(load(store, names))
  complete = false
}

async function snapshotUntilItWorks(): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await snapshot()
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) await signedIn()
      else {
        show('cut off')
        await sleep(DELAYS[Math.min(attempt, DELAYS.length - 1)]!)
      }
    }
  }
}

// Waits until the login page was left.
async function signedIn(): Promise<void> {
  do await sleep(500)
  while (location.pathname === '/login')
}

function keep(delta: Delta): void {
  recent.push(delta)
  if (recent.length > KEPT) recentFrom = recent.shift()!.seq
}

function connect(): void {
  const store = liveStore()
  source?.close()
  if (!complete) store.seq = Math.min(...Object.values(store.floors)) // other tabs may have told of later deltas
  complete = true
  recent.length = 0
  recentFrom = store.seq
  const stream = new EventSource(`/api/v1/stream?after=${encodeURIComponent(`${store.process}.${store.seq}`)}`)
  source = stream
  lastEvent = Date.now()
  show('catching up')
  stream.onopen = () => {
    lastEvent = Date.now()
    failures = 0
    setTimeout(() => source === stream && liveStatus() === 'catching up' && show('live'), CATCH_UP)
  }
  stream.addEventListener('delta', (event) => {
    lastEvent = Date.now()
    const delta = JSON.parse((event as MessageEvent<string>).data) as Delta
    keep(delta)
    received(delta)
    tell({ kind: 'delta', process: store.process, delta })
  })
  stream.addEventListener('beat', (event) => {
    const data = JSON.parse((event as MessageEvent<string>).data) as Beat
    beaten(data)
    tell({ kind: 'beat', process: store.process, beat: data })
  })
  stream.addEventListener('reset', () => {
    stream.close()
    void resync()
  })
  stream.onerror = () => {
    stream.close()
    if (source === stream) void reconnect()
  }
}

async function resync(): Promise<void> {
  source = null
  show('catching up')
  if (failures > 0) await sleep(DELAYS[Math.min(failures, DELAYS.length) - 1]!)
  failures++ // a server that answers every connection with reset is asked less often
  await snapshotUntilItWorks()
  connect()
}

async function reconnect(): Promise<void> {
  source = null
  show('cut off')
  await sleep(DELAYS[Math.min(failures, DELAYS.length - 1)]!)
  failures++
  if (failures % 3 === 2) {
    // EventSource does not say why it failed; a question does.
    try {
      await get('/api/v1/me')
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) await signedIn()
    }
  }
  if (source === null && reading) connect()
}

function watch(): void {
  setInterval(() => {
    const silence = Date.now() - lastEvent
    if (silence < SILENCE || liveStatus() === 'loading') return
    if (!reading) {
      read() // the tab that should read is frozen
    } else if (source !== null) {
      source.close()
      void reconnect()
    }
  }, 1000)
}

// From now on this tab reads the stream itself.
function read(): void {
  if (reading) return
  reading = true
  connect()
}

function askReader(): void {
  const store = liveStore()
  asked = Date.now()
  tell({ kind: 'since', process: store.process, seq: Math.min(...Object.values(store.floors)), tab })
  const request = asked
  setTimeout(() => {
    if (asked === request && !reading) read() // no answer
  }, 1500)
}

function answerSince(message: { process: string; seq: number; tab: string }): void {
  if (!reading || source === null) return
  const known = message.process === liveStore().process && message.seq >= recentFrom
  tell({ kind: 'deltas', tab: message.tab, deltas: known ? recent.filter((delta) => delta.seq > message.seq) : null })
  tell({ kind: 'status', status: liveStatus() })
}

function heard(message: Message): void {
  if (message.kind === 'since') return answerSince(message)
  if (reading) return
  const store = liveStore()
  switch (message.kind) {
    case 'delta':
    case 'beat':
      if (message.process !== store.process) {
        if (store.process !== '' && asked === 0) {
          asked = Date.now()
          void snapshotUntilItWorks().then(askReader)
        }
        return
      }
      lastEvent = Date.now()
      if (message.kind === 'delta') received(message.delta)
      else beaten(message.beat)
      return
    case 'status':
      if (liveStatus() !== 'loading') setStatus(message.status)
      return
    case 'deltas':
      if (message.tab !== tab) return
      asked = 0
      lastEvent = Date.now()
      if (message.deltas === null) return read()
      message.deltas.forEach(received)
      complete = true
      if (liveStatus() === 'loading') setStatus('catching up')
  }
}

export async function start(): Promise<void> {
  if (channel) channel.onmessage = (event: MessageEvent<Message>) => heard(event.data)
  await snapshotUntilItWorks()
  lastEvent = Date.now()
  watch()
  window.addEventListener('online', () => {
    if (reading && source === null) connect()
  })
  if (!channel || !navigator.locks) return read()
  let granted = false
  void navigator.locks.request('croupier.stream', () => {
    granted = true
    read()
    return new Promise(() => {}) // held until the tab closes
  })
  await sleep(50)
  if (!granted && !reading) {
    setStatus('catching up')
    askReader()
  }
}
