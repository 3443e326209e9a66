// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
)

// Ended is the event for an instance that sends no more snapshots.
type Ended struct {
	Instance string `json:"instance"` // name of the instance
	Reason   string `json:"reason"`   // last error of the instance, or the reason why it could not be reached
}

// subject returns the instance that a request is about; ok is false if the request has
// been answered with an error.
func subject(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	name = r.URL.Query().Get("instance")
	if name == "" {
		return "", true
	}
	if err := instance.CheckName(name); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return "", false
	}
	return name, true
}

// events serves the event stream of a page. It sends "instances" (a list of Instance) at
// the start and after changes, "snapshot" of the requested instance each second, and
// "ended" (an Ended) when there are no more snapshots. If another instance of that name
// starts, the stream continues with it. If the request names no instance, the stream
// sends "overview" (an Overview) each second instead of "snapshot".
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	name, ok := subject(w, r)
	if !ok {
		return
	}
	out, done := begin(w, s.streams)
	if out == nil {
		return
	}
	defer done()
	f := follower{server: s, out: out, name: name}
	defer f.leave()
	_ = f.follow(r.Context())
}

// A follower is one page's stream.
type follower struct {
	server *Server
	out    *stream
	name   string   // the requested instance; empty: all of them
	listed []byte   // last list sent to the page
	failed string   // last error of the instance sent to the page
	watch  *watcher // nil: the instance sends no snapshots
}

func (f *follower) leave() {
	if f.watch != nil {
		f.server.hubs.leave(f.name, f.watch)
		f.watch = nil
	}
}

// follow writes events until the client disconnects.
func (f *follower) follow(ctx context.Context) error {
	look := time.NewTicker(f.server.every)
	defer look.Stop()
	if err := f.look(); err != nil {
		return err
	}
	for {
		var newest <-chan []byte
		var ended <-chan struct{}
		if f.watch != nil {
			newest, ended = f.watch.newest, f.watch.ended
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case text := <-newest:
			f.failed = ""
			event := "snapshot"
			if f.name == "" {
				event = "overview"
			}
			err = f.out.send(event, text)
		case <-ended:
			reason := f.watch.err.Error()
			f.leave()
			err = f.end(reason)
		case <-look.C:
			err = f.look()
		case <-f.out.idle.C:
			err = f.out.alive()
		}
		if err != nil {
			return err
		}
	}
}

// look lists the instances, and watches the requested one.
func (f *follower) look() error {
	list, err := f.server.running()
	if err != nil {
		return f.end(err.Error())
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if !bytes.Equal(text, f.listed) {
		f.listed = text
		if err := f.out.send("instances", text); err != nil {
			return err
		}
	}
	there := f.name == "" || slices.ContainsFunc(list, func(i Instance) bool { return i.Name == f.name })
	switch {
	case f.watch != nil:
	case there:
		f.watch = f.server.hubs.join(f.name)
	default:
		return f.end("it is not running")
	}
	return nil
}

// end sends the reason why there are no snapshots, once.
func (f *follower) end(reason string) error {
	if reason == f.failed {
		return nil
	}
	f.failed = reason
	text, err := json.Marshal(Ended{f.name, reason})
	if err != nil {
		return err
	}
	return f.out.send("ended", text)
}
