// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// hubs contains a hub for each instance that is watched. The hub of the name "" queries
// all instances.
type hubs struct {
	open  func(ctx context.Context, name string) (source, error)
	every time.Duration

	mu   sync.Mutex
	all  map[string]*hub
	over bool           // close was called; no more hubs start
	work sync.WaitGroup // goroutines of the hubs
}

func newHubs(open func(ctx context.Context, name string) (source, error), every time.Duration) *hubs {
	return &hubs{open: open, every: every, all: map[string]*hub{}}
}

// A hub queries one instance on behalf of all its watchers. It starts with the first
// watcher. It ends with the last watcher, or with the instance.
type hub struct {
	stop     context.CancelFunc
	watchers map[*watcher]struct{} // protected by hubs.mu
}

// A watcher receives the snapshots of one instance. If it is slow, it gets only the
// newest.
type watcher struct {
	newest chan []byte   // JSON; holds at most one snapshot
	ended  chan struct{} // closed after the last snapshot
	err    error         // reason of the end; valid after ended is closed
}

// join adds a watcher to an instance's hub.
func (h *hubs) join(name string) *watcher {
	w := &watcher{newest: make(chan []byte, 1), ended: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		w.err = context.Canceled
		close(w.ended)
		return w
	}
	b, ok := h.all[name]
	if !ok {
		ctx, stop := context.WithCancel(context.Background())
		b = &hub{stop: stop, watchers: map[*watcher]struct{}{}}
		h.all[name] = b
		h.work.Go(func() { h.end(name, b, h.run(ctx, name, b)) })
	}
	b.watchers[w] = struct{}{}
	return w
}

// leave removes a watcher. With the last watcher, it also ends the hub.
func (h *hubs) leave(name string, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.all[name]
	if !ok {
		return
	}
	if _, ok := b.watchers[w]; !ok {
		return // its hub has ended, and a new hub has replaced it
	}
	delete(b.watchers, w)
	if len(b.watchers) == 0 {
		delete(h.all, name)
		b.stop()
	}
}

// end tells a hub's watchers that it has ended.
func (h *hubs) end(name string, b *hub, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.stop()
	if h.all[name] == b {
		delete(h.all, name)
	}
	for w := range b.watchers {
		w.err = err
		close(w.ended)
	}
	b.watchers = nil
}

// run queries the instance repeatedly until a query fails.
func (h *hubs) run(ctx context.Context, name string, b *hub) error {
	source, err := ask(ctx, func(ctx context.Context) (source, error) { return h.open(ctx, name) })
	if err != nil {
		return err
	}
	defer source.Close()
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		value, err := ask(ctx, source.Snapshot)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("instance %q: %w", name, err)
		}
		h.publish(b, text)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ask performs a query to the stack with a timeout.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return question(ctx)
}

// publish stores a snapshot for each watcher. It replaces an earlier snapshot that the
// watcher has not read.
func (h *hubs) publish(b *hub, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range b.watchers {
		select {
		case <-w.newest:
		default:
		}
		w.newest <- text // there is no other sender
	}
}

// close ends all hubs and waits for them.
func (h *hubs) close() {
	h.mu.Lock()
	h.over = true
	for _, b := range h.all {
		b.stop()
	}
	h.mu.Unlock()
	h.work.Wait()
}
