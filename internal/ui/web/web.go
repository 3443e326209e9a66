// SPDX-License-Identifier: Apache-2.0

// Package web serves the live view as a web page: it shows the instances of this user and
// the wires between them, the values of one instance each second, and the packets of a
// connection.
//
// internal/ui/httpserve controls access. No request changes anything in a stack.
package web

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/ui/httpserve"
	"github.com/lklrun/lklrun/pkg/capture"
)

// page contains the files for the browser. They need no build step and load nothing
// from other servers.
//
//go:embed page
var page embed.FS

// Limits for clients.
const (
	maxStreams = 16               // simultaneous event streams; further ones are rejected
	askLimit   = 10 * time.Second // timeout for one snapshot
	writeLimit = 10 * time.Second // time for the client to read one event
	heartbeat  = 15 * time.Second // interval of keepalives on an idle stream
)

// Server serves the page and its data. Make it with New.
type Server struct {
	*httpserve.Server
	list  func() ([]instance.Info, error)
	every time.Duration // interval between snapshots, and between checks of the instances
	files http.Handler
	hubs  *hubs
	views views

	capture func(ctx context.Context, name string, take capture.Take, h capture.Handler) error

	streams, captures *semaphore.Weighted
}

// New makes a server, with a new token, for the instances that list returns.
func New(list func() ([]instance.Info, error), attach Attach) *Server {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // cannot happen: the folder is embedded
	}
	return &Server{
		Server:  httpserve.New("lklctl web", writeLimit),
		list:    list,
		every:   time.Second,
		files:   http.FileServerFS(files),
		hubs:    newHubs(attach.openAny(list), time.Second),
		capture: attach.capture,
		streams: semaphore.NewWeighted(maxStreams), captures: semaphore.NewWeighted(maxCaptures),
	}
}

// Serve answers requests on l until ctx is done. It then stops all requests and
// returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.hubs.close()
	return s.Server.Serve(ctx, l, s.pages())
}

// Handler returns the handler of all requests, including those without the token.
func (s *Server) Handler() http.Handler { return s.Guard(s.pages()) }

func (s *Server) pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/instances", s.instances)
	mux.HandleFunc("GET /api/events", s.events)
	mux.HandleFunc("GET /api/packets", s.packets)
	mux.HandleFunc("GET /api/packets.pcapng", s.download)
	mux.Handle("GET /", s.files)
	return mux
}

// Instance is a running instance in the page's list.
type Instance struct {
	Name    string    `json:"name"`             // name of the instance
	Stack   string    `json:"stack"`            // name of its stack
	Kernel  string    `json:"kernel,omitempty"` // kernel release that the stack reported
	Engine  string    `json:"engine,omitempty"` // supervise, preload or trace
	Command []string  `json:"command"`          // command line of the program
	Started time.Time `json:"started,omitzero"` // start time of lklrun
}

func newInstance(i *instance.Info) Instance {
	command := i.Command
	if i.Pod != nil {
		command = []string{"pod", i.Pod.String()} // the command of the run only waits
	}
	return Instance{i.Name, i.Stack, i.Kernel, i.Engine, command, i.Started}
}

// running lists the running instances.
func (s *Server) running() ([]Instance, error) {
	all, err := s.list()
	list := []Instance{}
	for _, i := range all {
		if i.Running {
			list = append(list, newInstance(&i))
		}
	}
	return list, err
}

func (s *Server) instances(w http.ResponseWriter, _ *http.Request) {
	list, err := s.running()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client has disconnected
}
