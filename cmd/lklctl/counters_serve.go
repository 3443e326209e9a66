// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/counters"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
)

// Limits of --listen: whoever scrapes must not be able to make work without end.
const (
	scrapesMax  = 4 // at once; others are told to come again
	scrapeLimit = 8 * time.Second
	headLimit   = 5 * time.Second
	headMax     = 8 << 10
)

// listenAddress completes a port, which is the loopback address's.
func listenAddress(text string) (string, error) {
	host, port := "", text
	var err error
	if strings.Contains(text, ":") {
		host, port, err = net.SplitHostPort(text)
	}
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", cli.Usagef("--listen %q: expected ADDRESS:PORT, or a port of the loopback address", text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// serve serves /metrics until ctx ends.
func (n *counting) serve(ctx context.Context) error {
	addr, err := listenAddress(n.listen)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return cli.Usagef("--listen: %v", err)
	}
	busy := make(chan struct{}, scrapesMax)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		default:
			http.Error(w, "too many at once", http.StatusServiceUnavailable)
			return
		}
		n.scrape(w, r)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "lklctl counters: /metrics\n") // gone: fine
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headLimit, ReadTimeout: headLimit, WriteTimeout: 2 * scrapeLimit, IdleTimeout: time.Minute, MaxHeaderBytes: headMax,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	fmt.Fprintf(n.stdout, "http://%s/metrics\n", l.Addr())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // it has no state to lose
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--listen %s: %w", addr, err)
	}
	return nil
}

// scrape writes the counters of all instances. One that does not answer is left
// out, and told of: its stack may just be starting or ending.
func (n *counting) scrape(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeLimit)
	defer cancel()
	all, err := n.place.List()
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
	for i := range all {
		if all[i].Running {
			asked++
			go func() {
				set, err := readOf(ctx, &all[i])
				answers <- answer{all[i].Name, set, err}
			}()
		}
	}
	sets := map[string]counters.Set{}
	for range asked {
		if a := <-answers; a.err == nil {
			sets[a.name] = a.set
		} else {
			cli.Note(n.stderr, program, "instance %q: %v", a.name, a.err)
		}
	}
	var read []counters.Instance
	for i := range all { // in their order
		if set, ok := sets[all[i].Name]; ok {
			read = append(read, counters.Instance{Name: all[i].Name, Set: set})
		}
	}
	w.Header().Set("Content-Type", counters.PrometheusType)
	_ = counters.WritePrometheus(w, read) // it reads no more: fine
}

// readOf reads the counters of one instance.
func readOf(ctx context.Context, info *instance.Info) (counters.Set, error) {
	conn, err := stackconn.Dial(ctx, info.Socket())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return counters.Read(ctx, conn)
}
