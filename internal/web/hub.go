// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// hubs has a hub for each instance that somebody looks at.
type hubs struct {
	open  func(ctx context.Context, name string) (source, error)
	every time.Duration

	mu   sync.Mutex
	all  map[string]*hub
	over bool           // there will be no more
	work sync.WaitGroup // of their goroutines
}

func newHubs(open func(ctx context.Context, name string) (source, error), every time.Duration) *hubs {
	return &hubs{open: open, every: every, all: map[string]*hub{}}
}

// A hub asks one instance and tells all who look: it begins with the first of
// them and ends with the last, or with the instance.
type hub struct {
	stop     context.CancelFunc
	watchers map[*watcher]struct{} // under hubs.mu
}

// A watcher gets the snapshots of one instance: the newest one, when it comes
// for it too late for those before.
type watcher struct {
	newest chan []byte   // JSON; one place
	ended  chan struct{} // closed when there will be no more
	err    error         // why; to be read after that
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

// leave takes a watcher away, and with the last one its hub.
func (h *hubs) leave(name string, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.all[name]
	if !ok {
		return
	}
	if _, ok := b.watchers[w]; !ok {
		return // of a hub that has ended; there is another one now
	}
	delete(b.watchers, w)
	if len(b.watchers) == 0 {
		delete(h.all, name)
		b.stop()
	}
}

// end tells a hub's watchers that it is over.
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

// run asks the instance again and again until it gives no answer.
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
		h.tell(b, text)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// ask bounds a question to the stack.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return question(ctx)
}

// tell puts a snapshot where each watcher finds it, in the place of one that it
// has not come for.
func (h *hubs) tell(b *hub, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range b.watchers {
		select {
		case <-w.newest:
		default:
		}
		w.newest <- text // nobody else puts anything there
	}
}

// close ends all hubs and returns when they have.
func (h *hubs) close() {
	h.mu.Lock()
	h.over = true
	for _, b := range h.all {
		b.stop()
	}
	h.mu.Unlock()
	h.work.Wait()
}
