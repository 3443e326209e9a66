// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/counters/prom"
	"github.com/lklrun/lklrun/internal/diag/explain"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/ui/httpserve"
)

// Limits of --listen: a client must not be able to cause unlimited work.
const (
	scrapesMax  = 4 // simultaneous requests; further clients must retry
	scrapeLimit = 8 * time.Second
)

// serve serves metrics until ctx ends.
func (n *counting) serve(ctx context.Context) error {
	s := httpserve.New("lklctl counters", 2*scrapeLimit)
	if n.token != "" {
		if err := s.TakeToken(n.token); err != nil {
			return exit.Usagef("--token-file: %w", err)
		}
	}
	l, err := n.Call.Listen(ctx, n.listen, n.public)
	if err != nil {
		return err
	}
	fmt.Fprintln(n.Stdout, s.URL(l)+"metrics")
	return s.Serve(ctx, l, n.metrics())
}

func (n *counting) metrics() http.Handler {
	busy := make(chan struct{}, scrapesMax)
	mux := http.NewServeMux()
	m := meters{}
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		default:
			http.Error(w, "too many requests at once; try again", http.StatusServiceUnavailable)
			return
		}
		n.scrape(w, r, &m)
	})
	return mux
}

// scrape writes the counters of all instances. If an instance does not answer,
// because its stack is starting or ending, scrape omits the instance and reports
// it.
func (n *counting) scrape(w http.ResponseWriter, r *http.Request, m *meters) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeLimit)
	defer cancel()
	all, err := n.Place.List()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	type answer struct {
		name string
		set  counters.Set
		err  error
	}
	answers := make(chan answer, len(all))
	asked := 0
	m.keep(all)
	for i := range all {
		if all[i].Running {
			asked++
			go func() {
				set, err := readOf(ctx, &all[i], m.of(&all[i]))
				answers <- answer{all[i].Name, set, err}
			}()
		}
	}
	sets := map[string]counters.Set{}
	for range asked {
		if a := <-answers; a.err == nil {
			sets[a.name] = a.set
		} else {
			cli.Note(n.Stderr, verb.Program, "instance %q: %v", a.name, a.err)
		}
	}
	var read []prom.Instance
	for i := range all { // keep the order of the instances
		if set, ok := sets[all[i].Name]; ok {
			read = append(read, prom.Instance{Name: all[i].Name, Pod: all[i].Pod, Set: set})
		}
	}
	w.Header().Set("Content-Type", prom.ContentType)
	_ = prom.Write(w, read) // fails if the client has disconnected
}

// readOf reads the counters of one instance.
func readOf(ctx context.Context, info *instance.Info, m *meter) (counters.Set, error) {
	conn, err := stackconn.Dial(ctx, info.Socket())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	all, err := readCounters(ctx, conn)
	if err != nil {
		return nil, err
	}
	some, err := m.read(ctx, conn, info)
	return append(all, some...), err
}

// meters are those of the instances, between scrapes. A meter belongs to one start of an
// instance.
type meters struct {
	mu  sync.Mutex
	all map[string]*meter
}

type meter struct {
	mu sync.Mutex
	explain.Meter
}

func meterKey(info *instance.Info) string { return info.Name + " " + info.Started.String() }

// keep forgets the meters of other instances.
func (m *meters) keep(instances []instance.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := m.all
	m.all = map[string]*meter{}
	for i := range instances {
		if key := meterKey(&instances[i]); had[key] != nil {
			m.all[key] = had[key]
		}
	}
}

func (m *meters) of(info *instance.Info) *meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := meterKey(info)
	if m.all[key] == nil {
		m.all[key] = &meter{}
	}
	return m.all[key]
}

// read takes a reading, and returns the counters of connections.
func (m *meter) read(ctx context.Context, conn *stackconn.Conn, info *instance.Info) (_ counters.Set, err error) {
	w, err := explain.NewWatcher(ctx, conn, info)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := w.Close(); err == nil {
			err = cerr
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := w.Read(ctx)
	if err != nil {
		return nil, err
	}
	return m.Add(r), nil
}
